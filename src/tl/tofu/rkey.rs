//! The interconnect's section of a remote key, with the STADDs of the memory, and what it resolves to at a peer.
//!
//! `count (2) | count inverted (2) | base (8) | length (8)`, then `count` times `worker (2) | STADD (8)`. A bit of the
//! count says that the owner's adapters execute atomic operations. A STADD is valid for one VCQ: each worker of the
//! memory's owner has a VCQ of its own, and a number. The count, which is there twice, gives the length.
#![forbid(unsafe_code)]

use super::address::TofuLocator;
use crate::tl::rma::RmaKey;
use crate::tl::rma_pieces::RmaRegion;

/// Bytes in front of the addresses.
const FRONT: usize = 2 + 2 + 8 + 8;
/// Bytes of a STADD with its worker.
const ENTRY: usize = 2 + 8;
/// Most workers of one process that a key has; accesses to others go by message.
pub const MAX_STADDS: usize = 1024;
/// Flag in the count: adapters execute atomic operations.
const ATOMICS: u16 = 1 << 15;
/// Bytes of the longest word of atomic operations, and of the shortest path of a put.
const WORD: u64 = size_of::<u64>() as u64;

/// STADDs of a memory region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TofuRkey {
    /// The registered range.
    pub base: u64,
    pub len: u64,
    /// Whether the owner's adapters, and nothing else, execute atomic operations on it; possible without STADDs too.
    pub atomics: bool,
    /// Numbers of the owner's workers, and the STADD of the first byte for the VCQ of each. At most [`MAX_STADDS`].
    pub addresses: Vec<(u16, u64)>,
}

impl TofuRkey {
    /// Length of the section whose bytes `at` returns, from its first four bytes; `None` if it is not one.
    pub fn section_len(at: &dyn Fn(usize) -> u8) -> Option<usize> {
        let word = |i: usize| u16::from_le_bytes([at(i), at(i + 1)]);
        let count = usize::from(word(0) & !ATOMICS);
        (word(2) == !word(0) && count <= MAX_STADDS).then_some(FRONT + ENTRY * count)
    }

    /// Encodes the section.
    pub fn encode(&self) -> Vec<u8> {
        let count = self.addresses.len().min(MAX_STADDS) as u16;
        let word = count | if self.atomics { ATOMICS } else { 0 };
        let mut section = [word.to_le_bytes(), (!word).to_le_bytes()].concat();
        section.extend(self.base.to_le_bytes());
        section.extend(self.len.to_le_bytes());
        for (number, stadd) in self.addresses.iter().take(count.into()) {
            section.extend(number.to_le_bytes());
            section.extend(stadd.to_le_bytes());
        }
        section
    }

    /// Decodes a section. `None`: it is malformed.
    pub fn decode(section: &[u8]) -> Option<TofuRkey> {
        let len = Self::section_len(&|i| section.get(i).copied().unwrap_or(0))?;
        let (count, rest) = section.split_first_chunk()?;
        let (base, rest) = rest.get(2..)?.split_first_chunk()?;
        let (extent, entries) = rest.split_first_chunk()?;
        let entry = |entry: &[u8]| {
            let (number, stadd) = entry.split_first_chunk()?;
            Some((
                u16::from_le_bytes(*number),
                u64::from_le_bytes(*stadd.first_chunk()?),
            ))
        };
        (section.len() == len).then_some(())?;
        Some(TofuRkey {
            base: u64::from_le_bytes(*base),
            len: u64::from_le_bytes(*extent),
            atomics: u16::from_le_bytes(*count) & ATOMICS != 0,
            addresses: entries.chunks(ENTRY).map(entry).collect::<Option<_>>()?,
        })
    }
}

