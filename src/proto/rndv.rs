//! Rendezvous: the receiver copies from the sender's memory, or asks for the data in parts.
//!
//! RTS names the sender's request, the length and, where the memory is one piece, its address.
//! The receiver copies with `process_vm_readv` and answers ATS, or it answers RTR and gets DATA
//! through the ring. A sender that learns of the end by ATS completes with the receiver's status.

use super::tx::{self, Posted};
use crate::ctypes::*;
use crate::engine::datatype::Data;
use crate::engine::offer::Offer;
use crate::engine::peer::{CMA_NO, CMA_YES, Peer};
use crate::engine::request::{self, Request, Sent};
use crate::engine::worker::Worker;
use crate::sys::cma::{self, Span};
use crate::sys::log;
use crate::wire::header::{DataHdr, Kind, RtrHdr, RtsHdr};
use crate::wire::stats::Protocol;
use std::sync::atomic::Ordering;

/// Bytes that one progress call copies at most, so that other messages are not held up.
const PULL_STEP: usize = 512 << 10;
/// Bytes of the buffer between a peer's memory and one that is not one piece.
const BOUNCE: usize = 64 << 10;

/// Makes a send request wait for the receiver: gives it a name and the RTS that carries it.
///
/// # Safety
/// The request is new.
pub unsafe fn prepare(worker: &Worker, req: *mut Request, kind: Kind, imm: u64) {
    // SAFETY: the caller's new request.
    let r = unsafe { &mut *req };
    r.id = worker.ids.lock().insert(req);
    let head = RtsHdr {
        req: r.id,
        len: r.data.len() as u64,
        addr: tx::readable_at(&r.data),
    };
    (r.sent, r.bare) = (Sent::Await, true);
    tx::set_message(r, kind, 0, imm, &head.encode());
}

/// Starts to receive into `req`, whose data is the target. `Some(status)` if it has ended already;
/// the request is then the caller's.
///
/// # Safety
/// The request is new or taken out of the matcher.
pub unsafe fn receive(
    worker: &Worker,
    req: *mut Request,
    peer: &Peer,
    offer: Offer,
) -> Option<ucs_status_t> {
    // SAFETY: the caller's request.
    let r = unsafe { &mut *req };
    r.info.length = offer.len;
    r.peer = peer;
    (r.remote, r.remote_id, r.offset) = (offer.addr, offer.req, 0);
    if offer.len > r.data.len() {
        acknowledge(peer, offer.req, UCS_OK);
        return Some(UCS_ERR_MESSAGE_TRUNCATED);
    }
    if peer.status() != UCS_OK {
        return Some(peer.status());
    }
    if offer.len == 0 {
        acknowledge(peer, offer.req, UCS_OK);
        return Some(UCS_OK);
    }
    if offer.addr == 0 || !peer.cma_usable() {
        ask(worker, req, peer);
        return None;
    }
    // SAFETY: the request is ours.
    match unsafe { pull(worker, req) } {
        Pull::Ended(status) => Some(status),
        Pull::Asked => None,
        Pull::More => {
            worker.pulls.lock().push_back(req);
            // Release: pairs with the Acquire swap in `fast::chores`.
            worker.chores.store(true, Ordering::Release);
            None
        }
    }
}

/// What became of a receive after a piece.
enum Pull {
    /// The request is the caller's.
    Ended(ucs_status_t),
    /// The request is the caller's, and has more to copy.
    More,
    /// It went over to messages, which may have ended it by now.
    Asked,
}

/// Copies the next piece.
unsafe fn pull(worker: &Worker, req: *mut Request) -> Pull {
    // SAFETY: the caller's request; peers live as long as the worker.
    let (r, peer) = unsafe { (&mut *req, &*(*req).peer) };
    let (offset, len) = (r.offset as usize, r.info.length);
    let n = PULL_STEP.min(len - offset);
    // SAFETY: the range is inside the target by the check in `receive`.
    match unsafe { copy_from(peer, r.remote + r.offset, &r.data, offset, n) } {
        Ok(()) => {
            r.offset += n as u64;
            if (r.offset as usize) < len {
                return Pull::More;
            }
            acknowledge(peer, r.remote_id, UCS_OK);
            Pull::Ended(UCS_OK)
        }
        Err(Fault::Access(UCS_ERR_UNSUPPORTED)) => {
            ask(worker, req, peer);
            Pull::Asked
        }
        Err(Fault::Access(status)) => {
            acknowledge(peer, r.remote_id, status);
            Pull::Ended(status)
        }
        // What the receiver's own functions refuse is no business of the sender's.
        Err(Fault::Unpack(status)) => {
            acknowledge(peer, r.remote_id, UCS_OK);
            Pull::Ended(status)
        }
    }
}

