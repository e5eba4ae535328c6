//! Striping over the Tofu interconnect: the connection's own VCQ and the rails each move a part of a long put, get or
//! message.
//!
//! VCQs are not ordered with each other. So a write by a rail counts as a read: a notice reports its arrival, a flush
//! waits for that, and nothing behind a fence, and no signal behind its data, is posted before it.

use crate::engine::peer::Peer;
use crate::engine::request::RailShare;
use crate::engine::rkey::StaddRegion;
use crate::engine::worker::Worker;
use crate::tl::LaneTarget;
use crate::tl::tofu::{TofuTuning, mr};
use crate::wire::rts_keys::RailStadds;

/// Bytes from which on a transfer is striped: a TNI moves them in 10 us, several times the cost of posting to others
/// and of their notices.
const SHARED: usize = 64 << 10;
/// Minimum bytes of a part: a TNI moves them in 2.4 us, about as long as its notice takes.
const MIN_PART: usize = 16 << 10;
/// Parts are whole lines of the processor's cache, bytes.
const LINE: usize = 256;

/// The rails that share a put (`writes` is false: local memory is only read) or get with the connection; usually none.
pub fn of_access(
    worker: &Worker,
    (ptr, len): (*const u8, usize),
    writes: bool,
    (key, addr): (&StaddRegion, u64),
) -> Vec<RailShare> {
    let at = addr.wrapping_sub(key.base);
    let there = key.rails.iter();
    let there = there.map(|there| Some((*there)?.wrapping_add(at)));
    share(worker, (ptr, len), writes, |t| t.rma_rails, there)
}

/// The rails through which a peer may read a message from this worker's memory, with the memory's steering addresses:
/// as many as the peer has itself.
pub fn to_offer(worker: &Worker, peer: &Peer, memory: (*const u8, usize)) -> Vec<RailShare> {
    let Some(LaneTarget::Tofu(target)) = peer.target.as_deref() else {
        return Vec::new();
    };
    let theirs = target.locator.rails.iter().map(|_| Some(0));
    let mut shares = share(worker, memory, false, |t| t.rndv_rails, theirs);
    for share in &mut shares {
        share.there = mr::stadd(&share.memory, memory.0);
    }
    shares
}

/// The rails that share the get of a message into this worker's memory; `there`: its steering addresses at the sender.
pub fn of_message(
    worker: &Worker,
    memory: (*const u8, usize),
    there: &RailStadds,
) -> Vec<RailShare> {
    share(worker, memory, true, |t| t.rndv_rails, there.iter())
}

/// Of the rails with a remote steering address in `there`, which is in their order, those for which the local memory
/// can be registered; with the connection's VCQ no more than `most`, from the settings.
fn share(
    worker: &Worker,
    (ptr, len): (*const u8, usize),
    writes: bool,
    most: impl Fn(&TofuTuning) -> usize,
    there: impl Iterator<Item = Option<u64>>,
) -> Vec<RailShare> {
    let tofu = worker.tl.tofu.as_ref();
    let most = tofu.map_or(1, |tofu| most(&tofu.iface.tuning));
    // Where a rail cannot access the memory, the others move more.
    let shares = there.enumerate().filter_map(|(rail, there)| {
        Some(RailShare {
            rail,
            there: there?,
            memory: worker.register_tofu_rail(rail, (ptr, len), writes)?,
        })
    });
    shares.take(rails(len, most)).collect()
}

/// Number of rails that share `len` bytes, if no more than `most` TNIs do.
fn rails(len: usize, most: usize) -> usize {
    match len {
        SHARED.. => (len / MIN_PART).min(most).saturating_sub(1),
        _ => 0,
    }
}

/// Bytes of a part, in whole [`LINE`]s, if `rails` rails have shares and one operation moves no more than `longest`.
pub(super) fn part(len: usize, rails: usize, longest: usize) -> usize {
    match rails {
        0 => len.max(1),
        _ => len.div_ceil(rails + 1).next_multiple_of(LINE).min(longest),
    }
}

/// Which VCQ moves the bytes from `offset` on (0: the connection's own, else a rail's), and how many.
pub(super) fn next(offset: usize, len: usize, part: usize, rails: usize) -> (usize, usize) {
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
