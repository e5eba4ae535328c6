//! libfabric's section of a remote key, with the keys of the memory's registrations, and what it resolves to at a peer.
//!
//! `count (2) | count inverted (2) | fabric (8) | base (8) | length (8)`, then `count` times `worker (2) | key (8)`.
//! Two bits of the count are flags. A key is valid in one domain: each worker of the memory's owner has a domain of its
//! own, and a number. The count, which is there twice, gives the length.
#![forbid(unsafe_code)]

use super::address::OfiLocator;
use crate::tl::rma::MrKey;

/// Bytes in front of the keys.
const FRONT: usize = 2 + 2 + 8 + 8 + 8;
/// Bytes of a key with its worker.
const ENTRY: usize = 2 + 8;
/// Most workers of one process that a section has; accesses to others go by message.
pub const MAX_KEYS: usize = 1024;
/// Flag in the count: the provider executes atomic operations.
const ATOMICS: u16 = 1 << 15;
/// Flag in the count: operations pass addresses of the owner's process (`FI_MR_VIRT_ADDR`).
const VIRTUAL: u16 = 1 << 14;

/// Keys of a memory region.
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
    /// Numbers of the owner's workers, and the key in the domain of each. At most [`MAX_KEYS`].
    pub keys: Vec<(u16, u64)>,
}

impl OfiRkey {
    /// Length of the section whose bytes `at` returns, from its first four bytes; `None` if it is not one.
    pub fn section_len(at: &dyn Fn(usize) -> u8) -> Option<usize> {
        let word = |i: usize| u16::from_le_bytes([at(i), at(i + 1)]);
        let count = usize::from(word(0) & !(ATOMICS | VIRTUAL));
        (word(2) == !word(0) && count <= MAX_KEYS).then_some(FRONT + ENTRY * count)
    }

    /// Encodes the section.
    pub fn encode(&self) -> Vec<u8> {
        let count = self.keys.len().min(MAX_KEYS);
        let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
        let word = count as u16 | flag(self.atomics, ATOMICS) | flag(self.is_virtual, VIRTUAL);
        let mut section = [word.to_le_bytes(), (!word).to_le_bytes()].concat();
        for field in [self.fabric, self.base, self.len] {
            section.extend(field.to_le_bytes());
        }
        for (number, key) in &self.keys[..count] {
            section.extend(number.to_le_bytes());
            section.extend(key.to_le_bytes());
        }
        section
    }

    /// Decodes a section. `None`: it is malformed.
    pub fn decode(section: &[u8]) -> Option<OfiRkey> {
        let len = Self::section_len(&|i| section.get(i).copied().unwrap_or(0))?;
        (section.len() == len).then_some(())?;
        let field = |at: usize| {
            let bytes = section.get(at..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        let entry = |entry: &[u8]| {
            let (number, key) = entry.split_first_chunk()?;
            let key = key.first_chunk()?;
            Some((u16::from_le_bytes(*number), u64::from_le_bytes(*key)))
        };
        let word = u16::from_le_bytes(*section.first_chunk()?);
        Some(OfiRkey {
            fabric: field(4)?,
            base: field(12)?,
            len: field(20)?,
            atomics: word & ATOMICS != 0,
            is_virtual: word & VIRTUAL != 0,
            keys: section[FRONT..]
                .chunks(ENTRY)
                .map(entry)
                .collect::<Option<_>>()?,
        })
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
    pub fn unreached(rkey: &OfiRkey) -> OfiRemoteRegion {
        OfiRemoteRegion {
            atomics: rkey.atomics,
            ..OfiRemoteRegion::default()
        }
    }

    /// The part of a key for the domain of a peer; `None`: the key is for another fabric, or for other workers.
    pub fn new(rkey: &OfiRkey, peer: &OfiLocator) -> Option<OfiRemoteRegion> {
        let mut keys = rkey.keys.iter();
        let &(_, key) = keys.find(|&&(number, _)| number == peer.number)?;
        (rkey.fabric == peer.fabric && peer.number != 0).then_some(OfiRemoteRegion {
            base: rkey.base,
            len: rkey.len,
            key: MrKey {
                key,
                base: if rkey.is_virtual { 0 } else { rkey.base },
            },
            atomics: rkey.atomics,
        })
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
    use crate::tl::ofi::address::Liveness;

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

    #[test]
    fn sections_are_whole_or_none() {
        for count in [0, 1, 48] {
            let section = rkey(count).encode();
            assert_eq!(OfiRkey::section_len(&|i| section[i]), Some(section.len()));
            assert_eq!(OfiRkey::decode(&section), Some(rkey(count)));
            for bit in 0..32 {
                let mut damaged = section.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(OfiRkey::decode(&damaged), None, "bit {bit}");
            }
            for cut in 0..section.len() {
                assert_eq!(OfiRkey::decode(&section[..cut]), None, "cut to {cut}");
            }
        }
        let most = |count: u16| [count.to_le_bytes(), (!count).to_le_bytes()].concat();
        let len = |count| OfiRkey::section_len(&|i| most(count)[i]);
        let longest = FRONT + ENTRY * MAX_KEYS;
        assert_eq!((len(1024), len(1025)), (Some(longest), None));
    }

    #[test]
    fn a_key_is_for_one_domain_of_one_fabric() {
        let peer = |fabric, number| OfiLocator {
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
        let region = |fabric, number| OfiRemoteRegion::new(&rkey(3), &peer(fabric, number));
        assert!(region(8, 2).is_none(), "another fabric");
        assert!(region(7, 3).is_none(), "no such worker");
        assert!(region(7, 0).is_none(), "a worker without remote memory");
        let region = region(7, 2).unwrap();
        let base = rkey(3).base;
        let key = region.key(base, 0x2000).unwrap();
        assert_eq!((key.key, key.offset(base + 8)), (2 << 32 | 5, 8));
        assert!(region.key(base, 0x2001).is_none() && region.key(base - 1, 1).is_none());
        assert!(region.key(base + 0x2000, 1).is_none());
        let by_address = OfiRkey {
            is_virtual: true,
            ..rkey(3)
        };
        let region = OfiRemoteRegion::new(&by_address, &peer(7, 1)).unwrap();
        assert_eq!(region.key(base, 8).unwrap().offset(base + 8), base + 8);
        assert!(OfiRemoteRegion::default().key(0, 1).is_none());
    }
}
