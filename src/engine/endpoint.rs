//! An endpoint: the user's handle for sending to a peer.

mod reference;

use super::peer::Peer;
use super::pointers::WorkerRef;
use super::stream::RxStream;
use crate::ctypes::*;
use bitflags::bitflags;
use std::cell::{Cell, OnceCell, UnsafeCell};
use std::ffi::{CStr, CString, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicBool, AtomicI8, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, Ordering,
};

pub use reference::EndpointRef;

/// Endpoints that are allocated together.
pub const EPS_PER_CHUNK: usize = 32;

bitflags! {
    /// Flags of an endpoint.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct EpFlags: u16 {
        /// Made by the library to reply to a message; `ucp_ep_create` may adopt it.
        const INTERNAL = 1 << 0;
        /// The user has closed it.
        const CLOSED = 1 << 1;
        /// Its error handler has run, or is about to.
        const FAILED = 1 << 2;
        /// It handles errors, or is a server's, and the peer is not notified of that yet: its first operation does so.
        const FRESH = 1 << 3;
        /// Flags that exclude the hot path.
        const SPECIAL = Self::CLOSED.bits() | Self::FAILED.bits() | Self::FRESH.bits();
        /// Tagged messages, active messages, remote accesses do not take the fast path
        /// (`Worker::takes_fast_path`).
        const SLOW_PATH_TAG = 1 << 4;
        const SLOW_PATH_AM = 1 << 5;
        const SLOW_PATH_RMA = 1 << 6;
        /// Flushes do not take it.
        const SLOW_PATH_FLUSH = 1 << 10;
        /// Atomic operations on words of 4 or of 8 bytes do not take it.
        const SLOW_PATH_AMO32 = 1 << 8;
        const SLOW_PATH_AMO64 = 1 << 9;
        /// Its counterpart was closed in order: it is about to be closed, or to fail.
        const LEFT = 1 << 7;
    }
}

/// No error handling mode.
pub const UNSAID: u8 = u8::MAX;

/// Handed out as `ucp_ep_h`. Memory comes from the worker's pool and stays allocated until the worker is destroyed, so
/// that a second close is detected.
#[repr(C)]
pub struct Endpoint {
    /// The pool's link, once the endpoint is freed; the other fields stay readable.
    _link: usize,
    pub worker: WorkerRef,
    peer: AtomicPtr<Peer>,
    /// Serial number among the endpoints to this peer.
    pub sn: u32,
    remote_sn: AtomicU32,
    slot: AtomicU32,
    err_mode: AtomicU8,
    remote_err_mode: AtomicU8,
    flags: AtomicU16,
    /// The user's error handler. Set by the thread that makes or modifies the endpoint.
    err_cb: Cell<ucp_err_handler_cb_t>,
    /// Argument of `err_cb` and user data for the stream poll: `ucp_ep_params_t.user_data`, or `err_handler.arg` where
    /// the program gave none with it; null if it gave neither.
    user_data: Cell<*mut c_void>,
    /// `ucp_ep_params_t.user_data` was given once: `ucp_ep_query` answers with `user_data`.
    user_data_given: Cell<bool>,
    /// The status with which it failed, 0 if it did not.
    failure: AtomicI8,
    /// The user holds it, though it may be internal: to reply to a message, or because stream bytes have arrived for
    /// it.
    user_held: AtomicBool,
    /// It has sent a message that requests a reply: the peer has made its counterpart.
    reply_requested: AtomicBool,
    /// The user's name for it.
    name: OnceCell<CString>,
    /// What it has received as a byte stream, made by the first byte or receive. Guarded by `Worker::streams`.
    pub(super) stream: UnsafeCell<Option<Box<RxStream>>>,
    /// Token of its session of sockaddr connection establishment, 0 for none. Set before other threads find it.
    session: Cell<u64>,
}

impl Endpoint {
    /// An endpoint without a peer.
    #[cfg(test)]
    pub fn unconnected(sn: u32) -> Self {
        Self::new(
            WorkerRef::UNUSED,
            std::ptr::null(),
            sn,
            sn,
            EpFlags::empty(),
        )
    }

