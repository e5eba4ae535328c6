//! A request: the state of one operation, in front of the user's own area.

use super::datatype::Data;
use super::endpoint::Endpoint;
use super::matcher::Posting;
use super::peer::Peer;
use super::worker::Worker;
use crate::ctypes::*;
use crate::sys::cma::Span;
use crate::tl::shm::share::Share;
use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

/// The operation has ended; `status` and `info` are final.
pub const COMPLETED: u32 = 1 << 0;
/// The user gave the handle back: whoever ends the request frees it.
pub const RELEASED: u32 = 1 << 1;
/// The callback is running, or about to: its end frees a released request.
pub const IN_CALLBACK: u32 = 1 << 2;
/// `ucp_request_free` came before the end: no callback.
pub const NO_CALLBACK: u32 = 1 << 3;
/// The memory is the user's (`UCP_OP_ATTR_FIELD_REQUEST`).
pub const EXTERNAL: u32 = 1 << 4;
/// Threads overlap in its worker: flags change atomically.
pub const SHARED: u32 = 1 << 5;
/// A tag receive, matched or not.
pub const TAG_RECV: u32 = 1 << 6;
/// A receive from a stream.
pub const STREAM_RECV: u32 = 1 << 7;

/// Who hears of the end.
#[derive(Clone, Copy)]
pub enum Notify {
    Nobody,
    Send(unsafe extern "C" fn(*mut c_void, ucs_status_t, *mut c_void)),
    TagRecv(
        unsafe extern "C" fn(*mut c_void, ucs_status_t, *const ucp_tag_recv_info_t, *mut c_void),
    ),
    Length(unsafe extern "C" fn(*mut c_void, ucs_status_t, usize, *mut c_void)),
    /// An operation of the library's own; frees the request or keeps it.
    Internal(unsafe fn(*mut Request, ucs_status_t)),
}

/// What happens when a request's messages have all been handed to the transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// The operation has ended.
    Complete,
    /// The peer will answer.
    Await,
    /// A marker: everything before it on this peer has been sent.
    Flush,
}

/// The state of an operation. What the fields mean depends on the operation; unused ones are zero, but
/// for what is behind `info` in a tag receive that has not become a rendezvous.
/// `REQUEST_SIZE` bytes, 8-byte aligned because users place it on their stacks.
#[repr(C)]
pub struct Request {
    pub flags: AtomicU32,
    pub status: ucs_status_t,
    pub sent: Sent,
    /// Several messages, each with the offset of its part in `head`.
    pub stream: bool,
    /// The message goes without the data, which the receiver fetches.
    pub bare: bool,
    pub worker: *const Worker,
    /// The matcher's, while a tag receive waits in it.
    pub posting: Posting,
    pub notify: Notify,
    pub user_data: *mut c_void,
    pub data: Data,
    /// Tag and length received; the answer of `ucp_request_test`.
    pub info: ucp_tag_recv_info_t,
    pub peer: *const Peer,
    /// Only compared, never followed: the endpoint may be gone.
    pub ep: *const Endpoint,
    /// Immediate of the message: tag, remote address or the peer's id.
    pub imm: u64,
    pub head: [u8; 32],
    /// The user's active message header, behind the data.
    pub tail: *const u8,
    pub tail_len: u32,
    /// Message kind, auxiliary byte and number of bytes in `head`.
    pub kind: u8,
    pub aux: u8,
    pub head_len: u8,
    /// `tail` is a boxed slice of the request's own.
    pub tail_owned: bool,
    /// Entries of the list of the sender's pieces at `remote`; 0: `remote` is one piece.
    pub listed: u32,
    /// The sender has other messages that wait as this one does.
    pub one_of_many: bool,
    /// That list, once it was fetched.
    pub pieces: Option<Box<[Span]>>,
    /// Bytes moved so far.
    pub offset: u64,
    /// The peer's address and id in a rendezvous; children of a flush.
    pub remote: u64,
    pub remote_id: u64,
    /// What the peer calls this request, 0 if it does not.
    pub id: u64,
}

/// A receive whose sender copies a part.
#[derive(Clone, Copy)]
pub struct Sharing {
    /// In the ring through which we talk to the sender.
    pub share: NonNull<Share>,
    pub generation: u32,
    /// Pieces that are the receiver's.
    pub own: u32,
}

