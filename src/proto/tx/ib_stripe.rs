//! Striping of long transfers over the connection's queue pair and its rails.
//!
//! Parts on different queue pairs complete in any order. Operations that must follow such a transfer wait for all of
//! it: the message that reports its end (`zcopy::end`), and RMA behind a fence, which is queued then ([`is_to_wait`]).

use super::enqueue_first;
use crate::engine::peer::{Peer, PeerTx};
use crate::engine::request::{Request, TxState, Zcopy, ZcopyPart, ZcopyRole, ZcopyState};
use crate::sys::clock;
use crate::tl::Lane;
use crate::tl::ib::rc::ZcopyDesc;
use crate::tl::ib::sender::IbSender;
use crate::tl::rail_event::RailEvent;
use crate::tl::sink::LostPart;

/// Transfers of at least this length are striped, bytes: below that one port is as fast as two that have to be waited
/// for.
const SHARED: usize = 256 << 10;

/// Maximum number of ports that share a transfer.
fn most(peer: &Peer, role: ZcopyRole) -> usize {
    let ctx = peer.worker().ctx;
    let policy = ctx
        .tl
        .ib
        .policy
        .as_ref()
        .filter(|_| ctx.tl.ib.ports.len() > 1);
    policy.map_or(1, |ib| match role {
        ZcopyRole::Access => ib.rma_rails,
        ZcopyRole::Deliver => ib.rndv_rails,
        ZcopyRole::Fetch | ZcopyRole::Receive | ZcopyRole::Offer => 1,
    })
}

/// Whether the connection's queue pair alone moves a transfer, if there is one.
pub fn one_suffices(peer: &Peer, role: ZcopyRole, len: usize, keys: &[u32]) -> bool {
    let theirs = keys.iter().filter(|&&key| key != 0).count();
    len < SHARED || theirs < 2 || most(peer, role) < 2
}

/// Decides whether a new transfer is striped, and requests rails for it and later ones. False: it will be striped, when
/// the transfers before it are complete.
pub fn begin(peer: &Peer, sender: &mut IbSender, t: &mut Zcopy, len: usize, keys: &[u32]) -> bool {
    let suffices = one_suffices(peer, t.role, len, keys);
    // Not in the middle of a transfer: the parts posted before report no completion.
    if t.on_rails || t.in_flight > 0 || len == 0 || suffices && sender.is_connected() {
        return true;
    }
    if !has_rails(peer, sender) {
        return true;
    }
    t.on_rails = t.role != ZcopyRole::Access || sender.is_behind_fence();
    t.on_rails
}

/// Whether there are rails. Requests them, if that is due.
fn has_rails(peer: &Peer, sender: &mut IbSender) -> bool {
    if sender.rails.are_due(clock::coarse_ms()) {
        peer.worker().raise_rails(peer, RailEvent::RequestRails);
    }
    sender.rails.any_open()
}

/// Posts what is left of a transfer on the connection and its rails, as far as there is room; true if that was all.
/// `whole`: local memory of the transfer, without a key.
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
        let part = match t.again.last() {
            Some(&part) => part,
            None if (*offset as usize) < whole.len => ZcopyPart {
                offset: *offset,
                len: whole.len - *offset as usize,
            },
            None => break true,
        };
        let here = ZcopyDesc {
            ptr: whole.ptr.wrapping_add(part.offset as usize),
            len: part.len,
            ..whole
        };
        let memory = t.memory.first();
        let n = sender.post_striped(
            here,
            t.there.wrapping_add(part.offset),
            most,
            |near, far| {
                let theirs = keys.get(far).copied().filter(|&key| key != 0);
                memory?.region().local_key(near).zip(theirs)
            },
        );
        if n == 0 {
            break false;
        }
        t.in_flight += 1;
        match t.again.pop() {
            Some(part) if n < part.len => t.again.push(ZcopyPart {
                offset: part.offset + n as u64,
                len: part.len - n,
            }),
            Some(_) => {}
            None => *offset += n as u64,
        }
    };
    for rail in sender.rails.refused.drain(..) {
        peer.worker()
            .raise_rails(peer, RailEvent::LocalFailure(rail));
    }
    all
}

/// Whether a fence has to be queued, because of rails, or of TNIs, whose reads are not ordered with writes: operations
/// before it are not complete.
pub fn is_to_wait(peer: &Peer, tx: &PeerTx) -> bool {
    let is_busy = match &tx.lane {
        Some(Lane::Ib(sender)) => !tx.pending.is_empty() || !sender.is_drained(),
        Some(Lane::Tofu(_)) | None => !tx.pending.is_empty(),
        Some(_) => false,
    };
    let by_rails_alone = matches!(&tx.lane, Some(Lane::Ib(sender)) if !sender.is_connected() && sender.zcopy_capable());
    is_busy && (most(peer, ZcopyRole::Access) > 1 || by_rails_alone || peer.has_rings())
}

/// Queues the parts of a rail that was given up for the other rails, before all pending requests. Returns the requests
/// that are complete without them.
pub fn move_again(peer: &Peer, tx: &mut PeerTx, lost: &[LostPart]) -> Vec<*mut Request> {
    let mut ended = Vec::new();
    for piece in lost {
        let req = Request::by_token(piece.token);
        // SAFETY: requests of outstanding work requests are not freed, and the lock is held.
        let r = unsafe { &mut *req };
        let Some(data) = r.data.as_contig() else {
            continue;
        };
        let Some(t) = r.transfer_mut() else { continue };
        t.in_flight -= 1;
        match t.fate {
            ZcopyState::Going | ZcopyState::Posted => {
                t.again.push(ZcopyPart {
                    offset: piece.addr - data as u64,
                    len: piece.len,
                });
                if t.fate == ZcopyState::Posted {
                    t.fate = ZcopyState::Going;
                    r.sent = TxState::Rma;
                    // A fence may be queued that waits for all of the transfer.
                    // SAFETY: the request is complete in all fields, and in no queue: all of it was posted.
                    unsafe { enqueue_first(peer, tx, req) };
                }
            }
            ZcopyState::Ends(_) if t.in_flight == 0 => ended.push(req),
            ZcopyState::Ends(_) | ZcopyState::Taken => {}
        }
    }
    ended
}
