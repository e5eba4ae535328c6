//! RMA: by loads and stores, by CMA, by an HCA or TNI, or by messages that the peer executes.

use super::param::{self, Param, status_ptr};
use super::traced_send::{self, LONG_RMA};
use super::{rkey_device, short};
use crate::ctypes::*;
use crate::engine::datatype::Data;
use crate::engine::endpoint::Endpoint;
use crate::engine::peer::{Peer, ShortAccess};
use crate::engine::pointers::{EndpointId, PeerRef};
use crate::engine::request::Request;
use crate::engine::request_alloc;
use crate::engine::rkey::{Rkey, RkeyAccess};
use crate::engine::worker::Worker;
use crate::proto::select::rma::{self as select, RmaPath};
use crate::proto::tx::{rma, rma_sw, zcopy};
use crate::proto::{answers, flush};
use crate::sys::cma::CmaDirection;
use crate::sys::{clock, log, trace};
use crate::tl::rma::RmaDevice;
use crate::tl::{CmaFault, CmaRemote, LaneSender, TlZcopy, Token};
use std::ffi::c_void;

pub(super) const FEATURE: u64 = UCP_FEATURE_RMA as u64;

/// The fastest path for `len` bytes at `addr` of the key's region.
///
/// # Errors
/// `UCS_ERR_INVALID_PARAM` outside of the region.
pub fn path(
    worker: &Worker,
    peer: &Peer,
    rkey: &Rkey,
    addr: u64,
    len: usize,
) -> Result<RmaPath, ucs_status_t> {
    if len == 0 {
        return Ok(RmaPath::Message);
    }
    if rkey.access == RkeyAccess::Message {
        return Ok(rkey_device::path(worker, peer, rkey, addr, len));
    }
    let empty = rkey.access == RkeyAccess::None;
    // After a fence nothing overtakes RMA by message that is outstanding or pending. The peer executes messages in
    // order: RMA after the fence is sent by message too.
    let keyed =
        || rkey.tl.device_keys(addr, len).is_some() && select::ib_reaches(worker, peer, len);
    let adapter = select::adapter(keyed, || rkey.tl.resolved_for(addr, len));
    if !empty && worker.is_fenced() {
        let settled = match adapter {
            Some(_) => answers::is_answered(peer),
            None => flush::is_settled(peer),
        };
        if !settled {
            return Ok(RmaPath::Message);
        }
    }
    let mapped = rkey.local(addr, len);
    if mapped.is_none() && (rkey.len != 0 || empty) {
        log::once!(
            Error,
            "remote access to {addr:#x}..+{len} is outside of the region {:#x}..+{}",
            rkey.base,
            rkey.len
        );
        return Err(UCS_ERR_INVALID_PARAM);
    }
    let mapped = mapped.or_else(|| peer.same_process.then_some(addr as *mut u8));
    let cma = || peer.cma().is_usable() && !short::is_unanswered(peer);
    Ok(select::path(mapped, adapter, cma))
}

/// RMA that is checked and not started.
pub(super) struct RmaOp<'a> {
    pub(super) worker: &'a Worker,
    pub(super) peer: &'a Peer,
    pub(super) rkey: &'a Rkey,
    pub(super) data: Data,
    pub(super) path: RmaPath,
}

