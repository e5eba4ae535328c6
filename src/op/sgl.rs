//! Scatter-gather put and get: pieces of local memory, each with an address and a key at the peer.

use super::param::{self, Param, status_ptr};
use super::traced_send::TracedList;
use super::{rma, short};
use crate::ctypes::*;
use crate::engine::completion;
use crate::engine::datatype::Data;
use crate::engine::endpoint::Endpoint;
use crate::engine::memory::MemHandle;
use crate::engine::peer::Peer;
use crate::engine::pointers::{EndpointId, PeerRef};
use crate::engine::request::{self, Callback, ChildOps, Op, Request};
use crate::engine::request_alloc;
use crate::engine::rkey::{Rkey, RkeyAccess};
use crate::engine::worker::Worker;
use crate::proto::select::rma::RmaPath;
use crate::proto::tx::{self, PostResult, rma_sw};
use crate::sys::cma::{CmaDirection, IoSpan, Spans};
use crate::sys::copy;
use crate::sys::cuda::MemoryInfo;
use crate::sys::log;
use crate::sys::trace;
use crate::tl::rma::RmaKey;
use std::collections::HashSet;
use std::ffi::c_void;

mod adapter;
mod arrays;
mod check;
mod device;
mod host_pieces;
mod in_place;
mod kernel;
mod key_table;
mod mapped;
mod messages;
use arrays::{SglArrays, SglElement};
use device::{DevicePiece, SglDevice};
use messages::MessagePieces;

const SGL: u64 = UCP_DATATYPE_SGL as u64;
const FEATURE: u64 = UCP_FEATURE_RMA as u64;
const NAME: &str = "scatter-gather access";
/// The remote address that callers give with a list; the key is null.
const UCP_REMOTE_ADDR_INVALID: u64 = u64::MAX;

