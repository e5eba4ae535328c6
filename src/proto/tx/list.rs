//! Lists of pieces that an adapter puts or gets: one request for all pieces, posted as there is room.

use super::{assign_id, on_enqueued, rma_sw};
use crate::engine::datatype::Data;
use crate::engine::peer::{Peer, PeerTx};
use crate::engine::piece_list::PieceList;
use crate::engine::request::{self, Extra, Op, Request, RmaList, TxState};
use crate::engine::request_alloc;
use crate::sys::cma::CmaDirection;
use crate::tl::Lane;
use crate::wire::stats::StatProtocol;

/// Makes a request, whose peer is set, a list of puts or gets by an adapter.
pub fn set_list(r: &mut Request, direction: CmaDirection, pieces: PieceList) {
    r.sent = TxState::Rma;
    r.op = Op::RmaList(RmaList::new(direction));
    r.extra = Some(Box::new(Extra::List(pieces)));
}

/// Posts as many pieces as there is room for. True: all of them; `None`: the lane cannot execute them.
///
/// # Safety
/// The request lives, and the user keeps the pieces until it completes.
#[inline(never)]
pub(super) unsafe fn advance(peer: &Peer, lane: &mut Lane, req: *mut Request) -> Option<bool> {
    // SAFETY: the caller's request is valid, and no other thread uses it.
    let r = unsafe { &mut *req };
    let (Op::RmaList(list), Some(Extra::List(pieces))) = (&mut r.op, r.extra.as_deref_mut()) else {
        return None;
    };
    let writes = list.direction == CmaDirection::Write;
    let is_new = (writes, Request::token(req));
    // SAFETY: the user keeps the pieces.
    let all = pieces.post(is_new, &mut list.outstanding, |part| unsafe {
        lane.rma_pieces(part)
    })?;
    if all {
        let (count, bytes) = (pieces.count() as u64, pieces.bytes() as u64);
        peer.stats()
            .of(StatProtocol::RmaCopy)
            .add_many(count, bytes);
        all_posted(r);
    }
    Some(all)
}

/// Called when an adapter will be given no more pieces of a list.
fn all_posted(r: &mut Request) {
    let Op::RmaList(list) = &mut r.op else { return };
    list.is_posted = true;
    // The lane reports the end of gets: that of a put is the end of the post.
    r.sent = if list.outstanding > 0 {
        TxState::AwaitReply
    } else {
        TxState::Complete
    };
}

/// Makes the pieces that are left requests of their own, by message, because the lane has no adapter: they take the
/// place of the list, which is the first pending request. False: it is not pending yet, and will be.
///
/// # Safety
/// The request is a list, one of the children of a parent, and the peer's lock is held.
#[cold]
#[inline(never)]
pub(super) unsafe fn give_up(peer: &Peer, tx: &mut PeerTx, req: *mut Request) -> bool {
    if tx.pending.front() != Some(&req) {
        return false;
    }
    // SAFETY: the caller's request is valid, and no other thread uses it. Its parent lives until it is counted.
    unsafe {
        let r = &mut *req;
        let parent: *mut Request = r.user_data.cast();
        let (Op::RmaList(list), Some(Extra::List(pieces)), Some(children)) =
            (&r.op, r.extra.as_deref(), request::children_of(parent))
        else {
            return false;
        };
        let (direction, notify, ep) = (list.direction, r.notify, r.ep);
        // The last one first: each is inserted directly behind the list.
        for piece in pieces.left().rev() {
            let child = request_alloc::take(peer.worker(), std::ptr::null_mut());
            let c = &mut *child;
            c.data = Data::Contig {
                ptr: piece.here,
                len: piece.len,
            };
            (c.peer, c.ep, c.notify, c.user_data) = (r.peer, ep, notify, r.user_data);
            rma_sw::set_am(c, direction, piece.there);
            children.expect_one_more();
            if c.sent == TxState::AwaitReply {
                assign_id(child);
            }
            tx.pending.insert(1, child);
            on_enqueued(peer, tx, false);
        }
        all_posted(&mut *req);
    }
    true
}
