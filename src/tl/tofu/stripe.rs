//! Striping over the Tofu interconnect: the connection's own VCQ and the rails each move a part of a long put, get or
//! message.
//!
//! VCQs are not ordered with each other. So a write by a rail counts as a read: a notice reports its arrival, a flush
//! waits for that, and nothing behind a fence, and no signal behind its data, is posted before it.

use super::address::TofuLocator;
use super::mr::{self, TofuMr};
use super::registration::TofuRegistrar;
use super::rkey::StaddRegion;
use crate::sys::regcache::Handle;
use crate::tl::mapped::MappedRegions;
use crate::wire::rts_keys::RailStadds;

/// Bytes from which on a transfer is striped: a TNI moves them in 10 us, several times the cost of posting to others
/// and of their notices.
const SHARED: usize = 64 << 10;
/// Minimum bytes of a part: a TNI moves them in 2.4 us, about as long as its notice takes.
const MIN_PART: usize = 16 << 10;
/// Parts are whole lines of the processor's cache, bytes.
const LINE: usize = 256;

/// What a zero-copy transfer keeps.
pub struct TofuZcopy {
    /// Registration of the memory for the connection's own VCQ.
    pub memory: Handle<TofuMr>,
    /// The rails that move parts of it, in addition to the connection's own VCQ; of an RTS the peer's rails.
    pub shares: Vec<RailShare>,
}

/// A rail's part of a transfer.
pub struct RailShare {
    /// Index of the rail among the worker's, and among the peer's.
    pub rail: usize,
    /// Registration of our memory for it.
    pub memory: Handle<TofuMr>,
    /// STADD of the first byte of the transfer for the peer's rail.
    pub there: u64,
}

impl TofuZcopy {
    /// STADDs of the first byte of an offered message for the rails.
    pub fn offered(&self) -> RailStadds {
        RailStadds::of(self.shares.iter().map(|share| (share.rail, share.there)))
    }
}

impl<M: MappedRegions> TofuRegistrar<'_, M> {
    /// Registers memory for a put (`writes` is false: local memory is only read) or get of the memory at `addr` of a
    /// key. Rails share it with the connection; usually none.
    #[inline(always)]
    pub fn for_access(
        &self,
        memory: (*const u8, usize),
        writes: bool,
        (key, addr): (&StaddRegion, u64),
    ) -> Option<TofuZcopy> {
        let own = self.register(memory, writes)?;
        let most = self.iface.tuning.rma_rails;
        let shares = match key.has_rails() {
            true => self.share(memory, writes, most, key.rails(addr)),
            false => Vec::new(),
        };
        Some(TofuZcopy {
            memory: own,
            shares,
        })
    }

    /// Registers a message that a peer may read. Returns its STADD, too. Rails through which the peer may read it have
    /// their steering addresses as `there`: they are as many as the peer has itself.
    pub fn offer(
        &self,
        memory: (*const u8, usize),
        peer: Option<&TofuLocator>,
    ) -> Option<(TofuZcopy, u64)> {
        let own = self.register(memory, false)?;
        let stadd = mr::stadd(&own, memory.0);
        let mut shares = peer.map_or(Vec::new(), |peer| {
            let theirs = peer.rails.iter().map(|_| Some(0));
            self.share(memory, false, self.iface.tuning.rndv_rails, theirs)
        });
        for share in &mut shares {
            share.there = mr::stadd(&share.memory, memory.0);
        }
        let zcopy = TofuZcopy {
            memory: own,
            shares,
        };
        Some((zcopy, stadd))
    }

    /// Registers memory into which a message is read; `there`: its steering addresses at the sender.
    pub fn for_fetch(&self, memory: (*const u8, usize), there: &RailStadds) -> Option<TofuZcopy> {
        let own = self.register(memory, true)?;
        let shares = self.share(memory, true, self.iface.tuning.rndv_rails, there.iter());
        Some(TofuZcopy {
            memory: own,
            shares,
        })
    }

    /// Of the rails with a remote steering address in `there`, which is in their order, those for which the local
    /// memory can be registered; with the connection's VCQ no more than `most`, from the settings.
    fn share(
        &self,
        (ptr, len): (*const u8, usize),
        writes: bool,
        most: usize,
        there: impl Iterator<Item = Option<u64>>,
    ) -> Vec<RailShare> {
        // Where a rail cannot access the memory, the others move more.
        let shares = there.enumerate().filter_map(|(rail, there)| {
            Some(RailShare {
                rail,
                there: there?,
                memory: self.register_rail(rail, (ptr, len), writes)?,
            })
        });
        shares.take(rails(len, most)).collect()
    }
}

/// Number of rails that share `len` bytes, if no more than `most` TNIs do.
fn rails(len: usize, most: usize) -> usize {
    match len {
        SHARED.. => (len / MIN_PART).min(most).saturating_sub(1),
        _ => 0,
    }
}

/// Bytes of a part, in whole [`LINE`]s, if `rails` rails have shares and one operation moves no more than `longest`.
pub fn part(len: usize, rails: usize, longest: usize) -> usize {
    match rails {
        0 => len.max(1),
        _ => len.div_ceil(rails + 1).next_multiple_of(LINE).min(longest),
    }
}

/// Which VCQ moves the bytes from `offset` on (0: the connection's own, else a rail's), and how many.
pub fn next(offset: usize, len: usize, part: usize, rails: usize) -> (usize, usize) {
    let left = part - offset % part;
    (offset / part % (rails + 1), left.min(len - offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_transfers_are_not_shared_and_long_ones_by_as_many_as_may() {
        assert_eq!(rails(SHARED - 1, 6), 0);
        assert_eq!(rails(SHARED, 6), 3);
        assert_eq!(rails(1 << 20, 6), 5);
        assert_eq!(rails(1 << 20, usize::MAX), 63);
        for most in [0, 1] {
            assert_eq!(rails(1 << 20, most), 0);
        }
    }

    #[test]
    fn parts_are_alike_and_all_of_it() {
        for (len, rails, longest) in [
            (1 << 20, 5, 16 << 20),
            (SHARED + 1, 3, 16 << 20),
            (100 << 20, 2, 16 << 20),
            (1 << 20, 0, 4096),
        ] {
            let part = part(len, rails, longest);
            let (mut offset, mut moved) = (0, vec![0; rails + 1]);
            while offset < len {
                let (turn, n) = next(offset, len, part, rails);
                assert!(n > 0 && (rails == 0 || n <= longest));
                moved[turn] += n;
                offset += n;
            }
            assert_eq!(moved.iter().sum::<usize>(), len);
            let (most, least) = (moved.iter().max(), moved.iter().min());
            assert!(
                most.zip(least)
                    .is_some_and(|(most, least)| most - least <= longest)
            );
        }
    }
}
