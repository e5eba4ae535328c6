//! The packed remote key: by which a peer accesses a memory region, in 2 or 16 bytes, and more with keys for devices.
//!
//! `kind (1) | CRC-8 (1) | body`, or, with keys of devices, `kind (1) | CRC-8 (1) | count (1) | atomics (1) | pages (8)
//! | keys (4 each) | body`. The byte `atomics` is present if the count says so. `ucp_ep_rkey_unpack` gets a pointer
//! without a length, so that the kind, and the count which is there twice, give the length of the key. Any two kinds
//! differ in two bits or more: one flipped bit makes no other.
#![forbid(unsafe_code)]

use super::ib_port::MAX_PORTS;
use super::le_struct::packed;
use crc::{CRC_8_SMBUS, Crc};

const CRC: Crc<u8> = Crc::<u8>::new(&CRC_8_SMBUS);

/// Longest packed key without keys of devices, bytes.
pub const MAX_LEN: usize = 16;
/// Longest packed key, bytes.
pub const MAX_KEYED_LEN: usize = MAX_LEN + KEYS_FRONT + 1 + MAX_PORTS * size_of::<u32>();

const EMPTY: u8 = b'E';
const PLAIN: u8 = b'P';
const SEGMENT: u8 = b'S';
const BLOCK: u8 = b'B';

/// Bits in which the kind of a key with keys of devices differs from that without: still two or more from any other
/// kind.
const KEYED: u8 = 0xC3;

/// Kind and checksum.
const FRONT: usize = 2;
/// Bits of the count that say that the byte `atomics` follows: two, so that one flipped bit is detected.
const WITH_ATOMICS: u8 = 0x88;

/// Count and pages.
const KEYS_FRONT: usize = 1 + size_of::<u64>();

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

/// The location of a region, as its remote key has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackedRkey {
    /// Memory of length 0.
    Empty,
    /// Memory that only its owner can access: by message.
    Plain,
    /// Memory in a shared segment, which peers on the same machine can map.
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
    /// Memory in a System V block, which peers in the same IPC namespace can attach.
    Block {
        /// The number by which it is attached.
        number: u32,
        /// Start of the block in the owner's address space; a multiple of 4 KiB.
        base: u64,
        /// Its length in bytes; a multiple of 4 KiB.
        len: u64,
    },
}

/// Keys for devices: one for each port of the owner's address, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DeviceKeys {
    /// The registered range; multiples of 4 KiB.
    pub base: u64,
    pub len: u64,
    pub keys: [u32; MAX_PORTS],
    /// Number of keys, at least one.
    pub count: u8,
    pub atomics: RkeyAtomics,
}

/// What executes atomic operations of 8 bytes on the memory: a device of the owner, with some of its ports, or only
/// processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RkeyAtomics {
    /// Bit mask of that device's ports; 0: processors.
    pub port_mask: u8,
    /// The device's operations are not atomic to processors: these must not execute any.
    pub alone: bool,
}

impl RkeyAtomics {
    const ALONE: u8 = 1 << 7;

    /// Whether this port is one of the device's.
    #[inline]
    pub fn has_port(self, port: usize) -> bool {
        port < MAX_PORTS && self.port_mask >> port & 1 == 1
    }

    fn to_byte(self) -> u8 {
        self.port_mask | if self.alone { Self::ALONE } else { 0 }
    }

    /// `None` where a port is named that does not exist, or none is.
    fn from_byte(byte: u8, count: u8) -> Option<RkeyAtomics> {
        let port_mask = byte & !Self::ALONE;
        let alone = byte & Self::ALONE != 0;
        (port_mask != 0 && port_mask >> count == 0).then_some(RkeyAtomics { port_mask, alone })
    }
}

impl DeviceKeys {
    /// Whether all of these bytes are in the registered range.
    #[inline]
    pub fn covers(&self, addr: u64, len: usize) -> bool {
        let left = self.len.checked_sub(addr.wrapping_sub(self.base));
        left.is_some_and(|left| len as u64 <= left)
    }

