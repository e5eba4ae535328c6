//! How a connection ends. Each end says that its endpoint is closed; a flushing close waits until the other end says
//! so.
//!
//! The other end answers when its error handler has returned, at once where there is none, or by the close of its own
//! endpoint. Its host or process may go instead, which ends the close with an error.

use super::CmOutcome;
use super::hello::recv;
use crate::ctypes::*;
use crate::engine::cm::{CmEntry, CmState, FlushClose, SessionState};
use crate::engine::endpoint::{Endpoint, FAILED};
use crate::engine::peer::Peer;
use crate::engine::request::{self, Callback, Request, TxState};
use crate::engine::worker::Worker;
use crate::proto::{failure, flush, tx};
use crate::tl::cm_conn::CmConn;
use crate::wire::cm_msg::{BYE, BYE_BEHIND, FORCED, FORCED_BEHIND};
use crate::wire::header::{EpImm, Kind};

/// A flushing close that has ended, and how.
pub(super) type EndedClose = (*mut Request, ucs_status_t);

/// The other end says that its endpoint is closed, or is not there any more.
pub(super) fn on_disconnect(x: &mut CmState, token: u64) -> CmOutcome {
    let Some(session) = x.session(token) else {
        return CmOutcome::Nothing;
    };
    let Some(contact) = session.contact.as_mut() else {
        return CmOutcome::Nothing;
    };
    let mut word = Vec::new();
    let said = match recv(contact, &mut word, 1) {
        Ok(false) => return CmOutcome::Nothing,
        Ok(true) => Some(word[0]),
        // Killed: if there is another connection to it, what came through that comes first.
        Err(_) => None,
    };
    if session.state == SessionState::FlushClose {
        let status = match said {
            Some(FORCED | FORCED_BEHIND) => UCS_ERR_CANCELED,
            Some(_) => UCS_OK,
            None => UCS_ERR_CONNECTION_RESET,
        };
        return on_answer(x, token, status).map_or(CmOutcome::Nothing, CmOutcome::Closed);
    }
    let (ep, contact) = (session.ep, session.contact.take());
    // Nothing else is to come but the end of the connection, which is of no interest.
    if let Some(contact) = &contact {
        contact.unwatch(&x.epoll, false);
    }
    if let Some(session) = x.session(token) {
        (session.state, session.contact) = match said {
            Some(_) => (SessionState::Left, contact),
            None => (SessionState::Ended, None),
        };
    }
    CmOutcome::Gone(ep, said)
}

/// The endpoint fails, unless a message brings the news. `said`: what the other end has said, if it was not killed.
pub(super) fn on_gone(worker: &Worker, ep: *mut Endpoint, said: Option<u8>) {
    // SAFETY: the endpoint lives as long as its session names it.
    let Some(ep) = (unsafe { ep.as_mut() }) else {
        return;
    };
    let peer = ep.peer();
    match said {
        Some(BYE_BEHIND | FORCED_BEHIND) => {}
        Some(BYE) => failure::end_session(worker, peer, ep),
        _ => failure::end_endpoint(worker, peer, ep, UCS_ERR_CONNECTION_RESET),
    }
    answer(worker, ep);
}

/// Answers the other end's farewell, if it has come and the error handler of this end has returned or there is none.
pub fn answer(worker: &Worker, ep: &Endpoint) {
    if ep.session == 0 || !ep.has(FAILED) || worker.err_handlers.lock().is_pending(ep) {
        return;
    }
    if let Some(x) = worker.cm.lock().as_deref_mut()
        && let Some(session) = x.session(ep.session)
        && session.state == SessionState::Left
    {
        session.state = SessionState::Ended;
        if let Some(mut contact) = session.contact.take() {
            // The other end may have gone without waiting for it.
            let _ = contact.send(&[BYE]);
        }
    }
}

/// The user closes an endpoint by force, or one that has failed. `behind`: a message says so, too. Called after the
/// endpoint was taken out of its peer's list.
pub fn close_idle(worker: &Worker, ep: &Endpoint, behind: bool, force: bool) {
    if ep.session != 0
        && let Some(x) = worker.cm.lock().as_deref_mut()
    {
        // A failed endpoint is one that the other end may wait for, whose farewell can have come by a message before
        // the one on the connection: this is the answer.
        end(x, ep.session, behind, force && !ep.has(FAILED));
    }
}

/// The user closes an endpoint in order. `behind`: a message says so, too. The status if that has ended already: the
/// request is then the caller's. Called after the endpoint was taken out of its peer's list, and before its memory goes
/// back.
///
/// # Safety
/// A new request that is complete in all fields; the peer is that of the endpoint.
pub unsafe fn close(
    worker: &Worker,
    ep: &Endpoint,
    peer: &Peer,
    behind: bool,
    req: *mut Request,
) -> Option<ucs_status_t> {
    let token = ep.session;
    {
        let mut guard = worker.cm.lock();
        let Some(session) = guard.as_deref_mut().and_then(|x| x.session(token)) else {
            return Some(UCS_OK);
        };
        session.ep = std::ptr::null_mut();
        session.closing = Some(FlushClose {
            request: req,
            flushed: false,
            answer: None,
        });
    }
    begin_disconnect(worker, token, behind);
    // SAFETY: a new request of our own. The peer lives at least as long as the endpoint.
    let flushed = unsafe {
        let child = request::take(worker, std::ptr::null_mut());
        (*child).peer = peer;
        (*child).imm = token;
        (*child).notify = Callback::Internal(flush_ended);
        let status = flush::start(child)?;
        request::recycle(child);
        status
    };
    on_flushed(worker, token, flushed).map(|(_, status)| status)
}