/// Bytes; no element is so long, as no program's part of an address space is.
const MAX_LEN: usize = 1 << 56;

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
    /// Pieces in memory of devices. `None`: there were none.
    device: Option<Box<SglDevice>>,
    /// Pieces that go by message.
    messages: MessagePieces,
    /// Pieces were copied by CMA.
    has_cma: bool,
    /// The timeline records the access.
    traced: Option<TracedList>,
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
        let traced = match trace::is_on() {
            true => TracedList::begin(lists.bytes(), lists.count),
            false => None,
        };
        let is_mapped = mapped::copy(worker, peer, direction, &lists, p);
        let mut t = SglOp {
            worker,
            peer,
            ep,
            direction,
            p,
            local: Spans::new(),
            remote: Spans::new(),
            parent: std::ptr::null_mut(),
            device: None,
            messages: MessagePieces::default(),
            has_cma: false,
            traced,
        };
        if is_mapped {
            return t.end(Ok(()));
        }
        if t.is_for_kernel(&lists) {
            let done = t.copy_by_kernel(&lists);
            return t.end(done);
        }
        if let Some(pieces) = t.pieces_for_adapter(&lists) {
            t.post_pieces(pieces);
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
        let is_range = e.addr.checked_add((e.len * e.blocks) as u64).is_some();
        if !is_range || e.len * e.blocks >= MAX_LEN {
            return Err("remote memory beyond the address space");
        }
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

    unsafe fn check(&mut self, lists: &SglArrays) -> Result<(), ucs_status_t> {
        // SAFETY: the caller's lists are valid.
        unsafe {
            self.check_remote(lists)?;
            self.check_memory(lists)
        }
    }

    /// Checks keys, memory handles and how the remote memory is accessed.
    unsafe fn check_remote(&self, lists: &SglArrays) -> Result<(), ucs_status_t> {
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

    /// Checks the kind of the local memory: the driver is asked, without a lock.
    unsafe fn check_memory(&mut self, lists: &SglArrays) -> Result<(), ucs_status_t> {
        if !self.p.is_kind_open() {
            return Ok(());
        }
        for i in 0..lists.count {
            // SAFETY: the caller's lists are valid.
            if let Some(e) = unsafe { lists.element(i) }? {
                self.memory_of_device(e.buffer)?;
            }
        }
        Ok(())
    }

    /// Starts all pieces of a list. Those that go by message to a peer leave together.
    unsafe fn run(&mut self, lists: &SglArrays) -> Result<(), ucs_status_t> {
        tx::batch(&mut self.peer.tx.lock(), true);
        // SAFETY: the caller's lists and memory are valid.
        let done = unsafe { self.run_each(lists) };
        // SAFETY: the caller's memory is valid.
        unsafe { self.post_last_message() };
        tx::batch(&mut self.peer.tx.lock(), false);
        done
    }

    unsafe fn run_each(&mut self, lists: &SglArrays) -> Result<(), ucs_status_t> {
        for i in 0..lists.count {
            // SAFETY: the caller's lists and memory are valid.
            unsafe {
                if let Some(e) = lists.element(i)? {
                    self.element(&e)?;
                }
            }
        }
        // SAFETY: the caller's lists and memory are valid.
        unsafe {
            self.copy_pieces()?;
            self.flush()
        }
    }

    /// What the driver knows of the memory at an address, unless it is the host's. Asked only where the caller has left
    /// the kind open.
    ///
    /// # Errors
    /// Those of [`Param::piece_memory`].
    fn memory_of_device(&mut self, ptr: *mut u8) -> Result<Option<MemoryInfo>, ucs_status_t> {
        let lookup = &mut self.device.get_or_insert_default().lookup;
        self.p.piece_memory(self.worker, NAME, ptr as u64, lookup)
    }

    unsafe fn element(&mut self, e: &SglElement) -> Result<(), ucs_status_t> {
        let path = rma::path(self.worker, self.peer, e.rkey, e.addr, e.len * e.blocks)?;
        for block in 0..e.blocks {
            // The blocks of an element are contiguous at the peer.
            let (ptr, offset) = (e.buffer.wrapping_add(block * e.stride), block * e.len);
            let addr = e.addr.wrapping_add(offset as u64);
            // SAFETY: the user's memory is valid; the remote range was checked to be in its region.
            unsafe {
                if self.p.is_kind_open()
                    && let Some(memory) = self.memory_of_device(ptr)?
                {
                    let piece = DevicePiece {
                        here: ptr as u64,
                        there: addr,
                        len: e.len,
                        memory,
                        key: (path.device())
                            .and_then(|device| e.rkey.tl.rma_key(device, addr, e.len)),
                        is_of_device: e.rkey.access == RkeyAccess::Message,
                    };
                    let mapped = path.mapped().map(|local| local.add(offset));
                    self.device_piece(piece, mapped, e.rkey.device.as_deref());
                    continue;
                }
                let data = Data::Contig { ptr, len: e.len };
                match path {
                    RmaPath::Mapped(local) => self.direct(ptr, local.add(offset), e.len),
                    RmaPath::Cma => self.attach(ptr, addr, e.len)?,
                    RmaPath::Adapter(device) => {
                        let key = e.rkey.tl.rma_key(device, addr, e.len);
                        self.queue(data, addr, key);
                    }
                    RmaPath::Message => {
                        let handle = e.rkey.device.as_deref();
                        let is_copied = handle
                            .is_some_and(|handle| self.host_piece(ptr, (addr, e.len), handle));
                        match e.rkey.access {
                            _ if is_copied => {}
                            RkeyAccess::Message => self.queue_for_device((ptr, e.len), addr),
                            _ => self.queue(data, addr, None),
                        }
                    }
                }
            }
        }
        Ok(())
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
        let has_pieces = !local.as_slice().is_empty();
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
                unsafe { self.queue(Data::Contig { ptr, len }, r.addr, None) };
            }
            return Ok(());
        }
        self.has_cma |= has_pieces;
        self.local.clear();
        self.remote.clear();
        moved
    }

    /// Posts a piece by the adapter of its key, or else by message.
    unsafe fn queue(&mut self, data: Data, addr: u64, key: Option<RmaKey>) {
        // SAFETY: new requests; all fields of the child are set before it is posted.
        unsafe {
            let child = self.child(data);
            let c = &mut *child;
            match key {
                Some(key) => tx::rma::set_rma(c, self.direction, addr, key),
                None => rma_sw::set_am(c, self.direction, addr),
            }
            self.post(child);
        }
    }

    /// Posts a child of the user's request.
    ///
    /// # Safety
    /// The child is complete in all fields.
    unsafe fn post(&mut self, child: *mut Request) {
        // SAFETY: the caller's child, which is in no queue.
        unsafe {
            let answered = (*child).is_answered();
            let status = match tx::post(child) {
                PostResult::Done if !answered => UCS_OK,
                PostResult::Done | PostResult::Queued => return,
                PostResult::Failed(status) => status,
            };
            (*child).extra = None;
            child_ended(child, (*child).data.finish(status));
        }
    }

    /// The user's request, which is made if there is none.
    fn parent(&mut self) -> *mut Request {
        if self.parent.is_null() {
            // SAFETY: a new request.
            unsafe {
                self.parent = request_alloc::take(self.worker, self.p.external());
                let parent = &mut *self.parent;
                (parent.peer, parent.ep) = (Some(PeerRef::new(self.peer)), EndpointId::of(self.ep));
                parent.op = Op::Parent(ChildOps::new(1));
                (parent.notify, parent.user_data) = (self.p.notify_send(), self.p.user_data());
            }
        }
        self.parent
    }

    /// A request for some of the pieces, counted as a child of the user's request.
    ///
    /// # Safety
    /// The data are valid until the child ends.
    unsafe fn child(&mut self, data: Data) -> *mut Request {
        let parent = self.parent();
        // SAFETY: new requests.
        unsafe {
            let child = request_alloc::take(self.worker, std::ptr::null_mut());
            let c = &mut *child;
            (c.data, c.peer, c.ep) = (data, Some(PeerRef::new(self.peer)), EndpointId::of(self.ep));
            (c.notify, c.user_data) = (Callback::Internal(child_ended), parent.cast());
            if let Some(children) = request::children_of(parent) {
                children.expect_one_more();
            }
            child
        }
    }

    /// Return value of the access.
    unsafe fn end(&mut self, done: Result<(), ucs_status_t>) -> ucs_status_ptr_t {
        let status = done.err().unwrap_or(UCS_OK);
        if status == UCS_ERR_CONNECTION_RESET {
            self.worker.fail_peer(self.peer, status);
        }
        // SAFETY: the parent is not freed before this call's count is dropped; otherwise the request is new.
        unsafe {
            if self.parent.is_null() {
                if let (Some(list), UCS_OK) = (self.traced.take(), status) {
                    let scheme = if self.has_cma { "CMA" } else { "mapped" };
                    list.record_copy(self.direction, self.peer.uid, scheme);
                }
                if !self.p.has(UCP_OP_ATTR_FLAG_NO_IMM_CMPL) || status != UCS_OK {
                    return status_ptr(status);
                }
                let req = request_alloc::take(self.worker, self.p.external());
                ((*req).notify, (*req).user_data) = (self.p.notify_send(), self.p.user_data());
                return param::finish(req, self.p, status);
            }
            // The callback of the parent is replaced before another thread can complete it.
            let id =
                (self.traced.take()).map(|list| list.add(self.peer, self.direction, self.parent));
            match request::count_child(self.parent, status) {
                Some(status) => {
                    let status = device::finish_staged(self.parent, status);
                    if id.is_some() {
                        self.worker.traced.take(self.parent, Some(status));
                    }
                    param::finish(self.parent, self.p, status)
                }
                None => {
                    if let Some(id) = id {
                        self.worker.traced.confirm(self.parent, id, |_| ());
                    }
                    Request::handle(self.parent)
                }
            }
        }
    }
}

/// Completes a piece, whose data have ended; the last one completes the user's request.
unsafe fn child_ended(child: *mut Request, status: ucs_status_t) {
    // SAFETY: a child, whose `user_data` is its parent; the parent is not freed before the count is 0.
    unsafe {
        let parent = (*child).user_data.cast::<Request>();
        request_alloc::recycle(child);
        if let Some(status) = request::count_child(parent, status) {
            completion::complete(parent, device::finish_staged(parent, status));
        }
    }
}
