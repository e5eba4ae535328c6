//! Scatter-gather put and get: pieces of local memory, each with an address and a key at the peer.

use super::param::{self, Param, status_ptr};
use super::rma;
use crate::ctypes::*;
use crate::engine::completion;
use crate::engine::datatype::Data;
use crate::engine::endpoint::Endpoint;
use crate::engine::memory::MemHandle;
use crate::engine::peer::Peer;
use crate::engine::pointers::{EndpointId, PeerRef};
use crate::engine::request::{self, Callback, ChildOps, Op, Request};
use crate::engine::request_alloc;
use crate::engine::rkey::Rkey;
use crate::engine::worker::Worker;
use crate::proto::select::rma::RmaPath;
use crate::proto::tx::{self, PostResult, rma_sw};
use crate::sys::cma::{CmaDirection, IoSpan, Spans};
use crate::sys::copy;
use crate::sys::log;
use crate::tl::rma::RmaKey;
use std::collections::HashSet;
use std::ffi::c_void;

mod arrays;
mod mapped;
use arrays::{SglArrays, SglElement};

const SGL: u64 = UCP_DATATYPE_SGL as u64;
const FEATURE: u64 = UCP_FEATURE_RMA as u64;
const NAME: &str = "scatter-gather access";
/// The remote address that callers give with a list; the key is null.
const UCP_REMOTE_ADDR_INVALID: u64 = u64::MAX;

/// Whether the buffer or the remote memory is a scatter-gather list.
pub fn is(p: &Param) -> bool {
    p.datatype() & UCP_DATATYPE_CLASS_MASK == SGL || p.remote_datatype().is_some()
}

/// An access in progress.
struct SglOp<'a> {
    worker: &'a Worker,
    peer: &'a Peer,
    ep: *const Endpoint,
    direction: CmaDirection,
    p: &'a Param,
    /// Pieces for one CMA call.
    local: Spans,
    remote: Spans,
    /// The user's request, made when the first piece is posted. Its children are the posted pieces, and one more
    /// during the call.
    parent: *mut Request,
}

/// `ucp_put_nbx` and `ucp_get_nbx` with lists at both sides.
///
/// # Safety
/// The parameters are those of `ucp_put_nbx` or `ucp_get_nbx`.
pub unsafe fn access(
    ep: *const Endpoint,
    direction: CmaDirection,
    (buffer, count): (*const c_void, usize),
    (addr, rkey): (u64, *const Rkey),
    p: &Param,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint and lists are valid.
    unsafe {
        let prepared = param::open_endpoint(ep).and_then(|(worker, peer)| {
            p.check(worker, FEATURE, NAME)?;
            if addr != UCP_REMOTE_ADDR_INVALID || !rkey.is_null() {
                log::error!("{NAME}: a remote address or a key beside those of the list");
                return Err(UCS_ERR_INVALID_PARAM);
            }
            let lists = SglArrays::read(buffer, count, p).map_err(refused)?;
            Ok((worker, peer, lists))
        });
        let (worker, peer, lists) = match prepared {
            Ok(prepared) => prepared,
            Err(status) => return param::refuse(&*ep, status),
        };
        let mut t = SglOp {
            worker,
            peer,
            ep,
            direction,
            p,
            local: Spans::new(),
            remote: Spans::new(),
            parent: std::ptr::null_mut(),
        };
        if mapped::copy(worker, peer, direction, &lists, p) {
            return t.end(Ok(()));
        }
        if !lists.lengths_agree() {
            return param::refuse(&*ep, refused("the lengths of the two sides differ"));
        }
        // All elements are checked before anything is written.
        if let Err(status) = t.check(&lists) {
            return status_ptr(status);
        }
        let done = t.run(&lists);
        t.end(done)
    }
}

/// Logs why a list is refused; returns the status.
fn refused(what: &str) -> ucs_status_t {
    log::error!("{NAME}: {what}");
    UCS_ERR_INVALID_PARAM
}

/// The memory of a handle, if that is one of the locked set of mapped ones.
fn memory_of(memh: ucp_mem_h, mapped: &HashSet<usize>) -> Option<&MemHandle> {
    // SAFETY: the handle is mapped, and cannot be unmapped while the set is locked, which the reference does not
    // outlive.
    let memory = || unsafe { &*memh.cast::<MemHandle>() };
    mapped.contains(&(memh as usize)).then(memory)
}