/// Why a copy failed.
enum Fault {
    /// The peer's memory cannot be read.
    Access(ucs_status_t),
    /// The user's `unpack` says so.
    Unpack(ucs_status_t),
}

/// Copies `n` bytes at `addr` of the peer to `offset` of the target.
unsafe fn copy_from(
    peer: &Peer,
    addr: u64,
    data: &Data,
    offset: usize,
    n: usize,
) -> Result<(), Fault> {
    if peer.same_process {
        // SAFETY: the sender's request keeps its memory until we acknowledge.
        return unsafe { data.unpack(offset, addr as *const u8, n) }.map_err(Fault::Unpack);
    }
    if let Some(ptr) = data.as_contig() {
        // SAFETY: inside the target.
        return unsafe { read_all(peer, ptr.add(offset), addr, n) }.map_err(Fault::Access);
    }
    let mut bounce = vec![0u8; BOUNCE.min(n)];
    let mut done = 0;
    while done < n {
        let part = bounce.len().min(n - done);
        // SAFETY: the buffer has room; the range is inside the target.
        unsafe {
            read_all(peer, bounce.as_mut_ptr(), addr + done as u64, part).map_err(Fault::Access)?;
            data.unpack(offset + done, bounce.as_ptr(), part)
                .map_err(Fault::Unpack)?;
        }
        done += part;
    }
    Ok(())
}

/// Copies from the peer's memory with the kernel's help. `UCS_ERR_UNSUPPORTED`: not allowed here,
/// use messages.
///
/// # Errors
/// `UCS_ERR_CONNECTION_RESET` when the peer is gone, `UCS_ERR_IO_ERROR` for memory that it does not have.
///
/// # Safety
/// `n` bytes at `dst` are writable.
pub unsafe fn read_all(peer: &Peer, dst: *mut u8, addr: u64, n: usize) -> Result<(), ucs_status_t> {
    let Some(inbox) = peer.inbox else {
        return Err(UCS_ERR_UNSUPPORTED);
    };
    let mut done = 0;
    while done < n {
        let local = Span {
            addr: dst as u64 + done as u64,
            len: n - done,
        };
        let remote = Span {
            addr: addr.wrapping_add(done as u64),
            len: n - done,
        };
        // SAFETY: inside the caller's range.
        match unsafe { cma::read(inbox.id.pid, local, remote) } {
            Ok(0) => return Err(UCS_ERR_IO_ERROR),
            Ok(got) => done += got,
            Err(e) => return Err(cma_error(peer, &e)),
        }
    }
    peer.cma.store(CMA_YES, Ordering::Relaxed);
    Ok(())
}

/// Copies to the peer's memory. As [`read_all`].
///
/// # Errors
/// As there.
///
/// # Safety
/// `n` bytes at `src` are readable.
pub unsafe fn write_all(
    peer: &Peer,
    src: *const u8,
    addr: u64,
    n: usize,
) -> Result<(), ucs_status_t> {
    let Some(inbox) = peer.inbox else {
        return Err(UCS_ERR_UNSUPPORTED);
    };
    let mut done = 0;
    while done < n {
        let local = Span {
            addr: src as u64 + done as u64,
            len: n - done,
        };
        let remote = Span {
            addr: addr.wrapping_add(done as u64),
            len: n - done,
        };
        // SAFETY: inside the caller's range.
        match unsafe { cma::write(inbox.id.pid, local, remote) } {
            Ok(0) => return Err(UCS_ERR_IO_ERROR),
            Ok(put) => done += put,
            Err(e) => return Err(cma_error(peer, &e)),
        }
    }
    peer.cma.store(CMA_YES, Ordering::Relaxed);
    Ok(())
}

fn cma_error(peer: &Peer, e: &std::io::Error) -> ucs_status_t {
    match e.raw_os_error() {
        Some(libc::EPERM | libc::ENOSYS | libc::EACCES) => {
            peer.cma.store(CMA_NO, Ordering::Relaxed);
            log::debug!(
                "no right to copy from and to the memory of peer {:#x}: using messages",
                peer.uid
            );
            UCS_ERR_UNSUPPORTED
        }
        Some(libc::ESRCH) => UCS_ERR_CONNECTION_RESET,
        _ => UCS_ERR_IO_ERROR,
    }
}

