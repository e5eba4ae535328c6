//! The packed remote key: what lets a peer reach a piece of memory, in 2 or 16 bytes.
//!
//! `kind (1) | CRC-8 (1) | body`. `ucp_ep_rkey_unpack` is given a bare pointer, so that the kind alone
//! says how long the key is. Any two kinds differ in two bits or more: one flipped bit makes no other.
#![forbid(unsafe_code)]

use super::packed::packed;
use crc::{CRC_8_SMBUS, Crc};

const CRC: Crc<u8> = Crc::<u8>::new(&CRC_8_SMBUS);

/// No packed key is longer.
pub const MAX_LEN: usize = 16;

const EMPTY: u8 = b'E';
const PLAIN: u8 = b'P';
const SEGMENT: u8 = b'S';
const BLOCK: u8 = b'B';

/// Kind and checksum.
const FRONT: usize = 2;

const PAGE_BITS: u32 = 12;
const BASE_PAGES_BITS: u32 = 36;
const LEN_PAGES_BITS: u32 = 28;

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

const _: () = assert!(FRONT + SegmentBody::SIZE == MAX_LEN);
const _: () = assert!(BASE_PAGES_BITS + LEN_PAGES_BITS == u64::BITS);

/// What a remote key says about the memory that it opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackedRkey {
    /// Memory of length 0.
    Empty,
    /// Memory that only its owner can touch: it is asked by message.
    Plain,
    /// Memory in a shared segment, which peers on the same machine can map.
    Segment {
        /// The segment's descriptor in the owner.
        fd: u32,
        /// The low half of the segment's inode.
        ino: u32,
        /// Where the segment begins in the owner's address space; a multiple of 4 KiB.
        base: u64,
        /// Its length in bytes; a multiple of 4 KiB.
        len: u64,
    },
    /// Memory in a System V block, which peers in the same IPC namespace can attach.
    Block {
        /// The number by which it is attached.
        number: u32,
        /// As of a segment.
        base: u64,
        /// As of a segment.
        len: u64,
    },
}

/// How long the key is that begins with this byte; `None` when no key does.
#[inline]
pub const fn encoded_len(first: u8) -> Option<usize> {
    match first {
        EMPTY | PLAIN => Some(FRONT),
        SEGMENT | BLOCK => Some(MAX_LEN),
        _ => None,
    }
}

impl PackedRkey {
    /// The bytes, and how many of them count. `None` when the numbers of a segment do not fit; then
    /// [`PackedRkey::Plain`] still opens the memory.
    pub fn encode(&self) -> Option<([u8; MAX_LEN], usize)> {
        let (kind, body) = match *self {
            PackedRkey::Empty => (EMPTY, [0; SegmentBody::SIZE]),
            PackedRkey::Plain => (PLAIN, [0; SegmentBody::SIZE]),
            PackedRkey::Segment { fd, ino, base, len } => {
                (SEGMENT, body(u16::try_from(fd).ok()?, ino, base, len)?)
            }
            PackedRkey::Block { number, base, len } => (BLOCK, body(0, number, base, len)?),
        };
        let mut bytes = [0; MAX_LEN];
        let len = encoded_len(kind)?;
        for (to, from) in bytes.iter_mut().zip([kind, 0].into_iter().chain(body)) {
            *to = from;
        }
        bytes[1] = checksum(kind, bytes.get(FRONT..len)?);
        Some((bytes, len))
    }

    /// Reads the key that `bytes` begin with; bytes behind it are ignored. `None` when it is damaged.
    pub fn decode(bytes: &[u8]) -> Option<PackedRkey> {
        let &[kind, check] = bytes.first_chunk()?;
        let body = bytes.get(FRONT..encoded_len(kind)?)?;
        if checksum(kind, body) != check {
            return None;
        }
        match kind {
            EMPTY => Some(PackedRkey::Empty),
            PLAIN => Some(PackedRkey::Plain),
            _ => {
                let SegmentBody { fd, ino, pages } = SegmentBody::decode(body)?;
                let base = (pages & ((1 << BASE_PAGES_BITS) - 1)) << PAGE_BITS;
                let len = pages >> BASE_PAGES_BITS << PAGE_BITS;
                Some(match (kind, fd) {
                    (BLOCK, 0) => PackedRkey::Block {
                        number: ino,
                        base,
                        len,
                    },
                    (BLOCK, _) => return None,
                    _ => PackedRkey::Segment {
                        fd: fd.into(),
                        ino,
                        base,
                        len,
                    },
                })
            }
        }
    }
}

fn body(fd: u16, ino: u32, base: u64, len: u64) -> Option<[u8; SegmentBody::SIZE]> {
    let pages = pages(base, BASE_PAGES_BITS)? | pages(len, LEN_PAGES_BITS)? << BASE_PAGES_BITS;
    Some(SegmentBody { fd, ino, pages }.encode())
}

/// A number of bytes as a number of pages, when it is one and has no more than so many bits.
fn pages(bytes: u64, bits: u32) -> Option<u64> {
    let pages = bytes >> PAGE_BITS;
    (pages << PAGE_BITS == bytes && pages >> bits == 0).then_some(pages)
}

fn checksum(kind: u8, body: &[u8]) -> u8 {
    let mut digest = CRC.digest();
    digest.update(&[kind]);
    digest.update(body);
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGEST: PackedRkey = PackedRkey::Segment {
        fd: u16::MAX as u32,
        ino: u32::MAX,
        base: (1 << 48) - (1 << PAGE_BITS),
        len: (1 << 40) - (1 << PAGE_BITS),
    };

    #[test]
    fn the_largest_segment_fits() {
        let (bytes, len) = LARGEST.encode().expect("fits");
        assert_eq!((len, bytes[0], encoded_len(bytes[0])), (16, b'S', Some(16)));
        assert_eq!(PackedRkey::decode(&bytes), Some(LARGEST));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let PackedRkey::Segment { fd, ino, base, len } = LARGEST else {
            unreachable!()
        };
        let page = 1 << PAGE_BITS;
        let wrong = [
            PackedRkey::Segment {
                fd: fd + 1,
                ino,
                base,
                len,
            },
            PackedRkey::Segment {
                fd,
                ino,
                base: base + page,
                len,
            },
            PackedRkey::Segment {
                fd,
                ino,
                base: base + 1,
                len,
            },
            PackedRkey::Segment {
                fd,
                ino,
                base,
                len: len + page,
            },
            PackedRkey::Segment {
                fd,
                ino,
                base,
                len: len - 1,
            },
        ];
        for rkey in wrong {
            assert_eq!(rkey.encode(), None, "{rkey:?}");
        }
    }

    #[test]
    fn the_small_keys_are_two_bytes() {
        for rkey in [PackedRkey::Empty, PackedRkey::Plain] {
            let (bytes, len) = rkey.encode().expect("fits");
            assert_eq!(len, 2);
            assert_eq!(PackedRkey::decode(&bytes[..len]), Some(rkey));
        }
    }
}
