//! Long transfers, puts, gets and messages, over several network interfaces of the Tofu interconnect: the connection's
//! own queue moves a part, and each rail.
//!
//! What goes by different queues is in no order. So what a rail has written counts as a read does: a notice says that
//! it is there, a flush waits for that, and nothing goes behind a fence, and no signal behind its data, before it has
//! come.

use crate::engine::peer::Peer;
use crate::engine::request::RailShare;
use crate::engine::rkey::StaddRegion;
use crate::engine::worker::Worker;
use crate::tl::LaneTarget;
use crate::tl::tofu::{TofuTuning, mr};
use crate::wire::rts_keys::RailStadds;

/// From this length on a transfer is shared out, bytes: an interface moves so much in 10 us, several times what it
/// takes to post to others and to hear of them.
const SHARED: usize = 64 << 10;
/// A part is no shorter, bytes: an interface is at it for 2.4 us, about as long as its notice takes.
const LEAST_PART: usize = 16 << 10;
/// Parts are whole lines of the processor's cache, bytes.
const LINE: usize = 256;

/// The rails that share a put (it only reads the memory) or get of the user's with the connection, most of them none.
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

/// The rails by which a peer may read a message from our memory, where theirs find it: as many as it has itself.
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

/// The rails that share the reading of a message, which the sender's have there, into our memory.
pub fn of_message(
    worker: &Worker,
    memory: (*const u8, usize),
    there: &RailStadds,
) -> Vec<RailShare> {
    share(worker, memory, true, |t| t.rndv_rails, there.iter())
}

/// Of the rails that find the peer's memory `there`, which is in their order, those for which ours can be registered:
/// no more interfaces than `most` of the settings.
fn share(
    worker: &Worker,
    (ptr, len): (*const u8, usize),
    writes: bool,
    most: impl Fn(&TofuTuning) -> usize,
    there: impl Iterator<Item = Option<u64>>,
) -> Vec<RailShare> {
    let most = worker.tofu_iface.as_ref().map_or(1, |i| most(&i.tuning));
    // Where one reaches less others move more.
    let shares = there.enumerate().filter_map(|(rail, there)| {
        Some(RailShare {
            rail,
            there: there?,
            memory: worker.register_tofu_rail(rail, (ptr, len), writes)?,
        })
    });
    shares.take(rails(len, most)).collect()
}

/// How many rails share so many bytes, if no more than `most` interfaces do.
fn rails(len: usize, most: usize) -> usize {
    match len {
        SHARED.. => (len / LEAST_PART).min(most).saturating_sub(1),
        _ => 0,
    }
}

/// Bytes of a part, if so many rails have shares and one operation moves no more than `longest`, whole [`LINE`]s.
pub(super) fn part(len: usize, rails: usize, longest: usize) -> usize {
    match rails {
        0 => len.max(1),
        _ => len.div_ceil(rails + 1).next_multiple_of(LINE).min(longest),
    }
}

/// Whose the bytes from `offset` on are, and how many: 0 the connection's own, else a rail's.
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