    /// The key for a port of the owner.
    #[inline]
    pub fn of_port(&self, port: usize) -> Option<u32> {
        if port >= self.count.into() {
            return None;
        }
        self.keys.get(port).copied()
    }
}

/// Length of the key that begins here; `None` if it is not a key. `at` returns its bytes: the first, and the third only
/// where the first says that there is one.
pub fn total_len(at: impl Fn(usize) -> u8) -> Option<usize> {
    let first = at(0);
    encoded_len(first).or_else(|| {
        let body = encoded_len(first ^ KEYED)?;
        let (count, with_atomics) = count_of(at(FRONT))?;
        let keys = size_of::<u32>() * usize::from(count);
        Some(body + KEYS_FRONT + usize::from(with_atomics) + keys)
    })
}

/// Encodes a count twice, the second time inverted.
fn count_byte(count: u8, with_atomics: bool) -> u8 {
    count | (!count & 7) << 4 | if with_atomics { WITH_ATOMICS } else { 0 }
}

/// The count of keys, and whether the byte `atomics` follows.
fn count_of(byte: u8) -> Option<(u8, bool)> {
    let (count, with_atomics) = (byte & 7, byte & WITH_ATOMICS != 0);
    let right = byte == count_byte(count, with_atomics) && (1..=MAX_PORTS).contains(&count.into());
    right.then_some((count, with_atomics))
}

/// Decodes the key at the begin of `bytes`; bytes behind it are ignored. `None` if it is damaged.
pub fn read(bytes: &[u8]) -> Option<(PackedRkey, Option<DeviceKeys>)> {
    let first = *bytes.first()?;
    if encoded_len(first).is_some() {
        return Some((PackedRkey::decode(bytes)?, None));
    }
    let kind = first ^ KEYED;
    let len = total_len(|i| bytes.get(i).copied().unwrap_or(0))?;
    let (front, body) = bytes.get(..len)?.split_first_chunk::<FRONT>()?;
    if front[1] != checksum(first, body) {
        return None;
    }
    let (&count, mut rest) = body.split_first()?;
    let (count, with_atomics) = count_of(count)?;
    let mut atomics = RkeyAtomics::default();
    if with_atomics {
        let (&byte, behind) = rest.split_first()?;
        (atomics, rest) = (RkeyAtomics::from_byte(byte, count)?, behind);
    }
    let (extent, mut rest) = rest.split_first_chunk()?;
    let extent = u64::from_le_bytes(*extent);
    let mut device = DeviceKeys {
        base: (extent & ((1 << BASE_PAGES_BITS) - 1)) << PAGE_BITS,
        len: extent >> BASE_PAGES_BITS << PAGE_BITS,
        keys: [0; MAX_PORTS],
        count,
        atomics,
    };
    for key in device.keys.iter_mut().take(device.count.into()) {
        let (bytes, behind) = rest.split_first_chunk()?;
        (*key, rest) = (u32::from_le_bytes(*bytes), behind);
    }
    Some((PackedRkey::of(kind, rest)?, Some(device)))
}

/// Length of the key that begins with this byte, without keys of devices; `None` if it is not a kind.
#[inline]
pub const fn encoded_len(first: u8) -> Option<usize> {
    match first {
        EMPTY | PLAIN => Some(FRONT),
        SEGMENT | BLOCK => Some(MAX_LEN),
        _ => None,
    }
}

impl PackedRkey {
    /// The bytes, and their number. `None` if the fields of a segment do not fit; then [`PackedRkey::Plain`] still
    /// gives access.
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