impl RmaOp<'_> {
    /// The time, if the timeline records a copy inside of the call.
    #[inline(always)]
    fn recorded_from(&self) -> Option<u64> {
        (trace::is_on() && self.data.len() >= LONG_RMA).then(trace::now)
    }

    /// Copies the data from or to remote memory that is mapped at `local`, inside of the call.
    ///
    /// # Safety
    /// The local data are valid, and so are as many bytes at `local`.
    pub(super) unsafe fn copy_mapped(
        &self,
        direction: CmaDirection,
        local: *mut u8,
    ) -> Result<(), ucs_status_t> {
        let len = self.data.len();
        let recorded = self.recorded_from();
        // SAFETY: the caller's promise.
        let copied = unsafe {
            match direction {
                CmaDirection::Read => self.data.unpack(0, local, len),
                CmaDirection::Write => {
                    self.data.pack(0, local, len);
                    Ok(())
                }
            }
        };
        if let Some(began) = recorded {
            traced_send::record_copy(direction, len, self.peer.uid, "mapped", began);
        }
        copied
    }

    /// Copies the data by CMA, inside of the call.
    ///
    /// # Safety
    /// The local data and the remote memory at `addr` are valid.
    pub(super) unsafe fn attach(
        &self,
        direction: CmaDirection,
        addr: u64,
    ) -> Result<(), ucs_status_t> {
        let (remote, len) = (CmaRemote::Piece(addr), self.data.len());
        let recorded = self.recorded_from();
        let account = &self.peer.short_rma;
        let began = account
            .is_timed(ShortAccess::new(direction, len))
            .then(clock::monotonic_ns);
        // SAFETY: local and remote memory are the user's, valid during the call.
        let copied = unsafe { self.peer.cma().copy(direction, &self.data, remote, 0, len) };
        if let Some(began) = recorded {
            traced_send::record_copy(direction, len, self.peer.uid, "CMA", began);
        }
        if let Some(began) = began {
            account.note_copy(
                ShortAccess::new(direction, len),
                clock::monotonic_ns() - began,
            );
        }
        copied.map_err(CmaFault::status)
    }

    /// Whether the copy by CMA is done later, together with others. Not after a fence that found outstanding messages:
    /// queued copies would force RMA after them to go by message.
    fn waits(&self, p: &Param) -> bool {
        let flags = &self.worker.progress_flags;
        matches!(self.path, RmaPath::Cma)
            && flags.has_copied()
            && self.data.len() <= rma_sw::BATCH_MAX
            && flags.backlog() < rma_sw::MOST
            && self.data.as_contig().is_some()
            && !p.has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL)
            && !self.worker.is_fenced()
    }

    /// Registers the user's memory for the adapter for a transfer in place, which a put with `FAST_CMPL` is not.
    #[inline(always)]
    fn register(
        &self,
        device: RmaDevice,
        direction: CmaDirection,
        addr: u64,
        p: &Param,
    ) -> Option<TlZcopy> {
        let (worker, len) = (self.worker, self.data.len());
        let reads = direction == CmaDirection::Read;
        let copied = !reads && p.has(UCP_OP_ATTR_FLAG_FAST_CMPL);
        // The processor does not copy memory of devices: adapters access all of it in place that they can.
        let is_device = matches!(self.data, Data::Device { .. });
        if copied || !(is_device || worker.registrar().is_in_place(device, len)) {
            return None;
        }
        if device == RmaDevice::Ib && !zcopy::is_possible(self.peer) {
            return None;
        }
        let Some((registrar, ptr)) = worker.registrar_of(&self.data) else {
            // SAFETY: the user promises that a list of pieces is valid.
            return unsafe { worker.register_pieces(device, (&self.data, len), reads) };
        };
        let memory = registrar.for_rma(device, (ptr, len), reads, (&self.rkey.tl, addr));
        self.data.note_adapters(reads && memory.is_some());
        memory
    }

    /// Makes a request a put or get by an adapter. False: it has to go by message.
    #[inline(always)]
    fn set_rma(
        &self,
        r: &mut Request,
        device: RmaDevice,
        direction: CmaDirection,
        addr: u64,
        p: &Param,
    ) -> bool {
        let memory = self.register(device, direction, addr, p);
        let (contig, len) = (self.data.as_contig().is_some(), self.data.len());
        let path = self.path.for_data(contig, memory.is_some());
        let key = self.rkey.tl.rma_key(device, addr, len);
        let Some(key) = key.filter(|_| path != RmaPath::Message) else {
            return false;
        };
        rma::set_rma(r, direction, addr, key);
        if let Some(memory) = memory {
            rma::in_place(r, addr, key, memory);
        }
        true
    }

    /// Makes a request and posts it: for a later copy by CMA (`waits`), or for an HCA, a TNI or a message.
    ///
    /// # Safety
    /// The user's memory is valid until the request completes.
    pub(super) unsafe fn queue(
        self,
        ep: *const Endpoint,
        p: &Param,
        direction: CmaDirection,
        addr: u64,
        waits: bool,
    ) -> ucs_status_ptr_t {
        // SAFETY: the caller's promise; the request is new.
        unsafe { param::start(self.request(ep, p, direction, addr, waits), p) }
    }

    /// Makes the request that [`queue`](Self::queue) posts.
    ///
    /// # Safety
    /// The user's memory is valid until the request completes.
    pub(super) unsafe fn request(
        self,
        ep: *const Endpoint,
        p: &Param,
        direction: CmaDirection,
        addr: u64,
        waits: bool,
    ) -> *mut Request {
        // SAFETY: a new request.
        unsafe {
            let req = request_for(&self, ep, p);
            let by_adapter = match self.path {
                RmaPath::Adapter(device) => self.set_rma(&mut *req, device, direction, addr, p),
                RmaPath::Mapped(_) | RmaPath::Cma | RmaPath::Message => false,
            };
            if !by_adapter {
                if matches!(self.path, RmaPath::Cma) && waits {
                    rma_sw::set_cma(&mut *req, direction, addr);
                } else {
                    rma_sw::set_am(&mut *req, direction, addr);
                }
            }
            req
        }
    }
}