/// Bytes of a request before the user's area, as `ucp_context_query` reports them.
pub const REQUEST_SIZE: usize = 272;
const _: () = assert!(
    size_of::<Request>() <= REQUEST_SIZE && align_of::<Request>() <= 8 && REQUEST_SIZE % 16 == 0
);

impl Request {
    /// The user's handle: his area begins where ours ends.
    #[inline(always)]
    pub fn handle(this: *mut Request) -> *mut c_void {
        this.cast::<u8>().wrapping_add(REQUEST_SIZE).cast()
    }

    /// Of a receive whose sender copies a part. It has no message of its own: `tail` and `imm` are free.
    pub fn sharing(&self) -> Option<Sharing> {
        Some(Sharing {
            share: NonNull::new(self.tail.cast_mut().cast())?,
            generation: self.imm as u32,
            own: (self.imm >> 32) as u32,
        })
    }

    /// Sets what [`sharing`](Self::sharing) returns.
    pub fn set_sharing(&mut self, sharing: Option<Sharing>) {
        self.tail = sharing.map_or(ptr::null(), |s| s.share.as_ptr().cast_const().cast());
        self.imm = sharing.map_or(0, |s| u64::from(s.own) << 32 | u64::from(s.generation));
    }

    /// The request that a posting lies in.
    #[inline(always)]
    pub fn of_posting(posting: *mut Posting) -> *mut Request {
        posting
            .wrapping_byte_sub(offset_of!(Request, posting))
            .cast()
    }

    /// The request behind a handle.
    #[inline(always)]
    pub fn of(handle: *mut c_void) -> *mut Request {
        handle.cast::<u8>().wrapping_sub(REQUEST_SIZE).cast()
    }

    /// Sets bits and returns what was there. Atomic only where threads may overlap.
    #[inline(always)]
    fn raise(&self, mt: bool, bits: u32) -> u32 {
        if mt {
            // AcqRel: what the ending thread wrote is seen by the one that frees, and vice versa.
            return self.flags.fetch_or(bits, Ordering::AcqRel);
        }
        let old = self.flags.load(Ordering::Relaxed);
        self.flags.store(old | bits, Ordering::Relaxed);
        old
    }

    #[inline(always)]
    fn lower(&self, mt: bool, bits: u32) -> u32 {
        if mt {
            // AcqRel: as in `raise`.
            return self.flags.fetch_and(!bits, Ordering::AcqRel);
        }
        let old = self.flags.load(Ordering::Relaxed);
        self.flags.store(old & !bits, Ordering::Relaxed);
        old
    }

    /// In progress, or how it ended.
    #[inline(always)]
    pub fn state(&self) -> ucs_status_t {
        // Acquire: pairs with the AcqRel of `raise(COMPLETED)`; `status` and `info` come before.
        if self.flags.load(Ordering::Acquire) & COMPLETED != 0 {
            self.status
        } else {
            UCS_INPROGRESS
        }
    }
}

/// An element of the worker's pool.
#[inline(always)]
fn from_pool(worker: &Worker) -> NonNull<u8> {
    loop {
        let element = worker.pool.lock().pop();
        match element {
            Some(element) => return element,
            None => grow(worker),
        }
    }
}

/// More elements. The user's `request_init` runs under no lock.
#[cold]
fn grow(worker: &Worker) {
    let fresh = worker.pool.lock().allocate();
    fresh.elements().for_each(|e| worker.init_request(e));
    worker.pool.lock().add(fresh);
}

/// Memory for a request, of the worker's pool or the user's, and the flags that it begins with.
///
/// # Safety
/// `external`, if not null, is the end of `REQUEST_SIZE` writable, 8-byte aligned bytes.
#[inline(always)]
unsafe fn memory(worker: &Worker, external: *mut c_void) -> (*mut Request, u32) {
    let shared = if worker.mt { SHARED } else { 0 };
    if !external.is_null() {
        return (Request::of(external), EXTERNAL | shared);
    }
    (from_pool(worker).as_ptr().cast(), shared)
}

