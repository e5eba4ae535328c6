//! The worker address: the blob that a program passes to the worker's peers, and by which they reach the worker.
//!
//! `prefix (4) | uid (8) | sections | CRC-32 (4)`, a section being `kind (1) | length (1) | body`. Sections of an
//! unknown kind are skipped, and so are bytes behind the known ones of a body: later versions can add lanes.
//!
//! `ucp_ep_create` gets a pointer without a length, so that the length has to be in the blob itself: the prefix has it
//! twice, once inverted, and is checked before any byte behind it is read. The checksum covers everything before it;
//! CRC-32 because it finds every error of up to three bits and every burst of 32, and from the crate `crc` because that
//! is a table made at compile time, without dispatch at run time, and has the CRC-8 of the packed rkey too.
#![forbid(unsafe_code)]

use super::le_struct::{packed, packed_flags};
use super::tofu_msg::RailVcqs;
use crc::{CRC_32_ISO_HDLC, Crc};
use std::fmt;
use std::net::IpAddr;

const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);

/// The prefix as a little-endian word: magic (8 bits), version (4), length (10), inverted length (10).
const MAGIC: u32 = 0xCB;
/// Incremented when the format of data between two workers changes: addresses, messages, rings.
const VERSION: u32 = 4;
const LENGTH_BITS: u32 = 10;

/// Longest address, bytes. LCI sends addresses as hexadecimal text through PMI values of 4095 bytes.
pub const MAX_LEN: usize = (1 << LENGTH_BITS) - 1;
const _: () = assert!(MAX_LEN * 2 <= 4095);

const PREFIX: usize = 4;
const CHECKSUM: usize = 4;
/// Prefix, uid and checksum: an address without sections.
const MIN_LEN: usize = PREFIX + size_of::<u64>() + CHECKSUM;

/// Longest name, bytes; longer ones are cut. Names are for debugging only.
const MAX_NAME: usize = 64;

const CLIENT_ID: u8 = 1;
const NAME: u8 = 2;
const SHM: u8 = 3;
const TCP: u8 = 4;
const IB: u8 = 5;
const WIREUP_TCP: u8 = 6;
const TOFU: u8 = 7;
/// Most network addresses of a worker; further ones are left out.
pub const MAX_ADDRESSES: usize = 8;
/// Most ports of a worker; further ones are left out.
pub const MAX_PORTS: usize = 4;

packed! {
    /// Locator of the worker's shared memory segment for processes of the same host.
    ShmLocator, 41 {
        /// Hash of the boot id, equal for one boot of one kernel.
        host: u64,
        /// Inode of the PID namespace, in which `pid` is valid.
        pid_ns: u32,
        /// Process that owns the segment.
        pid: u32,
        /// The owner's descriptor of the segment.
        fd: u32,
        /// Inode of the segment: a file that is opened must have it.
        ino: u32,
        /// Inode of the IPC namespace, in which `key` is valid.
        ipc_ns: u32,
        /// System V number of the memory and the value that must be written in it; 0 if `fd` is the memory.
        key: u64,
        /// Id of the directory in which the owner holds the lock of `key` while it lives; 0: it holds none.
        liveness_place: u32,
        /// Reserved: 0.
        flags: u8,
    }
}

/// A network address of the worker's host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetAddress {
    pub ip: IpAddr,
    /// Speed of its device: 8 times the binary logarithm of Mb/s.
    pub speed: u8,
}

impl NetAddress {
    pub fn new(ip: IpAddr, mbps: u32) -> Self {
        let speed = speed_code(mbps);
        Self { ip, speed }
    }

    /// Speed of its device, Mb/s, to within 5 %.
    pub fn mbps(&self) -> u32 {
        speed_of(self.speed)
    }
}

/// The code of a speed in Mb/s: 8 times its binary logarithm.
pub fn speed_code(mbps: u32) -> u8 {
    (f64::from(mbps.max(1)).log2() * 8.0).round() as u8
}

