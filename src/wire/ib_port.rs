//! The address of a port in an InfiniBand or RoCE network, in worker addresses and in messages of the wireup.
#![forbid(unsafe_code)]

use super::address::mbps_of;
use super::le_struct::{packed, packed_flags};

/// Most ports of a worker; further ones are left out.
pub const MAX_PORTS: usize = 4;

packed_flags! {
    /// Flags of a [`PortLocator`].
    PortFlags: u8 {
        /// Its link is Ethernet, not InfiniBand.
        const ETHERNET = 1;
        /// Its GID is of RoCE v2, not v1.
        const ROCE_V2 = 2;
        /// In a worker's address: the worker sends messages by RC.
        const QUEUES = 4;
        /// In a worker's address: the worker sends messages by UD.
        const DATAGRAMS = 8;
    }
}

packed! {
    /// Address of a port of the worker in an InfiniBand or RoCE network.
    PortLocator, 25 {
        flags: PortFlags,
        /// Largest packet: 1 for 256 bytes to 5 for 4096.
        mtu: u8,
        /// Code of the link's speed, as [`speed_code`](super::address::speed_code) makes it.
        speed: u8,
        /// LID, valid inside of the InfiniBand subnet.
        lid: u16,
        /// Number of the UD queue pair; 0: there is none.
        qpn: u32,
        /// GID, first byte in the highest bits.
        gid: u128,
    }
}

impl PortLocator {
    pub fn is_ethernet(&self) -> bool {
        self.flags.contains(PortFlags::ETHERNET)
    }

    pub fn is_roce_v2(&self) -> bool {
        self.flags.contains(PortFlags::ROCE_V2)
    }

    /// Whether both name the same queue pair: devices assign numbers independently.
    pub fn is_at(&self, other: &PortLocator) -> bool {
        (self.qpn, self.lid, self.gid) == (other.qpn, other.lid, other.gid)
    }

    /// Speed of its link, Mb/s, to within 5 %.
    pub fn mbps(&self) -> u32 {
        mbps_of(self.speed)
    }
}