/// Takes a request from the worker's pool, or the user's memory, and clears it. No lock may be held: the user's
/// `request_init` may run.
///
/// # Safety
/// `external`, if not null, is the end of `REQUEST_SIZE` writable, 8-byte aligned bytes.
#[inline]
pub unsafe fn take(worker: &Worker, external: *mut c_void) -> *mut Request {
    // SAFETY: the caller's promise.
    let (req, flags) = unsafe { memory(worker, external) };
    // SAFETY: the request's memory is ours alone now. Every field is written.
    unsafe {
        req.write(Request {
            flags: AtomicU32::new(flags),
            status: UCS_INPROGRESS,
            sent: Sent::Complete,
            stream: false,
            bare: false,
            worker,
            posting: Posting::LOOSE,
            notify: Notify::Nobody,
            user_data: ptr::null_mut(),
            data: Data::EMPTY,
            info: ucp_tag_recv_info_t {
                sender_tag: 0,
                length: 0,
            },
            peer: ptr::null(),
            ep: ptr::null(),
            imm: 0,
            head: [0; 32],
            tail: ptr::null(),
            tail_len: 0,
            kind: 0,
            aux: 0,
            head_len: 0,
            tail_owned: false,
            listed: 0,
            one_of_many: false,
            pieces: None,
            offset: 0,
            remote: 0,
            remote_id: 0,
            id: 0,
        });
    }
    req
}

/// As [`memory`], in single mode, when the pool has some.
///
/// # Safety
/// As there; single mode.
#[inline(always)]
pub unsafe fn memory_alone(worker: &Worker, external: *mut c_void) -> (*mut Request, u32) {
    if !external.is_null() {
        return (Request::of(external), EXTERNAL);
    }
    // SAFETY: the caller's promise.
    let element = unsafe { worker.pool.alone().get_some() };
    (element.cast(), 0)
}

/// As [`memory`], in a worker that threads share, when the pool has some: calls nothing.
///
/// # Safety
/// As there.
#[inline]
pub unsafe fn memory_at_hand(
    worker: &Worker,
    external: *mut c_void,
) -> Option<(*mut Request, u32)> {
    if !external.is_null() {
        return Some((Request::of(external), EXTERNAL | SHARED));
    }
    let element = worker.pool.lock().pop()?;
    Some((element.as_ptr().cast(), SHARED))
}

/// Takes a request for a tag receive, posted nowhere yet.
///
/// # Safety
/// As [`take`].
#[inline]
pub unsafe fn take_receive(
    worker: &Worker,
    external: *mut c_void,
    data: Data,
    notify: Notify,
    user_data: *mut c_void,
) -> *mut Request {
    // SAFETY: the caller's promise.
    unsafe {
        let req = fill_receive(worker, memory(worker, external), data, notify, user_data);
        (&raw mut (*req).posting).write(Posting::LOOSE);
        req
    }
}

/// Makes a tag receive of a request's memory. Written is what one needs until it is matched, but for
/// `posting`, which the matcher writes; a transfer that follows sees to the rest ([`equip`]).
///
/// # Safety
/// The memory is the caller's.
#[inline(always)]
pub unsafe fn fill_receive(
    worker: &Worker,
    (req, flags): (*mut Request, u32),
    data: Data,
    notify: Notify,
    user_data: *mut c_void,
) -> *mut Request {
    // SAFETY: the request's memory is ours alone now. No reference is made to what is not written.
    unsafe {
        (&raw mut (*req).flags).write(AtomicU32::new(flags | TAG_RECV));
        (&raw mut (*req).status).write(UCS_INPROGRESS);
        (&raw mut (*req).sent).write(Sent::Complete);
        (&raw mut (*req).stream).write(false);
        (&raw mut (*req).bare).write(false);
        (&raw mut (*req).tail_owned).write(false);
        (&raw mut (*req).pieces).write(None);
        (&raw mut (*req).worker).write(worker);
        (&raw mut (*req).notify).write(notify);
        (&raw mut (*req).user_data).write(user_data);
        (&raw mut (*req).data).write(data);
    }
    req
}

/// Clears what [`take_receive`] leaves out: the receive becomes a transfer.
pub fn equip(r: &mut Request) {
    (r.peer, r.ep, r.imm, r.tail) = (ptr::null(), ptr::null(), 0, ptr::null());
    (r.tail_len, r.kind, r.aux, r.head_len) = (0, 0, 0, 0);
    (r.offset, r.remote, r.remote_id, r.id) = (0, 0, 0, 0);
    (r.head, r.listed, r.one_of_many, r.pieces) = ([0; 32], 0, false, None);
}