fn speed_of(code: u8) -> u32 {
    (f64::from(code) / 8.0).exp2() as u32
}

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
        /// Code of the link's speed, as [`speed_code`] makes it.
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
        speed_of(self.speed)
    }
}

/// The InfiniBand section: `secret (8)`, then the ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IbLocator {
    /// Secret that a HELLO has to carry.
    pub secret: u64,
    /// At most [`MAX_PORTS`].
    pub ports: Vec<PortLocator>,
}

impl IbLocator {
    /// Whether both workers send messages by a common transport. A worker without these flags (an earlier version) may
    /// use both.
    pub fn shares_transport(&self, other: &IbLocator) -> bool {
        const ALL: PortFlags = PortFlags::QUEUES.union(PortFlags::DATAGRAMS);
        let transports = |l: &IbLocator| {
            let flags = l.ports.first().map(|p| p.flags & ALL);
            flags.filter(|flags| !flags.is_empty()).unwrap_or(ALL)
        };
        transports(self).intersects(transports(other))
    }

    fn encode(&self) -> Vec<u8> {
        let mut body = self.secret.to_le_bytes().to_vec();
        for port in self.ports.iter().take(MAX_PORTS) {
            body.extend(port.encode());
        }
        body
    }

    fn decode(body: &[u8]) -> Option<IbLocator> {
        let (secret, rest) = body.split_first_chunk()?;
        let ports = rest.chunks(PortLocator::SIZE).map(PortLocator::decode);
        let ports: Vec<_> = ports.collect::<Option<_>>()?;
        (ports.len() <= MAX_PORTS).then_some(IbLocator {
            secret: u64::from_le_bytes(*secret),
            ports,
        })
    }
}

/// The Tofu section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TofuLocator {
    /// Secret that a ring request has to carry.
    pub secret: u64,
    /// The worker's VCQ.
    pub vcq: u64,
    /// STADD of its ticket queue there ([`super::tofu_msg`]).
    pub ticket_queue: u64,
    /// Number of the VCQ among those of its process, which selects the STADD in an rkey. Those of the rails follow.
    pub number: u16,
    /// VCQs of its rails.
    pub rails: RailVcqs,
}

packed! {
    /// Fixed part of such a section; the rails follow.
    TofuFront, 26 {
        secret: u64,
        vcq: u64,
        ticket_queue: u64,
        number: u16,
    }
}

impl TofuLocator {
    fn encode(&self) -> Vec<u8> {
        let front = TofuFront {
            secret: self.secret,
            vcq: self.vcq,
            ticket_queue: self.ticket_queue,
            number: self.number,
        };
        let mut body = front.encode().to_vec();
        body.extend(self.rails.iter().flat_map(u64::to_le_bytes));
        body
    }

    fn decode(body: &[u8]) -> Option<TofuLocator> {
        let front = TofuFront::decode(body)?;
        let rails = body.get(TofuFront::SIZE..)?.chunks_exact(size_of::<u64>());
        let rail = |bytes: &[u8]| bytes.first_chunk().map_or(0, |&b| u64::from_le_bytes(b));
        Some(TofuLocator {
            secret: front.secret,
            vcq: front.vcq,
            ticket_queue: front.ticket_queue,
            number: front.number,
            rails: RailVcqs::of(rails.map(rail)),
        })
    }
}

/// The TCP section: `port (2) | secret (8) | network (4)`, then the addresses as `family (1) | speed (1) | address (4
/// or 16)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpLocator {
    /// Port of the listening socket.
    pub port: u16,
    /// Secret that a hello has to carry.
    pub secret: u64,
    /// Id of the network namespace, equal for the processes in it.
    pub network: u32,
    /// At most [`MAX_ADDRESSES`].
    pub addresses: Vec<NetAddress>,
}

const V4: u8 = 4;
const V6: u8 = 6;

