//! A remote key's part for the interconnect.

use super::address::TofuLocator;
use crate::wire::rkey_tofu::TofuRkey;

/// Bytes of the longest word of atomic operations, and of the shortest path of a put.
const WORD: u64 = size_of::<u64>() as u64;

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