impl SglOp<'_> {
    /// Checks that the key of an element is one of the peer, and that its memory handle covers its memory.
    ///
    /// # Errors
    /// The text for the log.
    fn belongs(&self, e: &SglElement, mapped: &HashSet<usize>) -> Result<(), &'static str> {
        let (start, end) = e.extent().ok_or("blocks beyond the address space")?;
        // A client can have unpacked the key before it had the server's uid.
        let (owner, server) = (e.rkey.identity.owner, self.peer.uid);
        if owner != server && owner != 0 && server != 0 {
            return Err("a key for another peer");
        }
        let Some(memh) = e.memh else { return Ok(()) };
        let memory = memory_of(memh, mapped).ok_or("a memory handle that is not mapped")?;
        let inside = memory.contains(start, (end - start) as usize);
        inside.then_some(()).ok_or("memory outside of its handle")
    }

    unsafe fn check(&self, lists: &SglArrays) -> Result<(), ucs_status_t> {
        let at_once = self.p.has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL);
        let mapped = self.worker.ctx.handles.lock();
        for i in 0..lists.count {
            // SAFETY: the caller's lists are valid.
            let Some(e) = (unsafe { lists.element(i) })? else {
                continue;
            };
            self.belongs(&e, &mapped).map_err(|what| {
                log::error!("{NAME}: element {i} has {what}");
                UCS_ERR_INVALID_PARAM
            })?;
            let path = rma::path(self.worker, self.peer, e.rkey, e.addr, e.len * e.blocks)?;
            if at_once && !matches!(path, RmaPath::Mapped(_)) {
                return Err(UCS_ERR_NO_RESOURCE);
            }
        }
        Ok(())
    }

    unsafe fn run(&mut self, lists: &SglArrays) -> Result<(), ucs_status_t> {
        for i in 0..lists.count {
            // SAFETY: the caller's lists and memory are valid.
            unsafe {
                if let Some(e) = lists.element(i)? {
                    self.element(&e)?;
                }
            }
        }
        // SAFETY: the caller's lists and memory are valid.
        unsafe { self.flush() }
    }

    unsafe fn element(&mut self, e: &SglElement) -> Result<(), ucs_status_t> {
        let path = rma::path(self.worker, self.peer, e.rkey, e.addr, e.len * e.blocks)?;
        for block in 0..e.blocks {
            // The blocks of an element are contiguous at the peer.
            let (ptr, offset) = (e.buffer.wrapping_add(block * e.stride), block * e.len);
            let addr = e.addr.wrapping_add(offset as u64);
            // SAFETY: the user's memory is valid; the remote range was checked to be in its region.
            unsafe {
                let data = self.p.piece(self.worker, NAME, ptr, e.len)?;
                match path {
                    _ if data.as_contig().is_none() => {
                        let there = path.mapped().map(|local| local.add(offset));
                        self.access_device(data, there, addr)?;
                    }
                    RmaPath::Mapped(local) => self.direct(ptr, local.add(offset), e.len),
                    RmaPath::Cma => self.attach(ptr, addr, e.len)?,
                    RmaPath::Adapter(device) => {
                        let key = e.rkey.tl.rma_key(device, addr, e.len);
                        self.queue(data, addr, key)?;
                    }
                    RmaPath::Message => self.queue(data, addr, None)?,
                }
            }
        }
        Ok(())
    }

    /// Accesses a piece in memory of a device: `there`, if the remote memory is mapped, else by message.
    ///
    /// # Safety
    /// The ranges are valid; the data end here, or with the request.
    unsafe fn access_device(
        &mut self,
        data: Data,
        there: Option<*mut u8>,
        addr: u64,
    ) -> Result<(), ucs_status_t> {
        // SAFETY: the caller's promise.
        unsafe {
            let Some(there) = there else {
                return self.queue(data, addr, None);
            };
            match self.direction {
                CmaDirection::Write => data.read_out(there),
                CmaDirection::Read => data.write_in(there),
            }
        }
    }

    unsafe fn direct(&self, ptr: *mut u8, local: *mut u8, len: usize) {
        let (src, dst) = match self.direction {
            CmaDirection::Write => (ptr, local),
            CmaDirection::Read => (local, ptr),
        };
        // SAFETY: the caller's ranges are valid. They can overlap in a program's own memory.
        unsafe { copy::overlapping(dst, src, len) };
    }

    unsafe fn attach(&mut self, ptr: *mut u8, addr: u64, len: usize) -> Result<(), ucs_status_t> {
        let here = IoSpan {
            addr: ptr as u64,
            len,
        };
        let there = IoSpan { addr, len };
        if !self.local.push(here) {
            // SAFETY: all pieces that were pushed are the user's memory.
            unsafe { self.flush() }?;
            self.local.push(here);
        }
        self.remote.push(there);
        Ok(())
    }

    /// Copies the collected pieces by CMA; if the kernel does not allow it, posts them as messages.
    unsafe fn flush(&mut self) -> Result<(), ucs_status_t> {
        let (local, remote) = (&mut self.local, &mut self.remote);
        // SAFETY: the caller's memory is valid.
        let moved = unsafe { self.peer.cma().transfer(self.direction, local, remote) };
        if moved == Err(UCS_ERR_UNSUPPORTED) {
            // The two lists have equal pieces, and nothing was copied.
            let (mut local, mut remote) = (Spans::new(), Spans::new());
            std::mem::swap(&mut local, &mut self.local);
            std::mem::swap(&mut remote, &mut self.remote);
            for (l, r) in local.as_slice().iter().zip(remote.as_slice()) {
                let (ptr, len) = (l.addr as *mut u8, l.len);
                // SAFETY: the caller's memory is valid.
                unsafe { self.queue(Data::Contig { ptr, len }, r.addr, None) }?;
            }
            return Ok(());
        }
        self.local.clear();
        self.remote.clear();
        moved
    }

    /// Posts a piece by the adapter of its key, or else by message.
    unsafe fn queue(
        &mut self,
        data: Data,
        addr: u64,
        key: Option<RmaKey>,
    ) -> Result<(), ucs_status_t> {
        // SAFETY: new requests; all fields of the child are set before it is posted.
        unsafe {
            if self.parent.is_null() {
                self.parent = request_alloc::take(self.worker, self.p.external());
                let parent = &mut *self.parent;
                (parent.peer, parent.ep) = (Some(PeerRef::new(self.peer)), EndpointId::of(self.ep));
                parent.op = Op::Parent(ChildOps::new(1));
                (parent.notify, parent.user_data) = (self.p.notify_send(), self.p.user_data());
            }
            let child = request_alloc::take(self.worker, std::ptr::null_mut());
            let c = &mut *child;
            (c.data, c.peer, c.ep) = (data, Some(PeerRef::new(self.peer)), EndpointId::of(self.ep));
            (c.notify, c.user_data) = (Callback::Internal(child_ended), self.parent.cast());
            match key {
                Some(key) => tx::rma::set_rma(c, self.direction, addr, key),
                None => rma_sw::set_am(c, self.direction, addr),
            }
            let answered = c.is_answered();
            if let Some(children) = request::children_of(self.parent) {
                children.expect_one_more();
            }
            match tx::post(child) {
                PostResult::Done if !answered => {
                    child_ended(child, (*child).data.finish(UCS_OK));
                }
                PostResult::Done | PostResult::Queued => {}
                PostResult::Failed(status) => child_ended(child, (*child).data.finish(status)),
            }
        }
        Ok(())
    }

    /// Return value of the access.
    unsafe fn end(self, done: Result<(), ucs_status_t>) -> ucs_status_ptr_t {
        let status = done.err().unwrap_or(UCS_OK);
        if status == UCS_ERR_CONNECTION_RESET {
            self.worker.fail_peer(self.peer, status);
        }
        // SAFETY: the parent is not freed before this call's count is dropped; otherwise the request is new.
        unsafe {
            if self.parent.is_null() {
                if !self.p.has(UCP_OP_ATTR_FLAG_NO_IMM_CMPL) || status != UCS_OK {
                    return status_ptr(status);
                }
                let req = request_alloc::take(self.worker, self.p.external());
                ((*req).notify, (*req).user_data) = (self.p.notify_send(), self.p.user_data());
                return param::finish(req, self.p, status);
            }
            match request::count_child(self.parent, status) {
                Some(status) => param::finish(self.parent, self.p, status),
                None => Request::handle(self.parent),
            }
        }
    }
}

/// Completes a piece, whose data have ended; the last one completes the user's request.
unsafe fn child_ended(child: *mut Request, status: ucs_status_t) {
    // SAFETY: made by `queue`; the parent is not freed before the count is 0.
    unsafe {
        let parent = (*child).user_data.cast::<Request>();
        request_alloc::recycle(child);
        if let Some(status) = request::count_child(parent, status) {
            completion::complete(parent, status);
        }
    }
}
