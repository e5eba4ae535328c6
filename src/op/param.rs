//! Parameters of an operation as the caller gave them, and the ways in which an operation returns.

use super::traced_send;
use crate::ctypes::*;
use crate::engine::completion;
use crate::engine::context::{ASK_DRIVER, RECORDED};
use crate::engine::endpoint::{Endpoint, EpFlags};
use crate::engine::peer::Peer;
use crate::engine::request::{Callback, Request};
use crate::engine::request_alloc;
use crate::engine::worker::Worker;
use crate::proto::failure;
use crate::proto::tx::{self, PostResult};
use crate::sys::log;
use std::ffi::c_void;
use std::ptr;

/// `ucp_request_param_t` behind its mask. Older programs pass shorter structures, and fields outside of the mask are
/// not initialised: no reference to the whole structure is made.
#[derive(Clone, Copy)]
pub struct Param {
    raw: *const ucp_request_param_t,
    pub mask: u32,
}

/// A field if its bit is set, else a default.
macro_rules! field {
    ($self:ident, $bit:ident, $name:ident $(=> $wrap:ident)?, $default:expr) => {
        if $self.has($bit) {
            // SAFETY: the caller's structure has the field if its bit is set.
            let value = unsafe { (*$self.raw).$name };
            $(let value = $wrap(value);)?
            value
        } else {
            $default
        }
    };
}

const CONTIG_BYTES: u64 = 1 << 3;

impl Param {
    /// # Safety
    /// `raw` points to a parameter structure, valid as far as its mask says, during the call.
    #[inline(always)]
    pub unsafe fn new(raw: *const ucp_request_param_t, extra: u32) -> Self {
        // SAFETY: the mask is readable in every parameter structure.
        let mask = unsafe { (*raw).op_attr_mask } | extra;
        Self { raw, mask }
    }

    #[inline(always)]
    pub fn has(&self, bit: ucp_op_attr) -> bool {
        self.mask & bit as u32 != 0
    }

    /// End of the user's memory for the request, or null.
    #[inline(always)]
    pub fn external(&self) -> *mut c_void {
        field!(self, UCP_OP_ATTR_FIELD_REQUEST, request, ptr::null_mut())
    }

    #[inline(always)]
    pub fn datatype(&self) -> u64 {
        field!(self, UCP_OP_ATTR_FIELD_DATATYPE, datatype, CONTIG_BYTES)
    }

    #[inline(always)]
    pub fn flags(&self) -> u32 {
        field!(self, UCP_OP_ATTR_FIELD_FLAGS, flags, 0)
    }

    /// Memory type of the buffer, as a number; by default host memory, or unknown where a device's is possible.
    #[inline(always)]
    pub fn memory_type(&self) -> u32 {
        if !self.has(UCP_OP_ATTR_FIELD_MEMORY_TYPE) {
            return match self.mask & ASK_DRIVER {
                0 => UCS_MEMORY_TYPE_HOST as u32,
                _ => UCS_MEMORY_TYPE_UNKNOWN as u32,
            };
        }
        // SAFETY: the caller's structure has the field if its bit is set.
        unsafe { enum_raw((*self.raw).memory_type) }
    }

    pub fn remote_datatype(&self) -> Option<u64> {
        field!(self, UCP_OP_ATTR_FIELD_REMOTE_DATATYPE, remote_datatype => Some, None)
    }

    /// Description and number of pieces of remote memory, null and 0 by default.
    pub fn remote(&self) -> (*const c_void, usize) {
        let list = field!(self, UCP_OP_ATTR_FIELD_REMOTE, remote, ptr::null());
        let count = field!(self, UCP_OP_ATTR_FIELD_REMOTE_COUNT, remote_count, 0);
        (list, count)
    }

    pub fn user_data(&self) -> *mut c_void {
        field!(
            self,
            UCP_OP_ATTR_FIELD_USER_DATA,
            user_data,
            ptr::null_mut()
        )
    }

    pub fn reply_buffer(&self) -> *mut c_void {
        field!(
            self,
            UCP_OP_ATTR_FIELD_REPLY_BUFFER,
            reply_buffer,
            ptr::null_mut()
        )
    }

    fn callback(&self) -> Option<ucp_request_param_cb> {
        field!(self, UCP_OP_ATTR_FIELD_CALLBACK, cb => Some, None)
    }

