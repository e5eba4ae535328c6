//! The packed remote key, by which a peer accesses a memory region: 2 or 16 bytes, and more with sections of networks.
//!
//! `kind (1) | CRC-8 (1) | body`. An inner section lies between checksum and body, and changes the kind; an outer one
//! lies around the key: `k (1) | CRC-8 (1) | section | key`; that of fabrics around both, with `f` in place of `k`. The
//! frame knows where body and sections begin and end; their bytes are encoded and decoded by the transports
//! ([`crate::tl::rkey`]).
//!
//! `ucp_ep_rkey_unpack` gets a pointer without a length, so that the kind, and the first bytes of a section, give the
//! length of the key. Any two kinds differ in two bits or more: one flipped bit makes no other.
#![forbid(unsafe_code)]

use super::device_handle;
use crc::{CRC_8_SMBUS, Crc};
use std::borrow::Cow;

const CRC: Crc<u8> = Crc::<u8>::new(&CRC_8_SMBUS);

/// Longest packed key of memory of the host without sections, bytes.
pub const MAX_LEN: usize = FRONT + MAX_BODY;
/// Longest body of memory of the host, bytes: that of the memory that peers can map.
pub const MAX_BODY: usize = 14;

/// Kind and checksum.
const FRONT: usize = 2;
/// Bits in which the kind of a key with an inner section differs from that without: still two or more from any other
/// kind.
const WITH_INNER: u8 = 0xC3;
/// Kind of an outer section.
pub const OUTER: u8 = b'k';
/// Kind of the section of fabrics, around an outer one.
pub const FABRIC: u8 = b'f';

const PAGE_BITS: u32 = 12;
const BASE_PAGES_BITS: u32 = 36;
const LEN_PAGES_BITS: u32 = 28;
const _: () = assert!(BASE_PAGES_BITS + LEN_PAGES_BITS == u64::BITS);

/// The kind of memory that a key gives access to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RkeyKind {
    /// Memory of length 0.
    Empty = b'E',
    /// Memory that peers cannot map.
    Plain = b'P',
    /// Memory that the owner's processor does not access: peers send it messages.
    Device = b'V',
    /// Such memory, with a handle by which peers on the same host open it.
    Exported = b'I',
    /// Memory in a shared segment, which peers on the same machine can map.
    Segment = b'S',
    /// Memory in a System V block, which peers in the same IPC namespace can attach.
    Block = b'B',
}

impl RkeyKind {
    fn of(byte: u8) -> Option<RkeyKind> {
        let all = [
            Self::Empty,
            Self::Plain,
            Self::Device,
            Self::Exported,
            Self::Segment,
            Self::Block,
        ];
        all.into_iter().find(|&kind| kind as u8 == byte)
    }

    /// Bytes of the body.
    pub fn body_len(self) -> usize {
        match self {
            RkeyKind::Empty | RkeyKind::Plain | RkeyKind::Device => 0,
            RkeyKind::Exported => device_handle::LEN,
            RkeyKind::Segment | RkeyKind::Block => MAX_BODY,
        }
    }
}

/// Length of a section from its first bytes; `None` if it is not a section. The argument returns its bytes, no more of
/// them than the previous ones say that there are.
pub type SectionLen = fn(&dyn Fn(usize) -> u8) -> Option<usize>;

/// How long the sections are.
#[derive(Clone, Copy, Debug)]
pub struct SectionLens {
    pub inner: SectionLen,
    pub outer: SectionLen,
    pub fabric: SectionLen,
}

/// A key as body and sections. The transports encode and decode them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedRkey<'a> {
    pub kind: RkeyKind,
    /// As many bytes as the kind has.
    pub body: Cow<'a, [u8]>,
    pub inner: Option<Cow<'a, [u8]>>,
    pub outer: Option<Cow<'a, [u8]>>,
    pub fabric: Option<Cow<'a, [u8]>>,
}

/// Length of the key that begins here; `None` if it is not a key. `at` returns its bytes, no more of them than the
/// previous ones say that there are.
pub fn total_len(at: impl Fn(usize) -> u8, lens: SectionLens) -> Option<usize> {
    let around = |kind: u8, begin: usize, len: SectionLen| match at(begin) == kind {
        true => Some(begin + FRONT + len(&|i| at(begin + FRONT + i))?),
        false => Some(begin),
    };
    let outer = around(FABRIC, 0, lens.fabric)?;
    let key = around(OUTER, outer, lens.outer)?;
    let inside = key + FRONT;
    let (kind, has_inner) = kind_of(at(key))?;
    let inner = match has_inner {
        true => (lens.inner)(&|i| at(inside + i))?,
        false => 0,
    };
    Some(inside + inner + kind.body_len())
}

/// The kind of a key without its outer section, and whether it has an inner section.
fn kind_of(byte: u8) -> Option<(RkeyKind, bool)> {
    match RkeyKind::of(byte) {
        Some(kind) => Some((kind, false)),
        None => RkeyKind::of(byte ^ WITH_INNER).map(|kind| (kind, true)),
    }
}

impl<'a> PackedRkey<'a> {
    /// Encodes the key. Equal keys give equal bytes.
    pub fn encode(&self) -> Vec<u8> {
        debug_assert_eq!(self.body.len(), self.kind.body_len());
        let key = match &self.inner {
            Some(inner) => seal(self.kind as u8 ^ WITH_INNER, inner, &self.body),
            None => seal(self.kind as u8, &[], &self.body),
        };
        let around = |kind, section: &Option<Cow<[u8]>>, key: Vec<u8>| match section {
            Some(section) => seal(kind, section, &key),
            None => key,
        };
        around(FABRIC, &self.fabric, around(OUTER, &self.outer, key))
    }