/// Checks an access and chooses its path.
///
/// # Safety
/// The endpoint is valid; the key is valid or null.
pub(super) unsafe fn prepare<'a>(
    ep: *const Endpoint,
    rkey: *const Rkey,
    addr: u64,
    p: &Param,
    what: &str,
    data: impl FnOnce(&Worker) -> Result<Data, ucs_status_t>,
) -> Result<RmaOp<'a>, ucs_status_t> {
    // SAFETY: the caller's endpoint and key are valid.
    let (worker, peer) = unsafe { param::open_endpoint(ep) }?;
    p.check(worker, FEATURE, what)?;
    // SAFETY: the caller's key is valid or null.
    unsafe { prepare_checked((worker, peer), rkey, addr, what, || data(worker)) }
}

/// Chooses the path of an access by a usable endpoint and with checked parameters.
///
/// # Safety
/// The key is valid or null.
pub(super) unsafe fn prepare_checked<'a>(
    (worker, peer): (&'a Worker, &'a Peer),
    rkey: *const Rkey,
    addr: u64,
    what: &str,
    data: impl FnOnce() -> Result<Data, ucs_status_t>,
) -> Result<RmaOp<'a>, ucs_status_t> {
    // SAFETY: the caller's key is valid or null.
    let Some(rkey) = (unsafe { rkey.as_ref() }) else {
        log::error!("{what}: no rkey");
        return Err(UCS_ERR_INVALID_PARAM);
    };
    let data = data()?;
    let path = path(worker, peer, rkey, addr, data.len()).inspect_err(|_| {
        // SAFETY: `data` was made in this call and is not used again.
        unsafe { data.drop_unused() };
    })?;
    Ok(RmaOp {
        worker,
        peer,
        rkey,
        data,
        path,
    })
}

/// `ucp_put_nbx` by any path.
///
/// # Safety
/// The parameters are those of `ucp_put_nbx`.
#[inline(never)]
pub unsafe fn put(
    ep: *const Endpoint,
    buffer: *const c_void,
    count: usize,
    addr: u64,
    rkey: *const Rkey,
    p: &Param,
) -> ucs_status_ptr_t {
    let direction = CmaDirection::Write;
    if p.is_kind_open() {
        let data = |worker: &Worker| {
            // SAFETY: the caller's buffer is that of `ucp_put_nbx`, and the key is valid.
            unsafe {
                match rkey_device::is_accessed_in_place(worker, rkey) {
                    true => p.source_unread(worker, "ucp_put_nbx", buffer, count),
                    false => p.source(worker, "ucp_put_nbx", buffer, count),
                }
            }
        };
        // SAFETY: the caller's promises are those that the callee requires.
        return unsafe { rkey_device::access(ep, direction, data, addr, rkey, p) };
    }
    // SAFETY: the caller's buffer is that of `ucp_put_nbx`.
    let data = |_: &Worker| unsafe { Data::for_send(buffer, count, p.datatype()) };
    // SAFETY: the caller's promises are those that the callee requires.
    unsafe { access(ep, direction, data, addr, rkey, p, |_| None) }
}

/// Get by one operation, posted by `post` if `is_possible` is true of the lane: the request's handle. `None`: none was.
///
/// # Safety
/// The parameters are those of `ucp_get_nbx`. No option adds to the flags of operations, and there was no fence.
#[inline(never)]
pub unsafe fn get_now<S: LaneSender>(
    ep: *const Endpoint,
    (ptr, len): (*mut u8, usize),
    p: &Param,
    is_possible: impl FnOnce(&S) -> bool,
    post: impl FnOnce(&mut S, *mut u8, Token) -> bool,
) -> Option<ucs_status_ptr_t> {
    // SAFETY: the caller's endpoint is valid; worker and peer outlive it.
    let (worker, peer) = unsafe { ((*ep).worker.get(), (*ep).peer()) };
    if !rma::is_possible(peer, is_possible) {
        return None;
    }
    // SAFETY: a new request, freed if nothing was posted.
    unsafe {
        let req = request_alloc::take(worker, p.external());
        ((*req).peer, (*req).ep) = (Some(PeerRef::new(peer)), EndpointId::of(ep));
        ((*req).notify, (*req).user_data) = (p.notify_send(), p.user_data());
        (*req).data = Data::Contig { ptr, len };
        if rma::get_now(peer, req, post) {
            return Some(Request::handle(req));
        }
        request_alloc::recycle(req);
        None
    }
}

