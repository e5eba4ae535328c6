//! Put with signal: an entry in a completion queue of the target, or a change of a flag, which becomes visible after
//! the data.
//!
//! If the data are in place when the call returns, the signal follows: a message, or a change of mapped memory.
//! Otherwise the data are pending or outstanding, and the signal is a message behind them: the peer executes messages
//! in order, a queue pair keeps the order of writes and messages, and transfers on other rails are waited for
//! (`proto::tx`). An RC write in one work request carries a short signal as its immediate, if nothing is pending
//! (`SignalWord`); a Tofu put in one post is followed by a piggyback frame with the signal (`NoteHdr`).

use super::amo::mapped;
use super::param::{self, Param, status_ptr};
use super::rma::{self, RmaOp};
use super::{registered, sgl};
use crate::ctypes::*;
use crate::engine::completion;
use crate::engine::cq::CqNotice;
use crate::engine::endpoint::Endpoint;
use crate::engine::peer::Peer;
use crate::engine::pointers::{EndpointId, PeerRef};
use crate::engine::request::{Callback, Request};
use crate::engine::request_alloc;
use crate::engine::rkey::Rkey;
use crate::engine::worker::Worker;
use crate::proto::select::rma::RmaPath;
use crate::proto::tx::rma::Note;
use crate::proto::tx::{self, PostResult};
use crate::sys::cma::CmaDirection;
use crate::sys::log;
use crate::tl::amo::{self, AmoOp};
use crate::wire::header::{Kind, NoteHdr, SignalHdr, SignalWord};
use std::ffi::c_void;

const NAME: &str = "ucpx_put_signal_nbx";

/// A signal: what becomes visible after the data.
#[derive(Clone, Copy)]
pub struct Signal<'a> {
    pub value: u64,
    pub aim: SignalAim<'a>,
}

#[derive(Clone, Copy)]
pub enum SignalAim<'a> {
    /// A completion queue of the target.
    Queue(u8),
    /// A flag of 8 bytes.
    Flag {
        op: ucpx_signal_op_t,
        addr: u64,
        rkey: &'a Rkey,
    },
}

/// The peer that gets a signal.
struct SignalTarget<'a> {
    worker: &'a Worker,
    peer: &'a Peer,
    ep: *const Endpoint,
    /// Local address of the flag, if it is mapped here and its operation needs no message.
    flag: Option<*mut u8>,
}

/// Posts the signal behind `data`, address and length, that were written: an entry of a completion queue, by message.
///
/// # Safety
/// The endpoint can be used, and the structure requires no request.
#[inline(never)]
pub unsafe fn behind(
    ep: *const Endpoint,
    data: (u64, usize),
    signal: Signal,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint and structure are valid; worker and peer outlive the endpoint.
    let (worker, peer, p) = unsafe { ((*ep).worker.get(), (*ep).peer(), Param::new(param, 0)) };
    let target = SignalTarget {
        worker,
        peer,
        ep,
        flag: None,
    };
    status_ptr(target.post(signal, data, &p).err().unwrap_or(UCS_OK))
}

/// Puts data and signals behind them.
///
/// # Safety
/// The parameters are those of `ucp_put_nbx`; the key may be null if there are no data.
pub unsafe fn put(
    ep: *const Endpoint,
    (buffer, count): (*const c_void, usize),
    addr: u64,
    rkey: *const Rkey,
    signal: Signal,
    p: &Param,
) -> ucs_status_ptr_t {
    if sgl::is(p) {
        log::error!("{NAME}: a scatter-gather list");
        return status_ptr(UCS_ERR_UNSUPPORTED);
    }
    // SAFETY: the caller's endpoint, buffer and key are valid.
    unsafe {
        let target = match resolve_target(ep, signal, p) {
            Ok(target) => target,
            Err(status) => return status_ptr(status),
        };
        if count == 0 {
            return target.signal_alone(signal, p);
        }
        let data = || p.source(target.worker, NAME, buffer, count);
        match rma::prepare_checked((target.worker, target.peer), rkey, addr, NAME, data) {
            Ok(a) if a.data.len() == 0 => {
                a.data.drop_unused();
                target.signal_alone(signal, p)
            }
            Ok(a) => target.write(a, addr, signal, p),
            Err(status) => status_ptr(status),
        }
    }
}

unsafe fn resolve_target<'a>(
    ep: *const Endpoint,
    signal: Signal,
    p: &Param,
) -> Result<SignalTarget<'a>, ucs_status_t> {
    // SAFETY: the caller's endpoint is valid.
    let (worker, peer) = unsafe { param::open_endpoint(ep) }?;
    p.check(worker, rma::FEATURE, NAME)?;
    let flag = match signal.aim {
        SignalAim::Queue(_) => None,
        SignalAim::Flag { addr, .. } if addr % size_of::<u64>() as u64 != 0 => {
            log::error!("{NAME}: a flag that is not aligned to 8 bytes");
            return Err(UCS_ERR_INVALID_PARAM);
        }
        SignalAim::Flag { addr, rkey, .. } => {
            mapped(worker, peer, rkey, addr, size_of::<u64>() as u8)?
        }
    };
    Ok(SignalTarget {
        worker,
        peer,
        ep,
        flag,
    })
}