impl TcpLocator {
    fn encode(&self) -> Vec<u8> {
        let mut body = self.port.to_le_bytes().to_vec();
        body.extend(self.secret.to_le_bytes());
        body.extend(self.network.to_le_bytes());
        for address in self.addresses.iter().take(MAX_ADDRESSES) {
            match address.ip {
                IpAddr::V4(ip) => {
                    body.extend([V4, address.speed]);
                    body.extend(ip.octets());
                }
                IpAddr::V6(ip) => {
                    body.extend([V6, address.speed]);
                    body.extend(ip.octets());
                }
            }
        }
        body
    }

    fn decode(body: &[u8]) -> Option<TcpLocator> {
        let (port, rest) = body.split_first_chunk()?;
        let (secret, rest) = rest.split_first_chunk()?;
        let (network, mut rest) = rest.split_first_chunk()?;
        let mut addresses = Vec::new();
        while let Some((&[family, speed], behind)) = rest.split_first_chunk() {
            let (ip, next): (IpAddr, &[u8]) = match family {
                V4 => {
                    let (octets, next) = behind.split_first_chunk::<4>()?;
                    ((*octets).into(), next)
                }
                V6 => {
                    let (octets, next) = behind.split_first_chunk::<16>()?;
                    ((*octets).into(), next)
                }
                _ => return None,
            };
            if addresses.len() == MAX_ADDRESSES {
                return None;
            }
            addresses.push(NetAddress { ip, speed });
            rest = next;
        }
        rest.is_empty().then_some(TcpLocator {
            port: u16::from_le_bytes(*port),
            secret: u64::from_le_bytes(*secret),
            network: u32::from_le_bytes(*network),
            addresses,
        })
    }
}

/// The decoded address of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerAddress {
    /// Unique id of the worker.
    pub uid: u64,
    /// The client id that the program gave to the worker.
    pub client_id: Option<u64>,
    /// The worker's name, if debugging information is enabled.
    pub name: Option<String>,
    /// Present if shared memory reaches the worker.
    pub shm: Option<ShmLocator>,
    /// Present if InfiniBand or RoCE reaches it.
    pub ib: Option<IbLocator>,
    /// Present if the Tofu interconnect reaches it.
    pub tofu: Option<TofuLocator>,
    /// Present if TCP reaches it.
    pub tcp: Option<TcpLocator>,
    /// Listening socket for the wireup of queue pairs, present if TCP carries nothing else for the worker.
    pub wireup_tcp: Option<TcpLocator>,
}

/// Why a blob is not a worker address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressError {
    /// The prefix is wrong: it is of another library, or not an address at all.
    Foreign,
    /// It is of a later version of this library.
    Version,
    /// The length that it states is impossible, or there are fewer bytes than that.
    Length,
    /// Its checksum is wrong.
    Checksum,
    /// Its checksum is right, but its sections are invalid.
    Malformed,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AddressError::Foreign => "not a worker address of this library",
            AddressError::Version => "worker address of an unknown version",
            AddressError::Length => "worker address of a wrong length",
            AddressError::Checksum => "worker address with a wrong checksum",
            AddressError::Malformed => "worker address with malformed contents",
        })
    }
}

impl std::error::Error for AddressError {}

/// Length of the address that begins with these bytes. Bytes behind them need not be readable.
pub fn total_len(prefix: &[u8; PREFIX]) -> Result<usize, AddressError> {
    let word = u32::from_le_bytes(*prefix);
    if word & 0xFF != MAGIC {
        return Err(AddressError::Foreign);
    }
    let len = word >> 12 & MAX_LEN as u32;
    if word >> 22 != len ^ MAX_LEN as u32 || (len as usize) < MIN_LEN {
        return Err(AddressError::Length);
    }
    if word >> 8 & 0xF != VERSION {
        return Err(AddressError::Version);
    }
    Ok(len as usize)
}

fn prefix(len: usize) -> [u8; PREFIX] {
    let len = len as u32 & MAX_LEN as u32;
    (MAGIC | VERSION << 8 | len << 12 | (len ^ MAX_LEN as u32) << 22).to_le_bytes()
}