/// Gives a request a name by which its peer answers. It is complete in all fields: from here on whoever holds the table
/// finds it, and the table's lock is what hands it over.
///
/// # Safety
/// The request is the caller's and has no name.
pub unsafe fn name(worker: &Worker, req: *mut Request) -> u64 {
    let mut ids = worker.ids.lock();
    let id = ids.insert(req);
    // SAFETY: the caller's promise; nobody else finds it before the lock is free.
    unsafe { (*req).id = id };
    id
}

/// Takes the name away again.
///
/// # Safety
/// The request lives and no peer was told the name.
pub unsafe fn unname(worker: &Worker, req: *mut Request) {
    let mut ids = worker.ids.lock();
    // SAFETY: the caller's promise. Under the lock, as whoever looks through the table reads it.
    unsafe {
        ids.remove((*req).id);
        (*req).id = 0;
    }
}

/// Ends a request: status, then the callback, then the memory if the user gave it back before.
/// No lock may be held: the callback may call anything but progress.
///
/// # Safety
/// The request is in no queue, list or table any more and has not ended.
pub unsafe fn complete(req: *mut Request, status: ucs_status_t) {
    // SAFETY: the caller's promise; the request stays allocated until `put`. It ends once; requests
    // do not outlive their worker.
    unsafe {
        let r = &mut *req;
        r.data.finish();
        drop_tail(r);
        r.status = status;
        if let Notify::Internal(f) = r.notify {
            return f(req, status);
        }
        tell((*r.worker).mt, req);
    }
}

/// Ends a tag receive whose data is one piece, or has been finished: as [`complete`] without what such
/// a request never has.
///
/// # Safety
/// As [`complete`]; `MT` says whether threads overlap in the request's worker.
#[inline(always)]
pub unsafe fn complete_receive<const MT: bool>(req: *mut Request, status: ucs_status_t) {
    // SAFETY: the caller's promise.
    unsafe {
        (*req).status = status;
        tell(MT, req);
    }
}

/// Makes the end of a request known. Its status is written.
///
/// # Safety
/// As [`complete`].
#[inline(always)]
unsafe fn tell(mt: bool, req: *mut Request) {
    // SAFETY: the request stays allocated until `put`.
    unsafe {
        if let Notify::Nobody = (*req).notify {
            if (*req).raise(mt, COMPLETED) & RELEASED != 0 {
                put(req);
            }
        } else {
            call_back(mt, req);
        }
    }
}

#[inline(never)]
unsafe fn call_back(mt: bool, req: *mut Request) {
    // SAFETY: the request stays allocated until `put`: IN_CALLBACK keeps `release` from freeing it.
    unsafe {
        let status = (*req).status;
        let due = Due {
            notify: (*req).notify,
            user_data: (*req).user_data,
            info: (*req).info,
        };
        // From here on the user knows the end and can give back his own memory, at the latest in the callback.
        let before = (*req).raise(mt, COMPLETED | IN_CALLBACK);
        if before & NO_CALLBACK == 0 {
            due.call(req, status);
        }
        if before & EXTERNAL == 0 && (*req).lower(mt, IN_CALLBACK) & RELEASED != 0 {
            put(req);
        }
    }
}

/// A callback with what it gets, kept outside of the request: it may be gone when it has ended.
struct Due {
    notify: Notify,
    user_data: *mut c_void,
    info: ucp_tag_recv_info_t,
}

impl Due {
    unsafe fn call(&self, req: *mut Request, status: ucs_status_t) {
        let (handle, user_data, info) = (Request::handle(req), self.user_data, &self.info);
        // SAFETY: the callback gets what UCP says it gets.
        unsafe {
            match self.notify {
                Notify::Send(f) => f(handle, status, user_data),
                Notify::TagRecv(f) => f(handle, status, info, user_data),
                Notify::Length(f) => f(handle, status, info.length, user_data),
                Notify::Nobody | Notify::Internal(_) => {}
            }
        }
    }
}

fn drop_tail(r: &mut Request) {
    r.pieces = None;
    if r.tail_owned {
        let slice = ptr::slice_from_raw_parts_mut(r.tail.cast_mut(), r.tail_len as usize);
        // SAFETY: made by `own_tail` from a boxed slice of this length.
        drop(unsafe { Box::from_raw(slice) });
        r.tail_owned = false;
        r.tail_len = 0;
    }
}