    /// An endpoint with default parameters.
    pub(super) fn new(
        worker: WorkerRef,
        peer: *const Peer,
        sn: u32,
        remote_sn: u32,
        flags: EpFlags,
    ) -> Self {
        Self {
            _link: 0,
            worker,
            peer: AtomicPtr::new(peer.cast_mut()),
            sn,
            remote_sn: AtomicU32::new(remote_sn),
            slot: AtomicU32::new(0),
            err_mode: AtomicU8::new(ucp_err_handling_mode_t::UCP_ERR_HANDLING_MODE_NONE as u8),
            remote_err_mode: AtomicU8::new(UNSAID),
            flags: AtomicU16::new(flags.bits()),
            failure: AtomicI8::new(0),
            err_cb: Cell::new(None),
            user_data: Cell::new(std::ptr::null_mut()),
            user_data_given: Cell::new(false),
            user_held: AtomicBool::new(false),
            reply_requested: AtomicBool::new(false),
            name: OnceCell::new(),
            stream: UnsafeCell::new(None),
            session: Cell::new(0),
        }
    }

    /// The peer.
    #[inline(always)]
    pub fn peer<'a>(&self) -> &'a Peer {
        // Relaxed: peers are made long before; one that is left behind sends requests after it on.
        // SAFETY: the endpoint has a reference to its peer; placeholders live as long as an endpoint leads to them.
        unsafe { &*self.peer.load(Ordering::Relaxed) }
    }

    /// Leads elsewhere from now on: the server of a client's endpoint is known.
    pub fn set_peer(&self, peer: &Peer) {
        self.peer
            .store((&raw const *peer).cast_mut(), Ordering::Relaxed);
    }

    /// Serial number of its counterpart at the peer.
    #[inline(always)]
    pub fn remote_sn(&self) -> u32 {
        // Relaxed: changed only when the user adopts an internal endpoint, before the user knows it.
        self.remote_sn.load(Ordering::Relaxed)
    }

    /// Sets the number of its counterpart.
    pub fn set_remote_sn(&self, sn: u32) {
        self.remote_sn.store(sn, Ordering::Relaxed);
    }

    /// Index in the peer's table, whose lock the caller holds.
    pub(super) fn slot(&self) -> u32 {
        self.slot.load(Ordering::Relaxed)
    }

    /// Sets the index in the peer's table, whose lock the caller holds.
    pub(super) fn set_slot(&self, slot: u32) {
        self.slot.store(slot, Ordering::Relaxed);
    }

    /// Error handling mode of the user.
    pub fn err_mode(&self) -> u8 {
        // Relaxed: set before other threads use the endpoint as the user's.
        self.err_mode.load(Ordering::Relaxed)
    }

    /// Sets the error handling mode.
    pub fn set_err_mode(&self, mode: u8) {
        self.err_mode.store(mode, Ordering::Relaxed);
    }

    /// Error handling mode of the counterpart, [`UNSAID`] before it is known.
    pub fn remote_err_mode(&self) -> u8 {
        // Relaxed: the thread that progresses sets it, and the flags decide alone.
        self.remote_err_mode.load(Ordering::Relaxed)
    }

    /// Sets the error handling mode of the counterpart.
    pub fn set_remote_err_mode(&self, mode: u8) {
        self.remote_err_mode.store(mode, Ordering::Relaxed);
    }

    /// The user's error handler.
    pub fn err_cb(&self) -> ucp_err_handler_cb_t {
        self.err_cb.get()
    }

    /// Sets the user's error handler and its argument, which is what a stream poll answers with, unless the program
    /// gives user data later.
    pub fn set_err_handler(&self, handler: ucp_err_handler_t) {
        self.err_cb.set(handler.cb);
        self.user_data.set(handler.arg);
    }

    /// Argument of the error handler, and user data for the stream poll.
    pub fn user_data(&self) -> *mut c_void {
        self.user_data.get()
    }

    /// Sets the user data.
    pub fn set_user_data(&self, user_data: *mut c_void) {
        self.user_data.set(user_data);
        self.user_data_given.set(true);
    }

