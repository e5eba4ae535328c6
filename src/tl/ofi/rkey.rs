//! libfabric's section of a remote key, with the keys of the memory's registrations, and what it resolves to at a peer.
//!
//! For each fabric: `count (2) | count inverted (2) | fabric (8) | base (8) | length (8)`, then `count` times
//! `interface (2) | key (8)`. Three bits of the count are flags; one says that another fabric follows. A key is valid
//! in one domain: each interface of the memory's owner has a domain of its own, and a number. The count, which is there
//! twice, gives the length.
#![forbid(unsafe_code)]

use super::address::{MAX_INTERFACES, OfiTarget};
use crate::tl::rma::{MrKey, RmaKey};
use crate::tl::rma_pieces::RmaRegion;

/// Bytes in front of the keys.
const FRONT: usize = 2 + 2 + 8 + 8 + 8;
/// Bytes of a key with its interface.
const ENTRY: usize = 2 + 8;
/// Most interfaces to one fabric that a section has; accesses by others go by message.
pub const MAX_KEYS: usize = 1024;
/// Flag in the count: the provider executes atomic operations.
const ATOMICS: u16 = 1 << 15;
/// Flag in the count: operations pass addresses of the owner's process (`FI_MR_VIRT_ADDR`).
const VIRTUAL: u16 = 1 << 14;
/// Flag in the count: another fabric follows.
const MORE: u16 = 1 << 13;

/// Keys of a memory region for interfaces to one fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfiRkey {
    /// Hash of what workers have in common that reach each other, as in their addresses.
    pub fabric: u64,
    /// The registered range.
    pub base: u64,
    pub len: u64,
    /// Whether the owner's provider, and nothing else, executes atomic operations on it.
    pub atomics: bool,
    /// Whether operations pass addresses of the owner's process, and not offsets in the range.
    pub is_virtual: bool,
    /// Numbers of the owner's interfaces, and the key in the domain of each. At most [`MAX_KEYS`].
    pub keys: Vec<(u16, u64)>,
}

/// Keys of a memory region: those for each fabric, of which there are at least one, and at most [`MAX_INTERFACES`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfiRkeys(Vec<OfiRkey>);

/// Number of keys, and flags, of the part of a section whose bytes `at` returns from its first on; `None` if it is not
/// one.
fn count(at: impl Fn(usize) -> u8) -> Option<(usize, u16)> {
    let word = |i: usize| u16::from_le_bytes([at(i), at(i + 1)]);
    let flags = word(0) & (ATOMICS | VIRTUAL | MORE);
    let count = usize::from(word(0) & !flags);
    (word(2) == !word(0) && count <= MAX_KEYS).then_some((count, flags))
}

impl OfiRkey {
    /// Appends the part of a section. `more`: another one follows.
    fn encode(&self, more: bool, section: &mut Vec<u8>) {
        let count = self.keys.len().min(MAX_KEYS);
        let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
        let flags = flag(self.atomics, ATOMICS) | flag(self.is_virtual, VIRTUAL);
        let word = count as u16 | flags | flag(more, MORE);
        section.extend(word.to_le_bytes());
        section.extend((!word).to_le_bytes());
        for field in [self.fabric, self.base, self.len] {
            section.extend(field.to_le_bytes());
        }
        for (number, key) in &self.keys[..count] {
            section.extend(number.to_le_bytes());
            section.extend(key.to_le_bytes());
        }
    }

