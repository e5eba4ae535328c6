//! Disconnect of a CM connection. Each side sends that its endpoint is closed; a flushing close waits until the other
//! side has sent that, too.
//!
//! The other side answers when its error handler has returned, at once if it has none, or by the close of its own
//! endpoint. If its host or process fails, the close ends with an error.

use super::hello::recv;
use super::outcome::{CmOutcome, EndedClose};
use crate::ctypes::*;
use crate::engine::cm::{CmEntry, CmState, FlushClose, SessionState};
use crate::engine::completion;
use crate::engine::endpoint::{Endpoint, EndpointRef, EpFlags};
use crate::engine::peer::Peer;
use crate::engine::pointers::PeerRef;
use crate::engine::request::{Callback, Op, Request, TxState};
use crate::engine::request_alloc;
use crate::engine::worker::Worker;
use crate::proto::{failure, flush, tx};
use crate::tl::cm_conn::CmConn;
use crate::wire::cm_msg::{BYE, BYE_BEHIND, FORCED, FORCED_BEHIND};
use crate::wire::header::{EpImm, Kind};

/// Handles the peer's disconnect byte, or the loss of the connection.
pub(super) fn on_disconnect(x: &mut CmState, token: u64) -> CmOutcome {
    let Some(session) = x.session(token) else {
        return CmOutcome::Nothing;
    };
    let Some(contact) = session.contact.as_mut() else {
        return CmOutcome::Nothing;
    };
    let mut word = Vec::new();
    let disconnect_byte = match recv(contact, &mut word, 1) {
        Ok(false) => return CmOutcome::Nothing,
        Ok(true) => Some(word[0]),
        // The peer was killed: messages that have arrived by another connection are handled first.
        Err(_) => None,
    };
    if session.state == SessionState::FlushClose {
        let status = match disconnect_byte {
            Some(FORCED | FORCED_BEHIND) => UCS_ERR_CANCELED,
            Some(_) => UCS_OK,
            None => UCS_ERR_CONNECTION_RESET,
        };
        return on_answer(x, token, status).map_or(CmOutcome::Nothing, CmOutcome::Closed);
    }
    let (ep, contact) = (session.ep, session.contact.take());
    // Only the end of the connection can follow, which needs no handling.
    if let Some(contact) = &contact {
        contact.unwatch(&x.epoll, false);
    }
    if let Some(session) = x.session(token) {
        (session.state, session.contact) = match disconnect_byte {
            Some(_) => (SessionState::Left, contact),
            None => (SessionState::Ended, None),
        };
    }
    CmOutcome::Gone(ep, disconnect_byte)
}

/// Fails the endpoint, unless a message reports the close. `disconnect_byte`: the peer's disconnect byte, `None` if it
/// was killed.
pub(super) fn on_gone(worker: &Worker, ep: Option<EndpointRef>, disconnect_byte: Option<u8>) {
    let Some(ep) = ep.map(EndpointRef::get) else {
        return;
    };
    let peer = ep.peer();
    match disconnect_byte {
        Some(BYE_BEHIND | FORCED_BEHIND) => {}
        Some(BYE) => failure::end_session(worker, peer, ep),
        _ => failure::end_endpoint(worker, peer, ep, UCS_ERR_CONNECTION_RESET),
    }
    answer(worker, ep);
}

/// Answers the peer's disconnect, if it has arrived and the error handler of this endpoint has returned or there is
/// none.
pub fn answer(worker: &Worker, ep: &Endpoint) {
    if ep.session() == 0 || !ep.has(EpFlags::FAILED) || worker.err_handlers.lock().is_pending(ep) {
        return;
    }
    if let Some(x) = worker.cm.lock().as_deref_mut()
        && let Some(session) = x.session(ep.session())
        && session.state == SessionState::Left
    {
        session.state = SessionState::Ended;
        if let Some(mut contact) = session.contact.take() {
            // The peer may have disconnected without waiting for the answer.
            let _ = contact.send(&[BYE]);
        }
    }
}