/// Tells the other end that an endpoint is closed in order, if there is a connection by now; its answer is awaited.
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
    // An end that has gone is noticed as one that goes now.
    let _ = contact.send(&[if behind { BYE_BEHIND } else { BYE }]);
    if session.state == SessionState::Open {
        session.state = SessionState::FlushClose;
        x.pending_closes += 1;
        worker.progress_flags.raise_network();
        return;
    }
    session.state = SessionState::Ended;
    session.contact = None;
    if let Some(closing) = &mut session.closing {
        closing.answer = Some(UCS_OK);
    }
}

/// The end of the flush that a close has begun.
///
/// # Safety
/// As `Callback::Internal`; a request of [`close`].
unsafe fn flush_ended(child: *mut Request, status: ucs_status_t) {
    // SAFETY: a request of this module's, whose worker lives; the close's request is out of its session.
    unsafe {
        let (worker, token) = (&*(*child).worker, (*child).imm);
        request::recycle(child);
        if let Some((req, status)) = on_flushed(worker, token, status) {
            request::complete(req, status);
        }
    }
}

/// What was sent before a close has been flushed, or is lost.
fn on_flushed(worker: &Worker, token: u64, status: ucs_status_t) -> Option<EndedClose> {
    let mut guard = worker.cm.lock();
    let x = guard.as_deref_mut()?;
    let closing = x.session(token)?.closing.as_mut()?;
    closing.flushed = true;
    match closing.answer {
        _ if status != UCS_OK => ended(x, token, status),
        Some(status) => ended(x, token, status),
        None => None,
    }
}

/// The other end has answered a close, or has gone.
fn on_answer(x: &mut CmState, token: u64, status: ucs_status_t) -> Option<EndedClose> {
    let closing = x.session(token)?.closing.as_mut()?;
    if status != UCS_OK || closing.flushed {
        return ended(x, token, status);
    }
    closing.answer = Some(status);
    let session = x.session(token)?;
    session.state = SessionState::Ended;
    let contact = session.contact.take();
    x.pending_closes -= 1;
    if let Some(contact) = contact {
        contact.unwatch(&x.epoll, false);
    }
    None
}

/// Ends a session together with the close that waits for it.
fn ended(x: &mut CmState, token: u64, status: ucs_status_t) -> Option<EndedClose> {
    let request = x.session(token)?.closing.take()?.request;
    end(x, token, false, false);
    Some((request, status))
}

/// A client's attempt has come to nothing, and with it the close of its endpoint, if the user has closed it.
pub(super) fn on_lost(worker: &Worker, token: u64, status: ucs_status_t) {
    let mut guard = worker.cm.lock();
    let lost = (guard.as_deref_mut()).and_then(|x| ended(x, token, status));
    drop(guard);
    if let Some((req, status)) = lost {
        // SAFETY: it is out of its session.
        unsafe { request::complete(req, status) };
    }
}

/// The worker goes: closes end that wait for other ends.
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
        .filter_map(|token| ended(x, token, UCS_ERR_CANCELED))
        .collect();
    drop(guard);
    for (req, status) in closes {
        // SAFETY: it is out of its session.
        unsafe { request::complete(req, status) };
    }
}

/// Ends a session whose endpoint is closed.
fn end(x: &mut CmState, token: u64, behind: bool, force: bool) {
    let Some(CmEntry::CmSession(session)) = x.entries.remove(&token) else {
        return;
    };
    if matches!(
        session.state,
        SessionState::Dialing | SessionState::Asked | SessionState::FlushClose
    ) {
        x.pending_closes -= 1;
    }
    if let Some(mut contact) = session.contact {
        if session.state != SessionState::Left {
            contact.unwatch(&x.epoll, session.state == SessionState::Dialing);
        }
        if matches!(session.state, SessionState::Open | SessionState::Left) {
            let word = disconnect_byte(
                &mut contact,
                behind,
                force && session.state == SessionState::Open,
            );
            // An end that has gone already does not hear it.
            let _ = contact.send(&[word]);
        }
    }
    if let Some(nobody) = session.stub {
        x.retire(token, nobody);
    }
}

/// What an end sends that does not wait for an answer. A forced close behind the other end's farewell is an answer to
/// that.
fn disconnect_byte(contact: &mut CmConn, behind: bool, force: bool) -> u8 {
    let alone = force && !matches!(recv(contact, &mut Vec::new(), 1), Ok(true));
    match (alone, behind) {
        (true, true) => FORCED_BEHIND,
        (true, false) => FORCED,
        (false, true) => BYE_BEHIND,
        (false, false) => BYE,
    }
}

/// A client's endpoint was closed before its server was known, which it is now: what it had sent goes first.
pub(super) fn send_closed(worker: &Worker, token: u64, peer: &Peer, sn: u32) {
    let behind = peer.status() == UCS_OK && {
        // SAFETY: queued requests live, and stay in the queue as long as its lock is held.
        let is_message = |&req: &*mut Request| unsafe { (*req).sent } != TxState::Flush;
        let tx = peer.tx.lock();
        tx.lane.is_some() || tx.pending.iter().any(is_message)
    };
    if behind {
        let imm = EpImm { sn, err_mode: 0 };
        tx::control(peer, Kind::EpClosed, 0, imm.to_u64(), &[]);
    }
    begin_disconnect(worker, token, behind);
}