    fn recv_info(&self) -> Option<ucp_request_param_recv_info> {
        field!(self, UCP_OP_ATTR_FIELD_RECV_INFO, recv_info => Some, None)
    }

    /// Callback of a send, a flush or RMA.
    pub fn notify_send(&self) -> Callback {
        // SAFETY: a send's callback is this member.
        self.callback()
            .and_then(|cb| unsafe { cb.send })
            .map_or(Callback::None, Callback::Send)
    }

    pub fn notify_tag_recv(&self) -> Callback {
        // SAFETY: a tag receive's callback is this member.
        self.callback()
            .and_then(|cb| unsafe { cb.recv })
            .map_or(Callback::None, Callback::TagRecv)
    }

    pub fn notify_am_recv(&self) -> Callback {
        // SAFETY: the callback of a receive of active message data is this member.
        self.callback()
            .and_then(|cb| unsafe { cb.recv_am })
            .map_or(Callback::None, Callback::Length)
    }

    pub fn notify_stream_recv(&self) -> Callback {
        // SAFETY: a stream receive's callback is this member.
        self.callback()
            .and_then(|cb| unsafe { cb.recv_stream })
            .map_or(Callback::None, Callback::Length)
    }

    /// Stores the tag and length of a tag receive that completes immediately, if the caller has a place for them.
    pub fn store_tag_info(&self, info: ucp_tag_recv_info_t) {
        // SAFETY: a tag receive's structure is this member, null or writable.
        let tag_info = |i: ucp_request_param_recv_info| unsafe { i.tag_info.as_mut() };
        if let Some(out) = self.recv_info().and_then(tag_info) {
            *out = info;
        }
    }

    /// Stores the length of a receive of active message data that completes immediately, if the caller has a place for
    /// it.
    pub fn store_length(&self, length: usize) {
        // SAFETY: the member of such a receive, null or writable.
        if let Some(out) = self.recv_info().and_then(|i| unsafe { i.length.as_mut() }) {
            *out = length;
        }
    }

    /// Checks the parameters but the buffer.
    ///
    /// # Errors
    /// `UCS_ERR_INVALID_PARAM` for flags that exclude each other; `UCS_ERR_UNSUPPORTED` in a forked child for a worker
    /// of the parent.
    pub fn check(&self, worker: &Worker, feature: u64, what: &str) -> Result<(), ucs_status_t> {
        if worker.ctx.features & feature == 0 {
            log::error!("{what}: the context was created without the feature");
            return Err(UCS_ERR_INVALID_PARAM);
        }
        let both = UCP_OP_ATTR_FLAG_FAST_CMPL as u32 | UCP_OP_ATTR_FLAG_MULTI_SEND as u32;
        if self.mask & both == both {
            if worker.is_inherited() {
                return Err(UCS_ERR_UNSUPPORTED);
            }
            log::error!("{what}: FAST_CMPL and MULTI_SEND exclude each other");
            return Err(UCS_ERR_INVALID_PARAM);
        }
        Ok(())
    }
}

/// A status as operations return it.
#[inline(always)]
pub fn status_ptr(status: ucs_status_t) -> ucs_status_ptr_t {
    status as i8 as isize as ucs_status_ptr_t
}

/// The worker and the peer of an endpoint that can be used. An error goes to the user by [`refuse`].
///
/// # Errors
/// `UCS_ERR_NOT_CONNECTED` after close; the status of its failure if it has failed.
///
/// # Safety
/// `ep` was returned by this library; its worker exists.
pub unsafe fn open_endpoint<'a>(
    ep: *const Endpoint,
) -> Result<(&'a Worker, &'a Peer), ucs_status_t> {
    // SAFETY: the caller's endpoint is valid; endpoints stay allocated as long as their worker exists.
    let (e, worker, peer) = unsafe { (&*ep, (*ep).worker.get(), (*ep).peer()) };
    if e.has(EpFlags::CLOSED) {
        return Err(UCS_ERR_NOT_CONNECTED);
    }
    if e.has(EpFlags::FAILED) || peer.status() != UCS_OK {
        return Err(why_failed(e, peer));
    }
    if e.has(EpFlags::FRESH) {
        failure::send_ep_info(worker, e, peer);
    }
    Ok((worker, peer))
}

/// The return value of an operation that has not begun, with this status. The use of a failed endpoint is logged where
/// no error handler is called.
#[cold]
#[inline(never)]
pub fn refuse(e: &Endpoint, status: ucs_status_t) -> ucs_status_ptr_t {
    if !e.has(EpFlags::CLOSED) && (e.has(EpFlags::FAILED) || e.peer().status() != UCS_OK) {
        failure::on_use(e, e.peer());
    }
    status_ptr(status)
}