/// Handles a forced close, or the close of a failed endpoint. `behind`: a message reports the close, too. Called after
/// the endpoint was removed from its peer's list.
pub fn close_idle(worker: &Worker, ep: &Endpoint, behind: bool, force: bool) {
    if ep.session() != 0
        && let Some(x) = worker.cm.lock().as_deref_mut()
    {
        // The peer may wait for the close of a failed endpoint: its own close can have been reported by a message
        // before the byte on the connection. This is the answer.
        end(x, ep.session(), behind, force && !ep.has(EpFlags::FAILED));
    }
}

/// Handles an orderly close. `behind`: a message reports the close, too. Returns the status if the close is complete;
/// then the caller owns the request. Called after the endpoint was removed from its peer's list, and before it is
/// freed.
///
/// # Safety
/// The request is new and complete in all fields; the peer is that of the endpoint.
pub unsafe fn close(
    worker: &Worker,
    ep: &Endpoint,
    peer: &Peer,
    behind: bool,
    req: *mut Request,
) -> Option<ucs_status_t> {
    let token = ep.session();
    {
        let mut guard = worker.cm.lock();
        let Some(session) = guard.as_deref_mut().and_then(|x| x.session(token)) else {
            return Some(UCS_OK);
        };
        session.ep = None;
        session.closing = Some(FlushClose {
            request: req,
            peer_uid: peer.uid,
            peer_pid: peer.inbox.map_or(0, |inbox| inbox.id.pid),
            flushed: false,
            answer: None,
        });
    }
    begin_disconnect(worker, token, behind);
    // SAFETY: the request is new. The peer exists at least as long as the endpoint.
    let flushed = unsafe {
        let child = request_alloc::take(worker, std::ptr::null_mut());
        (*child).peer = Some(PeerRef::new(peer));
        (*child).op = Op::CloseFlush { token };
        (*child).notify = Callback::Internal(flush_ended);
        let status = flush::start(child)?;
        request_alloc::recycle(child);
        status
    };
    on_flushed(worker, token, flushed).map(|(_, status)| status)
}

/// Sends that an endpoint is closed in order, if there is a connection. The answer is awaited.
fn begin_disconnect(worker: &Worker, token: u64, behind: bool) {
    let mut guard = worker.cm.lock();
    let Some(x) = guard.as_deref_mut() else {
        return;
    };
    let Some(session) = x.session(token) else {
        return;
    };
    let (Some(contact), SessionState::Open | SessionState::Left) =
        (session.contact.as_mut(), session.state)
    else {
        if session.state == SessionState::Ended
            && let Some(closing) = &mut session.closing
        {
            closing.answer = Some(UCS_OK);
        }
        return;
    };
    // The failure of the connection is noticed when the answer is read.
    let _ = contact.send(&[if behind { BYE_BEHIND } else { BYE }]);
    if session.state == SessionState::Open {
        session.state = SessionState::FlushClose;
        x.add_waiting();
        worker.progress_flags.raise(CmState::IFACE);
        return;
    }
    session.state = SessionState::Ended;
    session.contact = None;
    if let Some(closing) = &mut session.closing {
        closing.answer = Some(UCS_OK);
    }
}

/// Handles the end of the flush that a close has started.
///
/// # Safety
/// The requirements of `Callback::Internal`; the request was made by [`close`].
unsafe fn flush_ended(child: *mut Request, status: ucs_status_t) {
    // SAFETY: a request of this module, whose worker exists; the request of the close was removed from its session.
    unsafe {
        let worker = (*child).worker.get();
        let Op::CloseFlush { token } = (*child).op else {
            return request_alloc::recycle(child);
        };
        request_alloc::recycle(child);
        if let Some((req, status)) = on_flushed(worker, token, status) {
            completion::complete(req, status);
        }
    }
}

/// Handles the flush of what was sent before a close, or its failure.
fn on_flushed(worker: &Worker, token: u64, status: ucs_status_t) -> Option<EndedClose> {
    let mut guard = worker.cm.lock();
    let x = guard.as_deref_mut()?;
    let closing = x.session(token)?.closing.as_mut()?;
    closing.flushed = true;
    match closing.answer {
        _ if status != UCS_OK => end_session_close(x, token, status),
        Some(status) => end_session_close(x, token, status),
        None => None,
    }
}

