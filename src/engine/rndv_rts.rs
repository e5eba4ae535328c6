//! The decoded RTS of a rendezvous, for a message that waits at its sender.

use crate::tl::rma::MrKeys;
use crate::wire::header::{DEVICE_MEMORY, RtsHdr};
use crate::wire::{device_handle, rts_keys};

/// Longest message: the user part of an address space.
const MAX_MESSAGE: u64 = 1 << 47;

/// Fields of an RTS.
#[derive(Clone, Copy)]
pub struct RtsInfo {
    /// The sender's request id.
    pub req: u64,
    /// Bytes of the message.
    pub len: usize,
    pub source: RtsSource,
    /// The sender waits for other messages too.
    pub one_of_many: bool,
}

/// Where a message is at its sender, and how the receiver reads it. 13 bytes without alignment: unexpected messages and
/// requests have room for no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RtsSource {
    /// Only the sender can access it.
    SenderOnly,
    /// At this address: CMA reads it.
    Contiguous(Unaligned<u64>),
    /// In pieces, whose list has so many entries at this address: CMA reads the list, then the pieces.
    Pieces {
        list: Unaligned<u64>,
        count: Unaligned<u32>,
    },
    /// At this address, and registered: the receiver's HCA reads it by an rkey for the port of the connection. CMA may,
    /// too.
    Rkey {
        addr: Unaligned<u64>,
        rkey: Unaligned<u32>,
    },
    /// Registered with the sender's VCQ: the receiver's TNI reads it. `rails`: a bit for each of the sender's rails
    /// that have STADDs of it, too, which are kept beside the [`RtsInfo`] ([`rts_keys`]).
    Stadd { stadd: Unaligned<u64>, rails: u8 },
    /// At this address, and registered with libfabric: the receiver's provider reads it, by so many keys that are kept
    /// beside the [`RtsInfo`] ([`MrKeys`]).
    MrKey { addr: Unaligned<u64>, count: u8 },
    /// In a device's memory: the sender's HCA writes from it.
    DeviceMemory,
    /// At this address of a device's memory: the receiver's HCA reads it by an rkey for the port of the connection.
    DeviceRkey {
        addr: Unaligned<u64>,
        rkey: Unaligned<u32>,
    },
    /// At this address of a device's memory on this host: the receiver's driver copies it, by a handle that is kept
    /// beside the [`RtsInfo`] ([`DeviceHandle`](device_handle::DeviceHandle)). `is_registered`: the sender's HCA can
    /// write from it, too.
    DeviceHandle {
        addr: Unaligned<u64>,
        is_registered: bool,
    },
}

const _: () = assert!(size_of::<RtsInfo>() == 32 && size_of::<RtsSource>() == 13);

/// A number in memory of any alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed)]
pub struct Unaligned<T: Copy>(T);

impl<T: Copy> From<T> for Unaligned<T> {
    fn from(value: T) -> Self {
        Unaligned(value)
    }
}

impl<T: Copy> Unaligned<T> {
    /// Copies the number out, so that no unaligned reference is made.
    pub fn get(self) -> T {
        self.0
    }
}

impl From<RtsHdr> for RtsInfo {
    fn from(h: RtsHdr) -> Self {
        RtsInfo {
            req: h.req,
            // No process can have more; later arithmetic relies on the limit.
            len: h.len.min(MAX_MESSAGE) as usize,
            source: match (h.addr, h.pieces) {
                (_, DEVICE_MEMORY) => RtsSource::DeviceMemory,
                (0, _) => RtsSource::SenderOnly,
                (addr, 0) => RtsSource::Contiguous(addr.into()),
                (list, count) => RtsSource::Pieces {
                    list: list.into(),
                    count: count.into(),
                },
            },
            one_of_many: h.waiting > 1,
        }
    }
}

impl RtsInfo {
    /// Bytes of the STADDs, of the keys or of the handle, that are kept beside it.
    pub fn beside(&self) -> usize {
        match self.source {
            RtsSource::Stadd { rails, .. } => rts_keys::len(rails),
            RtsSource::MrKey { count, .. } => usize::from(count) * MrKeys::KEY,
            RtsSource::DeviceHandle { .. } => device_handle::IN_RTS,
            _ => 0,
        }
    }
}

impl RtsSource {
    /// The address that CMA reads first: of the message, or of the list of its pieces.
    pub fn cma_addr(self) -> Option<u64> {
        match self {
            RtsSource::Contiguous(addr) | RtsSource::Rkey { addr, .. } => Some(addr.get()),
            RtsSource::Pieces { list, .. } => Some(list.get()),
            RtsSource::SenderOnly
            | RtsSource::Stadd { .. }
            | RtsSource::MrKey { .. }
            | RtsSource::DeviceMemory
            | RtsSource::DeviceRkey { .. }
            | RtsSource::DeviceHandle { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(addr: u64, pieces: u32) -> RtsInfo {
        RtsInfo::from(RtsHdr {
            req: 1,
            len: u64::MAX,
            addr,
            pieces,
            waiting: 1,
        })
    }

    #[test]
    fn an_rts_header_names_a_message_its_pieces_or_neither() {
        let source = |addr, pieces| info(addr, pieces).source;
        assert_eq!(source(0, 0), RtsSource::SenderOnly);
        // Pieces without an address are nowhere.
        assert_eq!(source(0, 4), RtsSource::SenderOnly);
        assert_eq!(source(3, 0), RtsSource::Contiguous(3.into()));
        for addr in [0, 3] {
            let source = source(addr, DEVICE_MEMORY);
            assert_eq!((source, source.cma_addr()), (RtsSource::DeviceMemory, None));
        }
        let (list, count) = (3.into(), 4.into());
        assert_eq!(source(3, 4), RtsSource::Pieces { list, count });
    }

    #[test]
    fn cma_reads_no_stadd_and_a_length_is_limited() {
        let (stadd, rkey) = (5.into(), 6.into());
        assert_eq!(RtsSource::Stadd { stadd, rails: 0 }.cma_addr(), None);
        assert_eq!(RtsSource::Rkey { addr: stadd, rkey }.cma_addr(), Some(5));
        assert_eq!(info(3, 4).source.cma_addr(), Some(3));
        assert_eq!(info(3, 4).len as u64, MAX_MESSAGE);
    }

    #[test]
    fn only_stadds_and_keys_are_kept_beside_an_rts() {
        let (stadd, rails) = (5.into(), 3);
        let source = RtsSource::Stadd { stadd, rails };
        let steered = RtsInfo {
            source,
            ..info(3, 0)
        };
        assert_eq!((steered.beside(), info(3, 0).beside()), (16, 0));
        let source = RtsSource::MrKey {
            addr: stadd,
            count: 2,
        };
        let registered = RtsInfo {
            source,
            ..info(3, 0)
        };
        assert_eq!((registered.beside(), source.cma_addr()), (32, None));
        let source = RtsSource::DeviceHandle {
            addr: stadd,
            is_registered: false,
        };
        let exported = RtsInfo {
            source,
            ..info(3, 0)
        };
        assert_eq!(exported.beside(), device_handle::IN_RTS);
        assert_eq!(source.cma_addr(), None);
    }
}