/// `ucp_get_nbx` by any path.
///
/// # Safety
/// The parameters are those of `ucp_get_nbx`.
#[inline(never)]
pub unsafe fn get(
    ep: *const Endpoint,
    buffer: *mut c_void,
    count: usize,
    addr: u64,
    rkey: *const Rkey,
    p: &Param,
) -> ucs_status_ptr_t {
    let direction = CmaDirection::Read;
    if p.is_kind_open() {
        let data = |worker: &Worker| {
            // SAFETY: the caller's buffer is that of `ucp_get_nbx`.
            unsafe { p.target(worker, "ucp_get_nbx", buffer, count) }
        };
        // SAFETY: the caller's promises are those that the callee requires.
        return unsafe { rkey_device::access(ep, direction, data, addr, rkey, p) };
    }
    // SAFETY: the caller's buffer is that of `ucp_get_nbx`.
    let data = |_: &Worker| unsafe { Data::for_recv(buffer, count, p.datatype()) };
    // SAFETY: the caller's promises are those that the callee requires.
    unsafe { access(ep, direction, data, addr, rkey, p, |_| None) }
}

/// A put or a get by any path. `copied` may start it by a copy of a device: it returns what the call does.
///
/// # Safety
/// The parameters are those of `ucp_put_nbx` or `ucp_get_nbx`; what `data` returns is valid until the access completes.
#[inline(always)]
pub(super) unsafe fn access(
    ep: *const Endpoint,
    direction: CmaDirection,
    data: impl FnOnce(&Worker) -> Result<Data, ucs_status_t>,
    addr: u64,
    rkey: *const Rkey,
    p: &Param,
    copied: impl FnOnce(&RmaOp) -> Option<ucs_status_ptr_t>,
) -> ucs_status_ptr_t {
    let what = match direction {
        CmaDirection::Write => "ucp_put_nbx",
        CmaDirection::Read => "ucp_get_nbx",
    };
    // SAFETY: the caller's endpoint, data and key are valid.
    unsafe {
        let mut a = match prepare(ep, rkey, addr, p, what, data) {
            Ok(a) if a.data.len() == 0 => {
                a.data.drop_unused();
                return status_ptr(UCS_OK);
            }
            Ok(a) => a,
            Err(status) => return param::refuse(&*ep, status),
        };
        let at_once_only = p.has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL);
        // Only a put completes at once by a copy of the kernel, too.
        let reads = direction == CmaDirection::Read;
        if reads && at_once_only && !matches!(a.path, RmaPath::Mapped(_)) {
            a.data.drop_unused();
            return status_ptr(UCS_ERR_NO_RESOURCE);
        }
        if !at_once_only && let Some(started) = copied(&a) {
            return started;
        }
        let access = ShortAccess::new(direction, a.data.len());
        if short::goes_by_message(a.peer, &a.path, access, p) {
            a.path = RmaPath::Message;
        }
        // Computed once: other threads can change the result.
        let waits = a.waits(p);
        let done = match a.path {
            RmaPath::Mapped(local) => a.copy_mapped(direction, local),
            RmaPath::Cma if !waits => a.attach(direction, addr),
            RmaPath::Cma | RmaPath::Adapter(_) | RmaPath::Message => Err(UCS_ERR_UNSUPPORTED),
        };
        if done != Err(UCS_ERR_UNSUPPORTED) {
            return complete_inline(&a, ep, p, done);
        }
        if at_once_only {
            a.data.drop_unused();
            return status_ptr(UCS_ERR_NO_RESOURCE);
        }
        a.queue(ep, p, direction, addr, waits)
    }
}

#[inline(always)]
pub(super) unsafe fn request_for(a: &RmaOp, ep: *const Endpoint, p: &Param) -> *mut Request {
    // SAFETY: a new request.
    unsafe {
        let req = request_alloc::take(a.worker, p.external());
        ((*req).data, (*req).peer, (*req).ep) =
            (a.data, Some(PeerRef::new(a.peer)), EndpointId::of(ep));
        req
    }
}

/// Return value of an access that completed inside of the call.
///
/// # Safety
/// The endpoint is valid.
pub(super) unsafe fn complete_inline(
    a: &RmaOp,
    ep: *const Endpoint,
    p: &Param,
    done: Result<(), ucs_status_t>,
) -> ucs_status_ptr_t {
    let status = done.err().unwrap_or(UCS_OK);
    let protocol = a.path.counted();
    if matches!(a.path, RmaPath::Cma) {
        a.worker.progress_flags.raise_copied();
    }
    if status == UCS_OK {
        a.peer.stats().of(protocol).add(a.data.len());
    }
    if status == UCS_ERR_CONNECTION_RESET {
        a.worker.fail_peer(a.peer, status);
    }
    // SAFETY: the request, if one is made, is new.
    unsafe {
        if !p.has(UCP_OP_ATTR_FLAG_NO_IMM_CMPL) || status != UCS_OK {
            return status_ptr(a.data.finish(status));
        }
        let req = request_for(a, ep, p);
        ((*req).notify, (*req).user_data) = (p.notify_send(), p.user_data());
        param::finish(req, p, status)
    }
}
