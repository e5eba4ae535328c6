//! Long transfers that are spread over the connection and its rails, in pieces.
//!
//! Pieces by different queue pairs come in any order. So whoever has to come behind such a transfer waits for all of
//! it: a message that says it is there (`lent::end`), and, of puts and gets, what is behind a fence, which has its turn
//! in the queue then ([`is_to_wait`]).

use super::enqueue_first;
use crate::engine::ib_worker::RailEvent;
use crate::engine::peer::{Peer, PeerTx};
use crate::engine::request::{Request, TxState, Zcopy, ZcopyRole, ZcopyState};
use crate::sys::clock;
use crate::tl::Lane;
use crate::tl::ib::rc::ZcopyDesc;
use crate::tl::ib::sender::IbSender;

/// From this length on a transfer is shared out to rails, bytes: below that one port is as fast as two that have to be
/// waited for.
const SHARED: usize = 256 << 10;

/// Ports that share such a transfer, at most.
fn most(peer: &Peer, role: ZcopyRole) -> usize {
    // SAFETY: peers do not outlive their worker.
    let ctx = unsafe { &*peer.worker }.ctx;
    let policy = ctx.policy.ib.as_ref().filter(|_| ctx.ports.len() > 1);
    policy.map_or(1, |ib| match role {
        ZcopyRole::Access => ib.rma_rails,
        ZcopyRole::Deliver => ib.rndv_rails,
        ZcopyRole::Fetch | ZcopyRole::Receive | ZcopyRole::Offer => 1,
    })
}

/// Whether the connection alone moves a transfer, as long as it has a queue pair.
pub fn one_suffices(peer: &Peer, role: ZcopyRole, len: usize, keys: &[u32]) -> bool {
    let theirs = keys.iter().filter(|&&key| key != 0).count();
    len < SHARED || theirs < 2 || most(peer, role) < 2
}

/// Decides whether a transfer that begins is spread, and has rails made for it and those behind it. False: it is, when
/// what is in front of it has ended.
pub fn begin(peer: &Peer, sender: &mut IbSender, t: &mut Zcopy, len: usize, keys: &[u32]) -> bool {
    let suffices = one_suffices(peer, t.role, len, keys);
    // Not in the middle: what the connection has got until then does not tell of its end.
    if t.on_rails || t.in_flight > 0 || len == 0 || suffices && sender.is_connected() {
        return true;
    }
    if !has_rails(peer, sender) {
        return true;
    }
    t.on_rails = t.role != ZcopyRole::Access || sender.is_behind_fence();
    t.on_rails
}

/// Whether there are rails now. They are asked for, if it is time for that.
fn has_rails(peer: &Peer, sender: &mut IbSender) -> bool {
    if sender.rails.are_due(clock::coarse_ms()) {
        // SAFETY: peers do not outlive their worker.
        unsafe { &*peer.worker }.raise_rails(peer, RailEvent::Ask);
    }
    sender.rails.any_open()
}

/// Shares out what is left of a transfer among the connection and its rails, as far as there is room; true if that was
/// all. `whole`: what it moves, with no key.
pub fn share_out(
    peer: &Peer,
    sender: &mut IbSender,
    t: &mut Zcopy,
    whole: ZcopyDesc,
    offset: &mut u64,
    keys: &[u32],
) -> bool {
    let most = most(peer, t.role).max(1);
    if !sender.is_connected() && !has_rails(peer, sender) {
        return false;
    }
    let all = loop {
        let (at, left) = match t.again.last() {
            Some(&piece) => piece,
            None if (*offset as usize) < whole.len => (*offset, whole.len - *offset as usize),
            None => break true,
        };
        let here = ZcopyDesc {
            ptr: whole.ptr.wrapping_add(at as usize),
            len: left,
            ..whole
        };
        let memory = t.memory.first();
        let n = sender.post_striped(here, t.there.wrapping_add(at), most, |near, far| {
            let theirs = keys.get(far).copied().filter(|&key| key != 0);
            memory?.region().local_key(near).zip(theirs)
        });
        if n == 0 {
            break false;
        }
        t.in_flight += 1;
        match t.again.pop() {
            Some((_, whole)) if n < whole => t.again.push((at + n as u64, whole - n)),
            Some(_) => {}
            None => *offset += n as u64,
        }
    };
    for rail in sender.rails.refused.drain(..) {
        // SAFETY: peers do not outlive their worker.
        unsafe { &*peer.worker }.raise_rails(peer, RailEvent::GiveUp(rail));
    }
    all
}

/// Whether a fence has to have its turn in the queue, because of rails, or of adapters whose reads are in no order with
/// writes: what is in front of it has not ended.
pub fn is_to_wait(peer: &Peer, tx: &PeerTx) -> bool {
    let is_busy = match &tx.lane {
        Some(Lane::Ib(sender)) => !tx.pending.is_empty() || !sender.is_drained(),
        Some(Lane::Tofu(_)) | None => !tx.pending.is_empty(),
        Some(_) => false,
    };
    let by_rails_alone = matches!(&tx.lane, Some(Lane::Ib(sender)) if !sender.is_connected() && sender.zcopy_capable());
    is_busy && (most(peer, ZcopyRole::Access) > 1 || by_rails_alone || peer.has_rings())
}

/// What a rail that was given up has not moved goes by the others, before anything else does. The requests that have
/// ended by that.
pub fn move_again(peer: &Peer, tx: &mut PeerTx, lost: &[ZcopyDesc]) -> Vec<*mut Request> {
    let mut ended = Vec::new();
    for piece in lost {
        let req = piece.owner.cast::<Request>();
        // SAFETY: what the device worked on lives, and the lock is held.
        let r = unsafe { &mut *req };
        let Some(data) = r.data.as_contig() else {
            continue;
        };
        let Some(t) = r.transfer_mut() else { continue };
        t.in_flight -= 1;
        match t.fate {
            ZcopyState::Going | ZcopyState::Posted => {
                t.again.push((piece.ptr as u64 - data as u64, piece.len));
                if t.fate == ZcopyState::Posted {
                    t.fate = ZcopyState::Going;
                    r.sent = TxState::Device;
                    // A fence may wait there until all of it has been moved.
                    // SAFETY: complete, and in no queue: all of it was posted.
                    unsafe { enqueue_first(peer, tx, req) };
                }
            }
            ZcopyState::Ends(_) if t.in_flight == 0 => ended.push(req),
            ZcopyState::Ends(_) | ZcopyState::Taken => {}
        }
    }
    ended
}