/// Handles the peer's answer to a close, or the loss of the connection.
fn on_answer(x: &mut CmState, token: u64, status: ucs_status_t) -> Option<EndedClose> {
    let closing = x.session(token)?.closing.as_mut()?;
    if status != UCS_OK || closing.flushed {
        return end_session_close(x, token, status);
    }
    closing.answer = Some(status);
    let session = x.session(token)?;
    session.state = SessionState::Ended;
    let contact = session.contact.take();
    x.end_waiting();
    if let Some(contact) = contact {
        contact.unwatch(&x.epoll, false);
    }
    None
}

/// Ends a session together with the close that waits for it.
fn end_session_close(x: &mut CmState, token: u64, status: ucs_status_t) -> Option<EndedClose> {
    let request = x.session(token)?.closing.take()?.request;
    end(x, token, false, false);
    Some((request, status))
}

/// Completes the close of a client's endpoint whose connection has failed, if the user has closed it.
pub(super) fn on_lost(worker: &Worker, token: u64, status: ucs_status_t) {
    let mut guard = worker.cm.lock();
    let lost = (guard.as_deref_mut()).and_then(|x| end_session_close(x, token, status));
    drop(guard);
    if let Some((req, status)) = lost {
        // SAFETY: the request was removed from its session: this thread owns it.
        unsafe { completion::complete(req, status) };
    }
}

/// Cancels the closes that wait for their peers, when the worker is destroyed.
pub fn end_all(worker: &Worker) {
    let mut guard = worker.cm.lock();
    let Some(x) = guard.as_deref_mut() else {
        return;
    };
    let waits = |entry: &CmEntry| matches!(entry, CmEntry::CmSession(s) if s.closing.is_some());
    let waiting: Vec<u64> = (x.entries.iter())
        .filter(|(_, entry)| waits(entry))
        .map(|(&token, _)| token)
        .collect();
    let closes: Vec<_> = (waiting.into_iter())
        .filter_map(|token| end_session_close(x, token, UCS_ERR_CANCELED))
        .collect();
    drop(guard);
    for (req, status) in closes {
        // SAFETY: the request was removed from its session: this thread owns it.
        unsafe { completion::complete(req, status) };
    }
}

/// Ends a session whose endpoint is closed.
fn end(x: &mut CmState, token: u64, behind: bool, force: bool) {
    let Some(CmEntry::CmSession(session)) = x.entries.remove(&token) else {
        return;
    };
    if matches!(
        session.state,
        SessionState::Connecting | SessionState::Asked | SessionState::FlushClose
    ) {
        x.end_waiting();
    }
    if let Some(mut contact) = session.contact {
        if session.state != SessionState::Left {
            contact.unwatch(&x.epoll, session.state == SessionState::Connecting);
        }
        if matches!(session.state, SessionState::Open | SessionState::Left) {
            let word = disconnect_byte(
                &mut contact,
                behind,
                force && session.state == SessionState::Open,
            );
            // A peer that has disconnected does not receive it.
            let _ = contact.send(&[word]);
        }
    }
    if let Some(stub) = session.stub {
        x.retire(token, stub);
    }
}

/// The disconnect byte of a side that does not wait for an answer. A forced close after the peer's disconnect answers
/// that one.
fn disconnect_byte(contact: &mut CmConn, behind: bool, force: bool) -> u8 {
    let alone = force && !matches!(recv(contact, &mut Vec::new(), 1), Ok(true));
    match (alone, behind) {
        (true, true) => FORCED_BEHIND,
        (true, false) => FORCED,
        (false, true) => BYE_BEHIND,
        (false, false) => BYE,
    }
}

/// Disconnects a client's endpoint that was closed before its server was known: messages that it had sent precede that.
pub(super) fn send_closed(worker: &Worker, token: u64, peer: &Peer, sn: u32) {
    let behind = peer.status() == UCS_OK && {
        // SAFETY: queued requests are not freed, and stay in the queue as long as its lock is held.
        let is_message = |&req: &*mut Request| unsafe { (*req).sent } != TxState::FlushMarker;
        let tx = peer.tx.lock();
        tx.lane.is_some() || tx.pending.iter().any(is_message)
    };
    if behind {
        let imm = EpImm { sn, err_mode: 0 };
        tx::control(peer, Kind::EpClosed, 0, imm.to_u64(), &[]);
    }
    begin_disconnect(worker, token, behind);
}
