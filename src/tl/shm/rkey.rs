//! Shared memory's part of a remote key: the segment or block that peers of the same host map.
#![forbid(unsafe_code)]

use crate::sys::memfd::MemfdId;
use crate::sys::shm::ShmId;
use crate::wire::le_struct::packed;
use crate::wire::rkey::{MAX_BODY, RkeyKind, decode_pages, encode_pages};

packed! {
    /// The body of a segment's and of a block's key.
    SegmentBody, 14 {
        /// Of a segment only.
        fd: u16,
        /// Inode of a segment, number of a block.
        ino: u32,
        /// Page number of the base in the low 36 bits, number of pages in the others.
        pages: u64,
    }
}

const _: () = assert!(SegmentBody::SIZE == MAX_BODY);

/// Memory that peers map, as its remote key has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShmRkey {
    /// Memory in a shared segment.
    Segment {
        /// The segment's descriptor in the owner.
        fd: u32,
        /// The low half of the segment's inode.
        ino: u32,
        /// Start of the segment in the owner's address space; a multiple of 4 KiB.
        base: u64,
        /// Its length in bytes; a multiple of 4 KiB.
        len: u64,
    },
    /// Memory in a System V block.
    Block {
        /// The number by which it is attached.
        number: u32,
        /// Start of the block in the owner's address space; a multiple of 4 KiB.
        base: u64,
        /// Its length in bytes; a multiple of 4 KiB.
        len: u64,
    },
}

impl ShmRkey {
    /// The key of memory of this process.
    pub fn new(id: ShmId, base: u64, len: u64) -> ShmRkey {
        match id {
            ShmId::Block(number) => ShmRkey::Block { number, base, len },
            ShmId::File(MemfdId { fd, ino, .. }) => ShmRkey::Segment { fd, ino, base, len },
        }
    }

    /// The memory in process `pid`, its base there and its length.
    pub fn locate(self, pid: u32) -> (ShmId, u64, u64) {
        match self {
            ShmRkey::Block { number, base, len } => (ShmId::Block(number), base, len),
            ShmRkey::Segment { fd, ino, base, len } => {
                (ShmId::File(MemfdId { pid, fd, ino }), base, len)
            }
        }
    }

    /// Kind and body of the key. `None` if the fields do not fit.
    pub fn encode(&self) -> Option<(RkeyKind, [u8; MAX_BODY])> {
        let (kind, fd, ino, base, len) = match *self {
            ShmRkey::Segment { fd, ino, base, len } => {
                (RkeyKind::Segment, u16::try_from(fd).ok()?, ino, base, len)
            }
            ShmRkey::Block { number, base, len } => (RkeyKind::Block, 0, number, base, len),
        };
        let pages = encode_pages(base, len)?;
        Some((kind, SegmentBody { fd, ino, pages }.encode()))
    }

    /// Decodes the body of a key. `None`: it is malformed, or the kind has none.
    pub fn decode(kind: RkeyKind, body: &[u8]) -> Option<ShmRkey> {
        let SegmentBody { fd, ino, pages } = SegmentBody::decode(body)?;
        let (base, len) = decode_pages(pages);
        match (kind, fd) {
            (RkeyKind::Segment, fd) => Some(ShmRkey::Segment {
                fd: fd.into(),
                ino,
                base,
                len,
            }),
            (RkeyKind::Block, 0) => Some(ShmRkey::Block {
                number: ino,
                base,
                len,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGEST: ShmRkey = ShmRkey::Segment {
        fd: u16::MAX as u32,
        ino: u32::MAX,
        base: (1 << 48) - (1 << 12),
        len: (1 << 40) - (1 << 12),
    };

    #[test]
    fn the_largest_segment_fits() {
        let (kind, body) = LARGEST.encode().expect("fits");
        assert_eq!((kind, body), (RkeyKind::Segment, [0xFF; MAX_BODY]));
        assert_eq!(ShmRkey::decode(kind, &body), Some(LARGEST));
    }

    #[test]
    fn memory_that_does_not_fit_is_refused() {
        let ShmRkey::Segment { fd, ino, base, len } = LARGEST else {
            unreachable!()
        };
        for (fd, base, len) in [
            (fd + 1, base, len),
            (fd, base + 1, len),
            (fd, base, len - 1),
        ] {
            let rkey = ShmRkey::Segment { fd, ino, base, len };
            assert_eq!(rkey.encode(), None, "{rkey:?}");
        }
    }

    #[test]
    fn bodies_of_other_kinds_are_refused() {
        let body = [1; MAX_BODY];
        assert_eq!(ShmRkey::decode(RkeyKind::Block, &body), None, "descriptor");
        assert_eq!(ShmRkey::decode(RkeyKind::Plain, &body), None);
        assert_eq!(ShmRkey::decode(RkeyKind::Segment, &body[1..]), None);
    }
}