/// The operation on a flag.
fn change(op: ucpx_signal_op_t, value: u64) -> AmoOp {
    let op = match op {
        UCPX_SIGNAL_OP_ADD => amo::ADD,
        UCPX_SIGNAL_OP_SET | UCPX_SIGNAL_OP_NOTIFY => amo::SWAP,
    };
    AmoOp {
        op,
        size: size_of::<u64>() as u8,
        value,
        compare: 0,
    }
}

impl SignalTarget<'_> {
    unsafe fn signal_alone(&self, signal: Signal, p: &Param) -> ucs_status_ptr_t {
        if let Err(status) = self.signal(signal, (0, 0), p) {
            return status_ptr(status);
        }
        if !p.has(UCP_OP_ATTR_FLAG_NO_IMM_CMPL) {
            return status_ptr(UCS_OK);
        }
        // SAFETY: a new request.
        unsafe {
            let req = request_alloc::take(self.worker, p.external());
            ((*req).peer, (*req).ep) = (Some(PeerRef::new(self.peer)), EndpointId::of(self.ep));
            ((*req).notify, (*req).user_data) = (p.notify_send(), p.user_data());
            param::finish(req, p, UCS_OK)
        }
    }

    unsafe fn write(&self, a: RmaOp, addr: u64, signal: Signal, p: &Param) -> ucs_status_ptr_t {
        let len = a.data.len();
        // SAFETY: the caller's buffer and memory are valid.
        unsafe {
            let done = match a.path {
                RmaPath::Mapped(local) => a.copy_mapped(CmaDirection::Write, local),
                RmaPath::Cma => a.attach(CmaDirection::Write, addr),
                RmaPath::Adapter(_) | RmaPath::Message => Err(UCS_ERR_UNSUPPORTED),
            };
            if done != Err(UCS_ERR_UNSUPPORTED) {
                let done = done.and_then(|()| self.signal(signal, (addr, len), p));
                return rma::complete_inline(&a, self.ep, p, done);
            }
            if p.has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL) {
                a.data.drop_unused();
                return status_ptr(UCS_ERR_NO_RESOURCE);
            }
            let word = match signal.aim {
                SignalAim::Queue(cq) => SignalWord::encode(cq, signal.value),
                SignalAim::Flag { .. } => None,
            };
            if let Some(noted) = self.put_with_note(&a, addr, signal, word) {
                let done = if noted {
                    Ok(())
                } else {
                    self.post(signal, (addr, len), p)
                };
                return rma::complete_inline(&a, self.ep, p, done);
            }
            let req = a.request(self.ep, p, CmaDirection::Write, addr, false);
            // Set before the request is posted: another thread may complete it at once.
            ((*req).notify, (*req).user_data) = (p.notify_send(), p.user_data());
            if word.is_some_and(|word| tx::rma::put_zcopy_with_imm(req, word)) {
                return Request::handle(req);
            }
            let put = param::start(req, p);
            if is_error(put) {
                return put;
            }
            match self.post(signal, (addr, len), p) {
                Err(status) if put.is_null() => status_ptr(status),
                // The failure of the peer is reported by the request of the put.
                _ => put,
            }
        }
    }

    /// Writes short data, which are copied, by an adapter, with the signal for a completion queue as immediate
    /// (`word`), or behind them. `None`: nothing was done; false: the data were written, and no signal was sent.
    unsafe fn put_with_note(
        &self,
        a: &RmaOp,
        addr: u64,
        signal: Signal,
        word: Option<u32>,
    ) -> Option<bool> {
        let (SignalAim::Queue(cq), RmaPath::Adapter(_)) = (signal.aim, &a.path) else {
            return None;
        };
        let (data, len) = (a.data.as_contig()?, a.data.len());
        let len = len as u64;
        let note = Note {
            cq,
            value: signal.value,
            hdr: NoteHdr { addr, len },
            word,
        };
        // SAFETY: the caller's data are valid.
        unsafe { tx::rma::put_with_note(self.peer, &a.rkey.tl, data, &note) }
    }

    /// Signals after data that are in place.
    fn signal(&self, signal: Signal, data: (u64, usize), p: &Param) -> Result<(), ucs_status_t> {
        if let (Some(flag), SignalAim::Flag { op, .. }) = (self.flag, signal.aim) {
            // SAFETY: the flag is aligned, in mapped memory of the region.
            unsafe { amo::execute(flag, change(op, signal.value)) };
            return Ok(());
        }
        self.post(signal, data, p)
    }

    /// Sends the signal as a message. The message may become pending: it contains all that it needs.
    fn post(
        &self,
        signal: Signal,
        (addr, len): (u64, usize),
        p: &Param,
    ) -> Result<(), ucs_status_t> {
        let (op, cq, flag) = match signal.aim {
            SignalAim::Queue(id) => (SignalHdr::NOTIFY, id, 0),
            SignalAim::Flag { op, addr, .. } => (op as u8, 0, addr),
        };
        let head = SignalHdr {
            addr,
            len: len as u64,
            flag,
            op,
            cq,
        };
        // SAFETY: a new request, which is in no list until it is posted.
        unsafe {
            let req = request_alloc::take(self.worker, std::ptr::null_mut());
            let r = &mut *req;
            tx::set_message(r, Kind::Signal, 0, signal.value, &head.encode());
            // A forced close cancels it together with the data.
            (r.peer, r.ep) = (Some(PeerRef::new(self.peer)), EndpointId::of(self.ep));
            r.notify = Callback::Internal(completion::discard);
            let ended = match tx::post(req) {
                PostResult::Queued if !p.has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL) => return Ok(()),
                PostResult::Queued if !tx::unqueue(self.peer, req) => return Ok(()),
                PostResult::Queued => Err(UCS_ERR_NO_RESOURCE),
                PostResult::Done => Ok(()),
                PostResult::Failed(status) => Err(status),
            };
            request_alloc::recycle(req);
            ended
        }
    }
}