    /// Decodes the part of a section of exactly these bytes.
    fn decode(part: &[u8], flags: u16) -> Option<OfiRkey> {
        let field = |at: usize| {
            let bytes = part.get(at..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        let entry = |entry: &[u8]| {
            let (number, key) = entry.split_first_chunk()?;
            let key = key.first_chunk()?;
            Some((u16::from_le_bytes(*number), u64::from_le_bytes(*key)))
        };
        Some(OfiRkey {
            fabric: field(4)?,
            base: field(12)?,
            len: field(20)?,
            atomics: flags & ATOMICS != 0,
            is_virtual: flags & VIRTUAL != 0,
            keys: part
                .get(FRONT..)?
                .chunks(ENTRY)
                .map(entry)
                .collect::<Option<_>>()?,
        })
    }
}

impl OfiRkeys {
    /// Those for these fabrics, of which there are at most [`MAX_INTERFACES`]. `None`: there are none, or more.
    pub fn new(fabrics: Vec<OfiRkey>) -> Option<OfiRkeys> {
        (1..=MAX_INTERFACES)
            .contains(&fabrics.len())
            .then_some(OfiRkeys(fabrics))
    }

    /// Length of the section whose bytes `at` returns; `None` if it is not one.
    pub fn section_len(at: &dyn Fn(usize) -> u8) -> Option<usize> {
        let mut len = 0;
        for _ in 0..MAX_INTERFACES {
            let (count, flags) = count(|i| at(len + i))?;
            len += FRONT + ENTRY * count;
            if flags & MORE == 0 {
                return Some(len);
            }
        }
        None
    }

    /// Encodes the section.
    pub fn encode(&self) -> Vec<u8> {
        let (mut section, last) = (Vec::new(), self.0.len() - 1);
        for (i, fabric) in self.0.iter().enumerate() {
            fabric.encode(i < last, &mut section);
        }
        section
    }

    /// Decodes a section. `None`: it is malformed.
    pub fn decode(section: &[u8]) -> Option<OfiRkeys> {
        let (mut fabrics, mut left) = (Vec::new(), section);
        loop {
            let (count, flags) = count(|i| left.get(i).copied().unwrap_or(0))?;
            let (part, rest) = left.split_at_checked(FRONT + ENTRY * count)?;
            fabrics.push(OfiRkey::decode(part, flags)?);
            match (flags & MORE != 0, rest.is_empty()) {
                (true, false) if fabrics.len() < MAX_INTERFACES => left = rest,
                (false, true) => return OfiRkeys::new(fabrics),
                _ => return None,
            }
        }
    }
}

/// Memory that the provider accesses at a peer.
#[derive(Clone, Copy, Debug, Default)]
pub struct OfiRemoteRegion {
    /// Start of the registered memory; without a registration the length is 0.
    base: u64,
    len: u64,
    key: MrKey,
    /// The owner's provider, and nothing else, executes atomic operations on it.
    pub atomics: bool,
}

impl OfiRemoteRegion {
    /// The part of a key for a peer that its provider does not reach: it says what executes atomic operations.
    pub fn unreached(rkeys: &OfiRkeys) -> OfiRemoteRegion {
        OfiRemoteRegion {
            atomics: rkeys.0.iter().any(|rkey| rkey.atomics),
            ..OfiRemoteRegion::default()
        }
    }

    /// The part of a key for the domain of a peer that is reached first; `None`: the key is for other fabrics, or for
    /// other interfaces.
    pub fn new(rkeys: &OfiRkeys, peer: &OfiTarget) -> Option<OfiRemoteRegion> {
        let to = &peer.first.to;
        let rkey = rkeys.0.iter().find(|rkey| rkey.fabric == to.fabric)?;
        let mut keys = rkey.keys.iter();
        let &(_, key) = keys.find(|&&(number, _)| number == to.number)?;
        let base = if rkey.is_virtual { 0 } else { rkey.base };
        (to.number != 0).then_some(OfiRemoteRegion {
            base: rkey.base,
            len: rkey.len,
            key: MrKey::new(key, base, to.number)?,
            atomics: rkey.atomics,
        })
    }

    /// The registered memory, for a list of accesses.
    pub fn region(&self) -> RmaRegion {
        RmaRegion {
            base: self.base,
            len: self.len,
            key: RmaKey::Mr(self.key),
        }
    }

    /// The key of `len` bytes, not 0, if all of them are registered.
    #[inline]
    pub fn key(&self, addr: u64, len: usize) -> Option<MrKey> {
        let left = self.len.checked_sub(addr.wrapping_sub(self.base))?;
        (len as u64 <= left).then_some(self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tl::ofi::address::{Liveness, OfiLocator};

    fn rkey(count: u16) -> OfiRkey {
        OfiRkey {
            fabric: 7,
            base: 0x7f00_0000_1000,
            len: 0x2000,
            atomics: count != 1,
            is_virtual: count == 1,
            keys: (0..count).map(|n| (n, u64::from(n) << 32 | 5)).collect(),
        }
    }

    fn rkeys(count: u16) -> OfiRkeys {
        OfiRkeys(vec![rkey(count)])
    }

    fn two(count: u16) -> OfiRkeys {
        let second = OfiRkey {
            fabric: 8,
            keys: vec![(2, 9)],
            ..rkey(0)
        };
        OfiRkeys(vec![rkey(count), second])
    }

    #[test]
    fn sections_are_whole_or_none() {
        for keys in [rkeys(0), rkeys(1), rkeys(48), two(0), two(3)] {
            let section = keys.encode();
            assert_eq!(OfiRkeys::section_len(&|i| section[i]), Some(section.len()));
            assert_eq!(OfiRkeys::decode(&section), Some(keys));
            for bit in 0..32 {
                let mut damaged = section.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(OfiRkeys::decode(&damaged), None, "bit {bit}");
            }
            for cut in 0..section.len() {
                assert_eq!(OfiRkeys::decode(&section[..cut]), None, "cut to {cut}");
            }
            assert_eq!(OfiRkeys::decode(&[&section[..], &[0]].concat()), None);
        }
        let most = |count: u16| [count.to_le_bytes(), (!count).to_le_bytes()].concat();
        let len = |count| OfiRkeys::section_len(&|i| most(count)[i]);
        let longest = FRONT + ENTRY * MAX_KEYS;
        assert_eq!((len(1024), len(1025)), (Some(longest), None));
    }

    #[test]
    fn sections_have_few_fabrics() {
        let mut section = Vec::new();
        for _ in 0..MAX_INTERFACES {
            rkey(1).encode(true, &mut section);
        }
        rkey(1).encode(false, &mut section);
        assert_eq!(OfiRkeys::decode(&section), None);
        let at = |i: usize| section.get(i).copied().unwrap_or(0);
        assert_eq!(OfiRkeys::section_len(&at), None);
        let mut endless = Vec::new();
        rkey(1).encode(true, &mut endless);
        assert_eq!(OfiRkeys::decode(&endless), None, "another one is announced");
        assert_eq!(OfiRkeys::new(Vec::new()), None);
    }

    #[test]
    fn a_key_is_for_one_domain_of_one_fabric() {
        let peer = |fabric, number| {
            let to = OfiLocator {
                fabric,
                secret: 1,
                number,
                liveness: Liveness {
                    host: 2,
                    locks: 3,
                    lock: 4,
                },
                name: vec![7; 16],
            };
            OfiTarget::only(0, to)
        };
        let region = |fabric, number| OfiRemoteRegion::new(&rkeys(3), &peer(fabric, number));
        assert!(region(8, 2).is_none(), "another fabric");
        assert!(region(7, 3).is_none(), "no such interface");
        assert!(region(7, 0).is_none(), "an interface without remote memory");
        let region = region(7, 2).unwrap();
        let base = rkey(3).base;
        let key = region.key(base, 0x2000).unwrap();
        assert_eq!((key.key(), key.offset(base + 8)), (2 << 32 | 5, 8));
        assert_eq!(key.number(), 2);
        assert!(region.key(base, 0x2001).is_none() && region.key(base - 1, 1).is_none());
        assert!(region.key(base + 0x2000, 1).is_none());
        let second = OfiRemoteRegion::new(&two(3), &peer(8, 2)).unwrap();
        assert_eq!(second.key(base, 8).unwrap().key(), 9);
        assert!(OfiRemoteRegion::new(&two(3), &peer(8, 1)).is_none());
        let by_address = OfiRkey {
            is_virtual: true,
            ..rkey(3)
        };
        let region = OfiRemoteRegion::new(&OfiRkeys(vec![by_address]), &peer(7, 1)).unwrap();
        assert_eq!(region.key(base, 8).unwrap().offset(base + 8), base + 8);
        assert!(OfiRemoteRegion::default().key(0, 1).is_none());
    }
}