/// Memory that TNIs access at a peer.
#[derive(Clone, Debug, Default)]
pub struct StaddRegion {
    /// Start of the registered memory; without a registration the length is 0.
    base: u64,
    len: u64,
    /// Added to a remote address gives the steering address.
    delta: u64,
    /// Number of addresses at which words of 8 bytes begin, where no threads overlap; 0 elsewhere: the only check of
    /// the shortest path.
    words: u64,
    /// STADDs of the first byte for each of the peer's rails, in their order; `None` where a rail has none.
    rails: Box<[Option<u64>]>,
}

impl StaddRegion {
    /// The part of a key for the VCQs of a peer; `None`: they have no STADDs. `alone`: no threads overlap.
    pub fn new(key: &TofuRkey, peer: &TofuLocator, alone: bool) -> Option<StaddRegion> {
        let stadd_of = |wanted: u16| {
            let mut all = key.addresses.iter();
            let found = all.find(|&&(number, _)| number == wanted);
            found.map(|&(_, stadd)| stadd)
        };
        let rails = 1..=peer.rails.count() as u16;
        Some(StaddRegion {
            base: key.base,
            len: key.len,
            delta: stadd_of(peer.number)?.wrapping_sub(key.base),
            words: if alone {
                key.len.saturating_sub(WORD - 1)
            } else {
                0
            },
            rails: rails
                .map(|i| stadd_of(peer.number.wrapping_add(i)))
                .collect(),
        })
    }

    /// Whether no memory is accessible by the interconnect.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether words are accessible by the interconnect, where no threads overlap.
    #[inline(always)]
    pub fn has_words(&self) -> bool {
        self.words != 0
    }

    /// STADD of 8 bytes, if all of them are accessible and no threads overlap.
    #[inline(always)]
    pub fn stadd_of_word(&self, addr: u64) -> Option<u64> {
        let inside = addr.wrapping_sub(self.base) < self.words;
        inside.then(|| addr.wrapping_add(self.delta))
    }

    /// STADD of `len` bytes, not 0, if all of them are accessible.
    #[inline(always)]
    pub fn stadd(&self, addr: u64, len: usize) -> Option<u64> {
        let left = self.len.checked_sub(addr.wrapping_sub(self.base))?;
        (len as u64 <= left).then(|| addr.wrapping_add(self.delta))
    }

    /// The registered memory, for a list of accesses.
    pub fn region(&self) -> RmaRegion {
        RmaRegion {
            base: self.base,
            len: self.len,
            key: RmaKey::Stadd(self.base.wrapping_add(self.delta)),
        }
    }

    /// Whether the peer has rails.
    pub fn has_rails(&self) -> bool {
        !self.rails.is_empty()
    }

    /// STADDs of this address for each of the peer's rails.
    pub(super) fn rails(&self, addr: u64) -> impl Iterator<Item = Option<u64>> {
        let at = addr.wrapping_sub(self.base);
        let rails = self.rails.iter();
        rails.map(move |first| Some((*first)?.wrapping_add(at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_whole_or_none() {
        for count in [0, 1, 48] {
            let key = TofuRkey {
                base: 0x7f00_0000_1000,
                len: 12,
                atomics: count != 1,
                addresses: (0..count).map(|n| (n, u64::from(n) << 32 | 5)).collect(),
            };
            let section = key.encode();
            assert_eq!(TofuRkey::section_len(&|i| section[i]), Some(section.len()));
            assert_eq!(TofuRkey::decode(&section), Some(key));
            for bit in 0..32 {
                let mut damaged = section.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(TofuRkey::decode(&damaged), None, "bit {bit}");
            }
            for cut in 0..section.len() {
                assert_eq!(TofuRkey::decode(&section[..cut]), None, "cut to {cut}");
            }
        }
        let most = |count: u16| [count.to_le_bytes(), (!count).to_le_bytes()].concat();
        let len = |count| TofuRkey::section_len(&|i| most(count)[i]);
        let longest = FRONT + ENTRY * MAX_STADDS;
        assert_eq!((len(1024), len(1025)), (Some(longest), None));
    }
}