    /// The bytes with keys of devices, and their number. `None` if a field does not fit.
    pub fn encode_with(&self, device: &DeviceKeys) -> Option<([u8; MAX_KEYED_LEN], usize)> {
        let (plain, len) = self.encode()?;
        let extent = pages(device.base, BASE_PAGES_BITS)?
            | pages(device.len, LEN_PAGES_BITS)? << BASE_PAGES_BITS;
        let kind = plain[0] ^ KEYED;
        let with_atomics = device.atomics.port_mask != 0;
        let mut key = vec![kind, 0, count_byte(device.count, with_atomics)];
        if with_atomics {
            RkeyAtomics::from_byte(device.atomics.to_byte(), device.count)?;
            key.push(device.atomics.to_byte());
        }
        key.extend(extent.to_le_bytes());
        let keys = device.keys.get(..device.count.into())?;
        key.extend(keys.iter().flat_map(|k| k.to_le_bytes()));
        key.extend(plain.get(FRONT..len)?);
        key[1] = checksum(kind, key.get(FRONT..)?);
        let mut bytes = [0; MAX_KEYED_LEN];
        bytes.get_mut(..key.len())?.copy_from_slice(&key);
        Some((bytes, key.len()))
    }

    /// Decodes the key at the begin of `bytes`; bytes behind it are ignored. `None` if it is damaged.
    pub fn decode(bytes: &[u8]) -> Option<PackedRkey> {
        let &[kind, check] = bytes.first_chunk()?;
        let body = bytes.get(FRONT..encoded_len(kind)?)?;
        if checksum(kind, body) != check {
            return None;
        }
        Self::of(kind, body)
    }

    /// Decodes a key from its kind and body.
    fn of(kind: u8, body: &[u8]) -> Option<PackedRkey> {
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

/// Converts bytes to pages, if they are a whole number of no more than so many bits.
fn pages(bytes: u64, bits: u32) -> Option<u64> {
    let pages = bytes >> PAGE_BITS;
    (pages << PAGE_BITS == bytes && pages >> bits == 0).then_some(pages)
}

/// CRC-8 of a key: over the kind and all bytes behind the checksum.
pub(super) fn checksum(kind: u8, body: &[u8]) -> u8 {
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
    fn keys_that_do_not_fit_are_refused() {
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
    fn devices_have_keys_of_their_own() {
        let device = |count| DeviceKeys {
            base: 0x7f00_0000_0000,
            len: 1 << 20,
            keys: [0x1111_1111, 2, 3, 4],
            count,
            atomics: RkeyAtomics::default(),
        };
        let atomics = |count| {
            let ports = [0, 1, 1u8 << (count - 1)];
            ports.map(|port_mask| RkeyAtomics {
                port_mask,
                alone: port_mask & 1 == 1,
            })
        };
        let all = (1..=MAX_PORTS as u8).flat_map(|count| atomics(count).map(|a| (count, a)));
        for (count, atomics) in all {
            for rkey in [PackedRkey::Empty, PackedRkey::Plain, LARGEST] {
                let mut device = device(count);
                device.keys[count.into()..].fill(0);
                device.atomics = atomics;
                let (bytes, len) = rkey.encode_with(&device).expect("fits");
                assert_eq!(total_len(|i| bytes[i]), Some(len));
                assert_eq!(read(&bytes), Some((rkey, Some(device))));
                for bit in 0..len * 8 {
                    let mut damaged = bytes;
                    damaged[bit / 8] ^= 1 << (bit % 8);
                    assert_eq!(read(&damaged), None, "bit {bit} flipped");
                }
                assert_eq!(read(&bytes[..len - 1]), None);
            }
        }
        assert_eq!(
            PackedRkey::Plain.encode_with(&device(1)).map(|k| k.1),
            Some(15)
        );
        let mut keys = device(2);
        keys.atomics.port_mask = 4;
        assert_eq!(PackedRkey::Plain.encode_with(&keys), None, "no such port");
        assert!(keys.atomics.has_port(2) && !keys.atomics.has_port(1));
        assert!(!keys.atomics.has_port(64));
        assert_eq!((keys.of_port(1), keys.of_port(2)), (Some(2), None));
        assert!(keys.covers(keys.base, 1 << 20));
        assert!(!keys.covers(keys.base + 1, 1 << 20) && !keys.covers(keys.base - 1, 1));
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
