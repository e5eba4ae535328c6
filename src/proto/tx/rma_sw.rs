//! RMA that waits in a peer's pending queue: by CMA, several requests in one system call, or by messages that the peer
//! executes.
//!
//! A `process_vm_*` call for 8 bytes takes 1.6 us on the machine of docs/PERFORMANCE.md, one for 64 requests 24 us: 0.4
//! us each. So the first access since the last progress call is copied at once, and those behind it wait for the next
//! call, which a program makes to complete them.

use super::{assign_id, set_message};
use crate::ctypes::*;
use crate::engine::peer::{Peer, PeerTx};
use crate::engine::request::{Op, Request, TxPayload, TxState};
use crate::sys::cma::{CmaDirection, IoSpan, MAX_SPANS, Spans};
use crate::wire::header::{GetHdr, Kind, UNNAMED};
use crate::wire::stats::StatProtocol;

/// Maximum length of accesses that wait for others, bytes: for longer ones the system call is the smaller part.
pub const BATCH_MAX: usize = 8 << 10;

/// Maximum number of requests of a worker that wait for others: bounds memory if the user never progresses.
pub const MOST: usize = 1024;

/// Makes a request, whose data and peer are set, RMA by message.
pub fn set_am(r: &mut Request, direction: CmaDirection, addr: u64) {
    if direction == CmaDirection::Write {
        (r.sent, r.payload) = (TxState::Complete, TxPayload::Fragments);
        return set_message(r, Kind::PutReq, 0, addr, &[]);
    }
    r.info.length = r.data.len();
    (r.sent, r.payload) = (TxState::AwaitReply, TxPayload::HeaderOnly);
    let head = GetHdr {
        req: UNNAMED,
        len: r.data.len() as u64,
        offset: 0,
    };
    set_message(r, Kind::GetReq, 0, addr, &head.encode());
}

/// Makes a request, whose data (contiguous) and peer are set, a queued CMA copy.
pub fn set_cma(r: &mut Request, direction: CmaDirection, addr: u64) {
    r.sent = TxState::Cma;
    r.op = Op::Cma {
        remote_addr: addr,
        direction,
    };
    r.info.length = r.data.len();
}

/// The remote address and the direction of a queued CMA copy.
fn queued_copy(r: &Request) -> Option<(u64, CmaDirection)> {
    match r.op {
        Op::Cma {
            remote_addr,
            direction,
        } => Some((remote_addr, direction)),
        _ => None,
    }
}

/// Copies for the first requests of a queue that have the same direction. Removes them, stores them in `ended` with
/// their status, and returns their number. Where CMA is not permitted they become messages, in their places in the
/// queue.
///
/// # Errors
/// `UCS_ERR_CONNECTION_RESET` if the peer is dead; it is also the status of the requests that were removed.
pub fn copy_some(
    peer: &Peer,
    tx: &mut PeerTx,
    ended: &mut [*mut Request; MAX_SPANS],
) -> (usize, Result<(), ucs_status_t>) {
    let (mut local, mut remote) = (Spans::new(), Spans::new());
    let mut dir = None;
    let mut n = 0;
    for &req in tx.pending.iter().take(MAX_SPANS) {
        // SAFETY: queued requests are not freed.
        let r = unsafe { &mut *req };
        let Some((addr, direction)) = queued_copy(r) else {
            break;
        };
        if *dir.get_or_insert(direction) != direction {
            break;
        }
        // There are at most as many pieces as requests: the lists have room.
        let (here, there) = pieces(r, addr);
        local.extend(here);
        remote.extend(there);
        ended[n] = req;
        n += 1;
    }
    let Some(dir) = dir else { return (0, Ok(())) };
    let total = local.bytes();
    // SAFETY: the user's memory is valid until its request completes.
    let copied = unsafe { peer.cma().transfer(dir, &mut local, &mut remote) };
    let moved = total - local.bytes();
    let mut end = 0;
    let mut all = Ok(());
    for &req in &ended[..n] {
        // SAFETY: queued requests are not freed.
        let r = unsafe { &mut *req };
        let Some((addr, _)) = queued_copy(r) else {
            break;
        };
        end += r.data.len();
        r.status = match copied {
            Ok(()) => UCS_OK,
            Err(_) if end <= moved => UCS_OK,
            Err(UCS_ERR_UNSUPPORTED) => {
                r.op = Op::Message;
                set_am(r, dir, addr);
                if r.sent == TxState::AwaitReply {
                    // SAFETY: the request is complete, and had no id before.
                    unsafe { assign_id(req) };
                }
                continue;
            }
            Err(UCS_ERR_CONNECTION_RESET) => UCS_ERR_CONNECTION_RESET,
            // One of them has an invalid remote address: the others are copied one by one.
            Err(_) => copy_one(peer, dir, r, addr),
        };
        match r.status {
            UCS_OK => peer.stats().of(StatProtocol::RmaCopy).add(r.data.len()),
            UCS_ERR_CONNECTION_RESET => all = Err(r.status),
            _ => {}
        }
    }
    if copied == Err(UCS_ERR_UNSUPPORTED) {
        // Removes those that were copied before the permission was lost.
        // SAFETY: queued requests are not freed.
        n = (ended[..n]
            .iter()
            .take_while(|&&req| unsafe { (*req).sent } == TxState::Cma))
        .count();
    }
    tx.pending.drain(..n);
    (n, all)
}

/// Local and remote memory of a request, which is at `addr` there.
fn pieces(r: &Request, addr: u64) -> (IoSpan, IoSpan) {
    let len = r.data.len();
    let here = r.data.as_contig().map_or(0, |data| data as u64);
    (IoSpan { addr: here, len }, IoSpan { addr, len })
}

fn copy_one(peer: &Peer, dir: CmaDirection, r: &Request, addr: u64) -> ucs_status_t {
    let (here, there) = pieces(r, addr);
    let (mut here, mut there) = (
        Spans::one(here.addr, here.len),
        Spans::one(there.addr, there.len),
    );
    // SAFETY: the user's memory is valid until its request completes.
    let copied = unsafe { peer.cma().transfer(dir, &mut here, &mut there) };
    copied.err().unwrap_or(UCS_OK)
}