impl WorkerAddress {
    /// Encodes the address. Equal addresses give equal blobs.
    pub fn encode(&self) -> Vec<u8> {
        let mut blob = vec![0; PREFIX];
        blob.extend(self.uid.to_le_bytes());
        if let Some(client_id) = self.client_id {
            push_section(&mut blob, CLIENT_ID, &client_id.to_le_bytes());
        }
        if let Some(name) = &self.name {
            push_section(&mut blob, NAME, cut(name).as_bytes());
        }
        if let Some(shm) = &self.shm {
            push_section(&mut blob, SHM, &shm.encode());
        }
        if let Some(ib) = &self.ib {
            push_section(&mut blob, IB, &ib.encode());
        }
        if let Some(tofu) = &self.tofu {
            push_section(&mut blob, TOFU, &tofu.encode());
        }
        if let Some(tcp) = &self.tcp {
            push_section(&mut blob, TCP, &tcp.encode());
        }
        if let Some(wireup_tcp) = &self.wireup_tcp {
            push_section(&mut blob, WIREUP_TCP, &wireup_tcp.encode());
        }
        seal(blob)
    }

    /// Decodes the address at the begin of `blob`; bytes behind it are ignored.
    pub fn decode(blob: &[u8]) -> Result<WorkerAddress, AddressError> {
        let len = total_len(blob.first_chunk().ok_or(AddressError::Length)?)?;
        let blob = blob.get(..len).ok_or(AddressError::Length)?;
        let (covered, checksum) = blob.split_last_chunk().ok_or(AddressError::Length)?;
        if CRC.checksum(covered) != u32::from_le_bytes(*checksum) {
            return Err(AddressError::Checksum);
        }
        covered
            .get(PREFIX..)
            .and_then(decode_body)
            .ok_or(AddressError::Malformed)
    }
}

/// The first [`MAX_NAME`] bytes of a name, or up to 3 less so that no character is split.
fn cut(name: &str) -> &str {
    let ends = name
        .char_indices()
        .map(|(at, character)| at + character.len_utf8());
    let end = ends.take_while(|&end| end <= MAX_NAME).last().unwrap_or(0);
    name.get(..end).unwrap_or_default()
}

fn push_section(blob: &mut Vec<u8>, kind: u8, body: &[u8]) {
    debug_assert!(body.len() <= u8::MAX as usize);
    blob.extend([kind, body.len() as u8]);
    blob.extend(body);
}

/// Fills in the prefix and adds the checksum.
fn seal(mut blob: Vec<u8>) -> Vec<u8> {
    let len = blob.len() + CHECKSUM;
    debug_assert!(len <= MAX_LEN);
    for (to, from) in blob.iter_mut().zip(prefix(len)) {
        *to = from;
    }
    let checksum = CRC.checksum(&blob);
    blob.extend(checksum.to_le_bytes());
    blob
}

/// Decodes the bytes between prefix and checksum.
fn decode_body(body: &[u8]) -> Option<WorkerAddress> {
    let (uid, mut rest) = body.split_first_chunk()?;
    let mut address = WorkerAddress {
        uid: u64::from_le_bytes(*uid),
        client_id: None,
        name: None,
        shm: None,
        ib: None,
        tofu: None,
        tcp: None,
        wireup_tcp: None,
    };
    while let Some((&[kind, len], behind)) = rest.split_first_chunk() {
        let (body, next) = behind.split_at_checked(len as usize)?;
        match kind {
            CLIENT_ID => address.client_id = Some(u64::from_le_bytes(*body.first_chunk()?)),
            NAME => address.name = Some(std::str::from_utf8(body).ok()?.to_owned()),
            SHM => address.shm = Some(ShmLocator::decode(body)?),
            IB => address.ib = Some(IbLocator::decode(body)?),
            TOFU => address.tofu = Some(TofuLocator::decode(body)?),
            TCP => address.tcp = Some(TcpLocator::decode(body)?),
            WIREUP_TCP => address.wireup_tcp = Some(TcpLocator::decode(body)?),
            _ => {}
        }
        rest = next;
    }
    rest.is_empty().then_some(address)
}

#[cfg(test)]
mod tests;
