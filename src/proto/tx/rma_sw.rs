//! Remote accesses that wait in a peer's queue: the kernel copies several of them in one call, or the peer executes
//! them.
//!
//! A call of `process_vm_*` for 8 bytes takes 1.6 us on the machine of docs/PERFORMANCE.md, one for 64 pieces of as
//! many requests 24 us: 0.4 us each. So the first access since the last progress call is copied at once, and those
//! behind it wait for the next: whoever waits for them calls it.

use super::{assign_id, set_message};
use crate::ctypes::*;
use crate::engine::peer::{Peer, PeerTx};
use crate::engine::request::{Request, TxState};
use crate::proto::cma::{self, CmaDirection};
use crate::sys::cma::{IoSpan, MAX_SPANS, Spans};
use crate::wire::header::{GetHdr, Kind, UNNAMED};
use crate::wire::stats::StatProtocol;

/// Longer accesses do not wait for others, bytes: the call is the smaller part of them.
pub const GATHERED: usize = 8 << 10;

/// Requests of a worker that may wait for others, so that who never waits for them does not fill his memory.
pub const MOST: usize = 1024;

/// Makes a request, whose data and peer are set, an access that the peer executes.
pub fn set_am(r: &mut Request, direction: CmaDirection, addr: u64) {
    if direction == CmaDirection::Write {
        (r.sent, r.stream) = (TxState::Complete, true);
        return set_message(r, Kind::PutReq, 0, addr, &[]);
    }
    r.info.length = r.data.len();
    (r.sent, r.bare) = (TxState::Await, true);
    let head = GetHdr {
        req: UNNAMED,
        len: r.data.len() as u64,
        offset: 0,
    };
    set_message(r, Kind::GetReq, 0, addr, &head.encode());
}

/// Makes a request, whose data (one piece) and peer are set, an access that the kernel executes when its turn comes.
pub fn set_cma(r: &mut Request, direction: CmaDirection, addr: u64) {
    (r.sent, r.imm) = (TxState::Copy, addr);
    r.stream = direction == CmaDirection::Write;
    r.info.length = r.data.len();
}

fn direction(r: &Request) -> CmaDirection {
    match r.stream {
        true => CmaDirection::Write,
        false => CmaDirection::Read,
    }
}

/// Copies for the first requests of a queue that want the same direction, takes them out into `ended` and leaves in
/// each what it ended with: how many. For those for which the kernel does not let us the peer is asked, in their
/// places.
///
/// # Errors
/// `UCS_ERR_CONNECTION_RESET` if the peer is gone; those that were taken out say so.
pub fn copy_some(
    peer: &Peer,
    tx: &mut PeerTx,
    ended: &mut [*mut Request; MAX_SPANS],
) -> (usize, Result<(), ucs_status_t>) {
    let (mut local, mut remote) = (Spans::new(), Spans::new());
    let mut way = None;
    let mut n = 0;
    for &req in tx.pending.iter().take(MAX_SPANS) {
        // SAFETY: queued requests live.
        let r = unsafe { &mut *req };
        if r.sent != TxState::Copy || *way.get_or_insert(direction(r)) != direction(r) {
            break;
        }
        // As many pieces as requests at most: there is room.
        let (here, there) = pieces(r);
        local.extend(here);
        remote.extend(there);
        ended[n] = req;
        n += 1;
    }
    let Some(way) = way else { return (0, Ok(())) };
    let total = local.bytes();
    // SAFETY: the users' memory until their requests end.
    let copied = unsafe { cma::transfer(peer, way, &mut local, &mut remote) };
    let moved = total - local.bytes();
    let mut end = 0;
    let mut all = Ok(());
    for &req in &ended[..n] {
        // SAFETY: as above.
        let r = unsafe { &mut *req };
        end += r.data.len();
        r.status = match copied {
            Ok(()) => UCS_OK,
            Err(_) if end <= moved => UCS_OK,
            Err(UCS_ERR_UNSUPPORTED) => {
                set_am(r, way, r.imm);
                if r.sent == TxState::Await {
                    // SAFETY: complete, and never named.
                    unsafe { assign_id(req) };
                }
                continue;
            }
            Err(UCS_ERR_CONNECTION_RESET) => UCS_ERR_CONNECTION_RESET,
            // One of them has no memory there: the others have.
            Err(_) => copy_one(peer, way, r),
        };
        match r.status {
            UCS_OK => peer.stats().of(StatProtocol::RmaCopy).add(r.data.len()),
            UCS_ERR_CONNECTION_RESET => all = Err(r.status),
            _ => {}
        }
    }
    if copied == Err(UCS_ERR_UNSUPPORTED) {
        // Those whose memory was moved before the right was lost.
        // SAFETY: as above.
        n = (ended[..n]
            .iter()
            .take_while(|&&req| unsafe { (*req).sent } == TxState::Copy))
        .count();
    }
    tx.pending.drain(..n);
    (n, all)
}

/// A request's memory here and there.
fn pieces(r: &Request) -> (IoSpan, IoSpan) {
    let len = r.data.len();
    let here = r.data.as_contig().map_or(0, |data| data as u64);
    (IoSpan { addr: here, len }, IoSpan { addr: r.imm, len })
}

fn copy_one(peer: &Peer, way: CmaDirection, r: &Request) -> ucs_status_t {
    let (here, there) = pieces(r);
    let (mut here, mut there) = (
        Spans::one(here.addr, here.len),
        Spans::one(there.addr, there.len),
    );
    // SAFETY: the user's memory until the request ends.
    let copied = unsafe { cma::transfer(peer, way, &mut here, &mut there) };
    copied.err().unwrap_or(UCS_OK)
}