/// Whether the return value of an operation is an error.
fn is_error(result: ucs_status_ptr_t) -> bool {
    (result as isize) < 0 && result as isize >= isize::from(UCS_ERR_LAST as i8)
}

/// Handles the immediate of a write of `len` bytes by the peer's HCA.
pub(super) fn on_imm(worker: &Worker, peer: &Peer, word: SignalWord, len: usize) {
    notify(worker, peer, word.cq, word.value.into(), len, None);
}

/// Handles the signal that follows a put of the peer's TNI. If the put was refused, its connection fails.
pub(super) fn on_note(worker: &Worker, peer: &Peer, cq: u8, value: u64, h: NoteHdr) {
    if registered::permitted(worker, peer, h.addr, h.len, "signal behind") {
        notify(worker, peer, cq, value, h.len as usize, Some(h.addr));
    }
}

/// Handles the signal that follows data which the peer has stored into memory of this process. False: it is refused.
///
/// # Safety
/// `MT` says whether threads may share the worker.
#[inline(never)]
pub unsafe fn on_stored<const MT: bool>(
    worker: &Worker,
    peer: &Peer,
    cq: u8,
    value: u64,
    behind: NoteHdr,
) -> bool {
    if !(worker.ctx.regions).permits(&worker.last_region, behind.addr, behind.len) {
        return refuse(worker, peer, behind);
    }
    // SAFETY: the caller's promise about the mode.
    unsafe { worker.notify_cq_in::<MT>(cq, notice(peer, value, &behind)) };
    true
}

/// The entry of a signal of `peer` behind data that are in place.
#[inline(always)]
pub fn entry(peer: &Peer, value: u64, behind: &NoteHdr) -> ucpx_cq_entry_t {
    notice(peer, value, behind).entry()
}

#[inline(always)]
fn notice(peer: &Peer, value: u64, behind: &NoteHdr) -> CqNotice {
    CqNotice {
        peer_uid: peer.uid,
        value,
        len: behind.len as usize,
        addr: Some(behind.addr),
    }
}

/// Logs the refusal of a signal behind data in memory that is not registered. Returns false.
#[cold]
#[inline(never)]
fn refuse(worker: &Worker, peer: &Peer, behind: NoteHdr) -> bool {
    registered::permitted(worker, peer, behind.addr, behind.len, "signal behind")
}

fn notify(worker: &Worker, peer: &Peer, cq: u8, value: u64, len: usize, addr: Option<u64>) {
    let notice = CqNotice {
        peer_uid: peer.uid,
        value,
        len,
        addr,
    };
    worker.notify_cq(cq, notice);
}

/// Handles a signal message. The data before it are in place, unless their write was refused.
pub(super) fn on_message(worker: &Worker, peer: &Peer, value: u64, h: SignalHdr) {
    let refused = h.len > 0 && !registered::permitted(worker, peer, h.addr, h.len, "signal behind");
    let done = match h.op {
        _ if refused => Err(UCS_ERR_INVALID_ADDR),
        SignalHdr::NOTIFY => {
            let addr = (h.len > 0).then_some(h.addr);
            notify(worker, peer, h.cq, value, h.len as usize, addr);
            Ok(())
        }
        op => {
            let op = match op {
                SignalHdr::SET => UCPX_SIGNAL_OP_SET,
                _ => UCPX_SIGNAL_OP_ADD,
            };
            registered::change(worker, peer, h.flag, change(op, value)).map(drop)
        }
    };
    tx::answer_put(peer, done.err().unwrap_or(UCS_OK));
}