    /// Decodes the key at the begin of `bytes`; bytes behind it are ignored. `None` if it is damaged.
    pub fn decode(bytes: &'a [u8], lens: SectionLens) -> Option<PackedRkey<'a>> {
        let bytes = bytes.get(..total_len(byte_of(bytes), lens)?)?;
        let (fabric, key) = match open(bytes)? {
            (FABRIC, rest) => split_section(rest, lens.fabric)?,
            _ => (None, bytes),
        };
        let (outer, key) = match open(key)? {
            (OUTER, rest) => split_section(rest, lens.outer)?,
            _ => (None, key),
        };
        let (kind, rest) = open(key)?;
        let (kind, has_inner) = kind_of(kind)?;
        let (inner, body) = match has_inner {
            true => split_section(rest, lens.inner)?,
            false => (None, rest),
        };
        Some(PackedRkey {
            kind,
            body: body.into(),
            inner: inner.map(Cow::Borrowed),
            outer: outer.map(Cow::Borrowed),
            fabric: fabric.map(Cow::Borrowed),
        })
    }
}

/// A byte of a slice; 0 behind its end.
fn byte_of(bytes: &[u8]) -> impl Fn(usize) -> u8 + '_ {
    |i| bytes.get(i).copied().unwrap_or(0)
}

/// A section and what lies behind it.
fn split_section(bytes: &[u8], len: SectionLen) -> Option<(Option<&[u8]>, &[u8])> {
    let (section, behind) = bytes.split_at_checked(len(&byte_of(bytes))?)?;
    Some((Some(section), behind))
}

/// Kind, checksum, section and what lies behind it.
fn seal(kind: u8, section: &[u8], behind: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, 0];
    bytes.extend(section);
    bytes.extend(behind);
    if let [_, crc, covered @ ..] = &mut *bytes {
        *crc = checksum(kind, covered);
    }
    bytes
}

/// The kind, and the bytes behind the checksum; `None` if that is wrong.
fn open(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let (&[kind, crc], covered) = bytes.split_first_chunk::<FRONT>()?;
    (crc == checksum(kind, covered)).then_some((kind, covered))
}

/// CRC-8 of a key: over the kind and all bytes behind the checksum.
fn checksum(kind: u8, covered: &[u8]) -> u8 {
    let mut digest = CRC.digest();
    digest.update(&[kind]);
    digest.update(covered);
    digest.finalize()
}

/// A range of whole pages in 8 bytes: the page number of its base in the low 36 bits, the number of pages in the
/// others. `None` if it does not fit, or is not of whole pages.
pub fn encode_pages(base: u64, len: u64) -> Option<u64> {
    let pages = |bytes: u64, bits: u32| {
        let pages = bytes >> PAGE_BITS;
        (pages << PAGE_BITS == bytes && pages >> bits == 0).then_some(pages)
    };
    Some(pages(base, BASE_PAGES_BITS)? | pages(len, LEN_PAGES_BITS)? << BASE_PAGES_BITS)
}

/// Base and length of a range of pages, bytes.
pub fn decode_pages(pages: u64) -> (u64, u64) {
    let base = (pages & ((1 << BASE_PAGES_BITS) - 1)) << PAGE_BITS;
    (base, pages >> BASE_PAGES_BITS << PAGE_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sections whose first byte is their length.
    const LENS: SectionLens = SectionLens {
        inner: |at| Some(at(0).into()),
        outer: |at| Some(at(0).into()),
        fabric: |at| Some(at(0).into()),
    };

    #[test]
    fn kinds_differ_in_two_bits() {
        let plain = [
            RkeyKind::Empty,
            RkeyKind::Plain,
            RkeyKind::Device,
            RkeyKind::Exported,
            RkeyKind::Segment,
            RkeyKind::Block,
        ];
        let inner = plain.map(|kind| kind as u8 ^ WITH_INNER);
        let all = [&plain.map(|kind| kind as u8)[..], &inner, &[OUTER, FABRIC]].concat();
        for (i, a) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|b| (a ^ b).count_ones() >= 2), "{a:#x}");
        }
    }

    #[test]
    fn sections_are_whole_or_none() {
        for (kind, body) in [
            (RkeyKind::Plain, &[][..]),
            (RkeyKind::Block, &[7; MAX_BODY]),
        ] {
            let sections = [
                (0, 0, 0),
                (1, 0, 0),
                (9, 0, 7),
                (0, 200, 0),
                (255, 255, 1),
                (0, 0, 255),
            ];
            for (inner, outer, fabric) in sections {
                let section = |len: u8| (len > 0).then(|| vec![len; len.into()].into());
                let key = PackedRkey {
                    kind,
                    body: body.into(),
                    inner: section(inner),
                    outer: section(outer),
                    fabric: section(fabric),
                };
                let mut bytes = key.encode();
                assert_eq!(PackedRkey::decode(&bytes, LENS), Some(key));
                let len = bytes.len();
                assert_eq!(total_len(byte_of(&bytes), LENS), Some(len));
                assert_eq!(PackedRkey::decode(&bytes[..len - 1], LENS), None);
                bytes[1] ^= 1;
                assert_eq!(PackedRkey::decode(&bytes, LENS), None);
            }
        }
    }

    #[test]
    fn pages_fit_or_are_refused() {
        let page = 1 << PAGE_BITS;
        let (base, len) = ((1 << 48) - page, (1 << 40) - page);
        assert_eq!(encode_pages(base, len), Some(u64::MAX));
        assert_eq!(decode_pages(u64::MAX), (base, len));
        for (base, len) in [
            (base + page, 0),
            (base + 1, 0),
            (0, len + page),
            (0, len - 1),
        ] {
            assert_eq!(encode_pages(base, len), None);
        }
    }
}