/// Status of the failure of an endpoint, `UCS_OK` if it can be used.
pub fn why_failed(e: &Endpoint, peer: &Peer) -> ucs_status_t {
    match e.failure() {
        UCS_OK => peer.status(),
        status => status,
    }
}

/// With NO_IMM_CMPL a message that can be sent now is complete when the call returns, as on UCX.
const AT_ONCE: u32 = UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL as u32 | UCP_OP_ATTR_FLAG_NO_IMM_CMPL as u32;

/// Posts a request, at once or when its user waits for it, as the parameters say.
///
/// # Safety
/// The requirements of [`tx::post`].
pub unsafe fn post_as_requested(req: *mut Request, p: &Param) -> PostResult {
    // SAFETY: the caller's promise.
    unsafe {
        match p.mask & AT_ONCE {
            0 => tx::post_deferrable(req),
            _ => tx::post(req),
        }
    }
}

/// Posts a request that is complete in all fields but `notify`. Returns the operation's return value.
///
/// # Safety
/// The request is owned by the caller and in no list.
pub unsafe fn start(req: *mut Request, p: &Param) -> ucs_status_ptr_t {
    // SAFETY: the caller's request. All fields are set before it is posted: another thread may complete it before
    // `post` returns.
    unsafe {
        let r = &mut *req;
        (r.notify, r.user_data) = (p.notify_send(), p.user_data());
        let (answered, peer) = (r.is_answered(), r.peer());
        let posted = match p.mask & (AT_ONCE | RECORDED) {
            0 => tx::post_deferrable(req),
            flags if flags & RECORDED == 0 => tx::post(req),
            _ => traced_send::post(req, p),
        };
        let is_forced = p.has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL);
        match posted {
            PostResult::Done if !answered => finish(req, p, UCS_OK),
            PostResult::Queued if is_forced && tx::unqueue(peer, req) => {
                drop_request(req, UCS_ERR_NO_RESOURCE)
            }
            PostResult::Done | PostResult::Queued => Request::handle(req),
            PostResult::Failed(status) => drop_request(req, status),
        }
    }
}

/// Completes a request inside of the call that made it. The request is freed, unless the user requires a request and a
/// callback.
///
/// # Safety
/// The request is owned by the caller and not complete.
pub unsafe fn finish(req: *mut Request, p: &Param, status: ucs_status_t) -> ucs_status_ptr_t {
    if p.has(UCP_OP_ATTR_FLAG_NO_IMM_CMPL) {
        // SAFETY: the caller's request. The user has not got its handle yet and cannot have freed it.
        unsafe { completion::complete(req, status) };
        return Request::handle(req);
    }
    // SAFETY: the caller's request.
    unsafe { drop_request(req, status) }
}

/// Return value of an operation that completed without a request. With `NO_IMM_CMPL` a completed request is made, and
/// its callback called. An error is returned as it is.
///
/// # Safety
/// The parameters are those of a flush or a close: their callback is that of a send.
#[inline(always)]
pub unsafe fn end_immediately(
    worker: &Worker,
    p: &Param,
    status: ucs_status_t,
) -> ucs_status_ptr_t {
    if !p.has(UCP_OP_ATTR_FLAG_NO_IMM_CMPL) || status != UCS_OK {
        return status_ptr(status);
    }
    // SAFETY: the caller's parameters are those of a flush or a close.
    unsafe { end_with_request(worker, p) }
}

/// Makes a completed request whose callback has been called.
#[cold]
#[inline(never)]
unsafe fn end_with_request(worker: &Worker, p: &Param) -> ucs_status_ptr_t {
    // SAFETY: a new request, which no other thread can find.
    unsafe {
        let req = request_alloc::take(worker, p.external());
        ((*req).notify, (*req).user_data) = (p.notify_send(), p.user_data());
        finish(req, p, UCS_OK)
    }
}

/// Frees a request that was not returned to the user, and returns the status.
///
/// # Safety
/// The request is owned by the caller and not complete.
pub unsafe fn drop_request(req: *mut Request, status: ucs_status_t) -> ucs_status_ptr_t {
    // SAFETY: the caller's request, which ends here.
    status_ptr(unsafe { completion::abandon(req, status) })
}