    /// The user data that the program gave as such, or null.
    pub fn queried_user_data(&self) -> *mut c_void {
        if self.user_data_given.get() {
            self.user_data.get()
        } else {
            std::ptr::null_mut()
        }
    }

    /// The user's name for it.
    pub fn name(&self) -> Option<&CStr> {
        self.name.get().map(CString::as_c_str)
    }

    /// Sets the user's name for it. An endpoint keeps the first one.
    pub fn set_name(&self, name: CString) {
        let _ = self.name.set(name);
    }

    /// Frees its name, the only memory that it owns.
    ///
    /// # Safety
    /// There is no reference to the endpoint.
    pub unsafe fn free_name(this: *mut Self) {
        // SAFETY: the caller's promise.
        drop(unsafe { (*this).name.take() });
    }

    /// Whether the user holds it, though it may be internal.
    pub fn is_user_held(&self) -> bool {
        // Relaxed: only progress reads it.
        self.user_held.load(Ordering::Relaxed)
    }

    /// The user is given it.
    pub fn set_user_held(&self) {
        self.user_held.store(true, Ordering::Relaxed);
    }

    /// Whether it has sent a message that requests a reply.
    pub fn has_requested_reply(&self) -> bool {
        // Relaxed: read by the close of the endpoint, which follows the send.
        self.reply_requested.load(Ordering::Relaxed)
    }

    /// It sends a message that requests a reply.
    pub fn set_requested_reply(&self) {
        self.reply_requested.store(true, Ordering::Relaxed);
    }

    /// Token of its session of sockaddr connection establishment, 0 for none.
    pub fn session(&self) -> u64 {
        self.session.get()
    }

    /// Sets the token of its session, before other threads find the endpoint.
    pub fn set_session(&self, token: u64) {
        self.session.set(token);
    }

    /// Whether any of these flags is set.
    #[inline(always)]
    pub fn has(&self, flags: EpFlags) -> bool {
        self.flags.load(Ordering::Relaxed) & flags.bits() != 0
    }

    /// Sets flags; true if none of them was set.
    pub fn set(&self, flags: EpFlags) -> bool {
        self.flags.fetch_or(flags.bits(), Ordering::Relaxed) & flags.bits() == 0
    }

    /// Clears flags.
    pub fn clear(&self, flags: EpFlags) {
        self.flags.fetch_and(!flags.bits(), Ordering::Relaxed);
    }

    /// Marks it as closed, in a forked child: it is the parent's.
    ///
    /// # Safety
    /// An endpoint, or one that was, or zero bytes.
    pub unsafe fn disable(this: NonNull<Self>) {
        // SAFETY: the caller's promise.
        let flags = unsafe { &(*this.as_ptr()).flags };
        flags.fetch_or(EpFlags::CLOSED.bits(), Ordering::Relaxed);
    }

    /// Made by the library, and not the user's yet.
    pub fn is_internal(&self) -> bool {
        self.has(EpFlags::INTERNAL)
    }

    /// Marks it as failed; true the first time.
    pub fn fail(&self, status: ucs_status_t) -> bool {
        let first = self.set(EpFlags::FAILED);
        if first {
            self.failure.store(status as i8, Ordering::Relaxed);
        }
        first
    }

    /// Why it failed, `UCS_OK` if it did not.
    pub fn failure(&self) -> ucs_status_t {
        ucs_status_t::from_raw(self.failure.load(Ordering::Relaxed))
    }

    /// Whether the user enabled error handling.
    pub fn handles_errors(&self) -> bool {
        self.err_mode() != ucp_err_handling_mode_t::UCP_ERR_HANDLING_MODE_NONE as u8
    }

    /// Whether its error handler is called when it fails: with error handling, and always at the endpoints of clients
    /// and servers.
    pub fn reports_failures(&self) -> bool {
        self.handles_errors() || self.session() != 0
    }

    /// Whether the two ends disagree about error handling, which cannot work.
    pub fn mismatched(&self) -> bool {
        let remote = self.remote_err_mode();
        remote != UNSAID && remote != self.err_mode()
    }
}