/// Asks the sender for the data in messages.
fn ask(worker: &Worker, req: *mut Request, peer: &Peer) {
    // SAFETY: the caller's request.
    let r = unsafe { &mut *req };
    r.offset = 0;
    r.id = worker.ids.lock().insert(req);
    tx::control(
        peer,
        Kind::Rtr,
        0,
        r.remote_id,
        &RtrHdr { recv: r.id }.encode(),
    );
}

/// Tells the sender how a rendezvous ended.
pub fn acknowledge(peer: &Peer, req: u64, status: ucs_status_t) {
    tx::control(peer, Kind::Ats, status as i8 as u8, req, &[]);
}

/// Moves every receive that copies on by a piece. Returns whether any is left.
pub fn progress_pulls(worker: &Worker) -> bool {
    let batch = worker.pulls.lock().len();
    for _ in 0..batch {
        let Some(req) = worker.pulls.lock().pop_front() else {
            break;
        };
        // SAFETY: out of the list: ours.
        match unsafe { pull(worker, req) } {
            // SAFETY: in no list.
            Pull::Ended(status) => unsafe { request::complete(req, status) },
            Pull::More => worker.pulls.lock().push_back(req),
            Pull::Asked => {}
        }
    }
    !worker.pulls.lock().is_empty()
}

/// The request that a peer names, if it is that peer's business.
fn named(worker: &Worker, peer: &Peer, id: u64) -> Option<*mut Request> {
    // SAFETY: requests in the table live.
    worker
        .ids
        .lock()
        .get(id)
        .filter(|&req| std::ptr::eq(unsafe { (*req).peer }, peer))
}

/// Takes the request that a peer names out of the table. A peer cannot know the name of one that
/// still waits to be sent: it guessed.
pub fn take_named(worker: &Worker, peer: &Peer, id: u64) -> Option<*mut Request> {
    let req = named(worker, peer, id)?;
    if peer.tx.lock().pending.contains(&req) {
        return None;
    }
    worker.ids.lock().remove(id)?;
    // SAFETY: it lived in the table.
    unsafe { (*req).id = 0 };
    Some(req)
}

/// ATS or the answer to a synchronous send: the receiver has what it wants.
pub fn on_ats(worker: &Worker, peer: &Peer, id: u64, status: ucs_status_t) {
    if let Some(req) = take_named(worker, peer, id) {
        // SAFETY: out of the table: ours. It has been sent: the peer knows its name.
        unsafe {
            let kind = Kind::from_u8((*req).kind);
            if matches!(kind, Some(Kind::TagRts | Kind::AmRts)) && status == UCS_OK {
                peer.stats().of(Protocol::RndvCopy).add((*req).data.len());
            }
            request::complete(req, status)
        };
    }
}

/// RTR: the receiver wants the data in messages.
pub fn on_rtr(worker: &Worker, peer: &Peer, id: u64, recv: u64) {
    let Some(req) = take_named(worker, peer, id) else {
        return;
    };
    // SAFETY: out of the table: ours.
    unsafe {
        let r = &mut *req;
        tx::set_message(r, Kind::Data, 0, recv, &[]);
        (r.stream, r.bare, r.offset, r.sent) = (true, false, 0, Sent::Complete);
        match tx::post(req) {
            Posted::Done => request::complete(req, UCS_OK),
            Posted::Failed(status) => request::complete(req, status),
            Posted::Queued => {}
        }
    }
}

/// DATA: a part of what was asked for.
///
/// # Safety
/// `n` bytes are readable at `bytes`.
pub unsafe fn on_data(
    worker: &Worker,
    peer: &Peer,
    id: u64,
    hdr: DataHdr,
    bytes: *const u8,
    n: usize,
) {
    let Some(req) = named(worker, peer, id) else {
        return;
    };
    // SAFETY: it lives in the table; progress is the only one that receives.
    let r = unsafe { &mut *req };
    let offset = hdr.offset as usize;
    if offset.checked_add(n).is_none_or(|end| end > r.info.length) {
        return log::error!("peer {:#x} sent data beyond the end of a message", peer.uid);
    }
    // SAFETY: the range is inside the target.
    let stored = unsafe { r.data.unpack(offset, bytes, n) };
    if let Err(status) = stored {
        r.status = status;
    }
    r.offset += n as u64;
    if r.offset as usize >= r.info.length {
        let status = if r.status == UCS_INPROGRESS {
            UCS_OK
        } else {
            r.status
        };
        if take_named(worker, peer, id).is_some() {
            // SAFETY: out of the table: ours.
            unsafe { request::complete(req, status) };
        }
    }
}