/// Copies the user's header, so that he may reuse his.
///
/// # Safety
/// `tail_len` bytes are readable at `tail`.
pub unsafe fn own_tail(r: &mut Request) {
    if r.tail_len > 0 && !r.tail_owned {
        // SAFETY: the caller's promise.
        let copy: Box<[u8]> =
            unsafe { std::slice::from_raw_parts(r.tail, r.tail_len as usize) }.into();
        r.tail = Box::into_raw(copy).cast();
        r.tail_owned = true;
    }
}

/// The user gives a handle back. `silent`: his callback, if still due, is dropped.
///
/// # Safety
/// A handle from this library that was not given back before.
#[inline(always)]
pub unsafe fn release(req: *mut Request, silent: bool) {
    // SAFETY: allocated until given back.
    unsafe {
        // Acquire: pairs with the AcqRel of `raise` and `lower`. Once these say that it has ended
        // nobody else writes them.
        let flags = (*req).flags.load(Ordering::Acquire);
        const UNLIKELY: u32 = IN_CALLBACK | RELEASED | EXTERNAL | SHARED;
        if flags & (COMPLETED | UNLIKELY) == COMPLETED {
            let element = NonNull::new_unchecked(req.cast());
            (*(*req).worker).pool.alone().put(element);
        } else {
            release_early(req, silent);
        }
    }
}

#[inline(never)]
unsafe fn release_early(req: *mut Request, silent: bool) {
    // SAFETY: allocated until given back.
    let r = unsafe { &*req };
    // Acquire: as in `release`: if it has ended there is no need for more than a look.
    let flags = r.flags.load(Ordering::Acquire);
    if flags & (COMPLETED | IN_CALLBACK | RELEASED) == COMPLETED {
        // SAFETY: ended, and its callback has returned.
        return unsafe { put(req) };
    }
    let mt = flags & SHARED != 0;
    let bits = if silent {
        RELEASED | NO_CALLBACK
    } else {
        RELEASED
    };
    let old = r.raise(mt, bits);
    if old & COMPLETED != 0 && old & (IN_CALLBACK | RELEASED) == 0 {
        // SAFETY: ended, and its callback has returned.
        unsafe { put(req) };
    }
}

/// Returns the memory to the pool.
///
/// # Safety
/// Nobody refers to the request any more.
#[inline]
pub unsafe fn put(req: *mut Request) {
    // SAFETY: the caller's promise.
    unsafe {
        if (*req).flags.load(Ordering::Relaxed) & EXTERNAL == 0 {
            (*(*req).worker)
                .pool
                .lock()
                .put(NonNull::new_unchecked(req.cast()));
        }
    }
}

/// Frees a request that ended inside of the call that made it: as [`complete`] without telling
/// anybody. If the memory is the user's he may still look at it: Open MPI's blocking receive polls
/// the request that it gave, whatever the call returned.
///
/// # Safety
/// As [`complete`].
pub unsafe fn abandon(req: *mut Request, status: ucs_status_t) {
    // SAFETY: the caller's promise.
    unsafe {
        (*req).data.finish();
        drop_tail(&mut *req);
        (*req).status = status;
        // Release: as in `raise`.
        (*req).flags.fetch_or(COMPLETED, Ordering::Release);
        put(req);
    }
}

/// The ends of `take`, for requests of the library's own that never reach the user.
///
/// # Safety
/// As [`put`]; used as `Notify::Internal`.
pub unsafe fn discard(req: *mut Request, _status: ucs_status_t) {
    // SAFETY: the caller's promise.
    unsafe { put(req) };
}

/// What the request is about, for people.
pub fn describe(r: &Request) -> String {
    let flags = r.flags.load(Ordering::Relaxed);
    let what = if flags & TAG_RECV != 0 {
        "recv"
    } else {
        "send"
    };
    let how = if r.stream {
        "fragments"
    } else if r.bare {
        "rendezvous"
    } else {
        "eager"
    };
    let state = if flags & COMPLETED != 0 {
        "completed"
    } else {
        "in progress"
    };
    format!("{what} length {} host memory, {how}, {state}", r.data.len())
}
