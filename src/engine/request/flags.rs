//! Flags of a request, which the threads that complete it and free it change.

use std::sync::atomic::{AtomicU32, Ordering};

bitflags::bitflags! {
    /// Flags of a request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReqFlags: u32 {
        /// The operation is complete; `status` and `info` are final.
        const COMPLETED = 1 << 0;
        /// The user has freed the handle: the completing thread frees the request.
        const RELEASED = 1 << 1;
        /// The callback is running, or about to; after it a released request is freed.
        const IN_CALLBACK = 1 << 2;
        /// `ucp_request_free` was called before completion: no callback.
        const NO_CALLBACK = 1 << 3;
        /// The memory is the user's (`UCP_OP_ATTR_FIELD_REQUEST`).
        const EXTERNAL = 1 << 4;
        /// Threads overlap in its worker: flags change atomically.
        const SHARED = 1 << 5;
        /// A tag receive, matched or not.
        const TAG_RECV = 1 << 6;
        /// A receive from a stream.
        const STREAM_RECV = 1 << 7;
    }
}

/// The flags in a request. All bits zero: none.
#[repr(transparent)]
pub struct AtomicReqFlags(AtomicU32);

impl AtomicReqFlags {
    /// With these flags.
    #[inline(always)]
    pub const fn new(flags: ReqFlags) -> Self {
        AtomicReqFlags(AtomicU32::new(flags.bits()))
    }

    /// The flags, with this ordering; Acquire pairs with the AcqRel of `raise` and `lower`, and with
    /// [`complete`](Self::complete).
    #[inline(always)]
    pub fn load(&self, order: Ordering) -> ReqFlags {
        ReqFlags::from_bits_retain(self.0.load(order))
    }

    /// Whether it has one of these flags, which other threads do not change.
    #[inline(always)]
    pub fn has(&self, flags: ReqFlags) -> bool {
        self.load(Ordering::Relaxed).intersects(flags)
    }

    /// Sets flags and returns what was there. `mt`: threads may overlap; else the change is not atomic.
    #[inline(always)]
    pub(in crate::engine) fn raise(&self, mt: bool, flags: ReqFlags) -> ReqFlags {
        if mt {
            // AcqRel: pairs with that of another `raise` or `lower`: what the completing thread wrote is visible to the
            // thread that frees, and vice versa.
            return ReqFlags::from_bits_retain(self.0.fetch_or(flags.bits(), Ordering::AcqRel));
        }
        let old = self.load(Ordering::Relaxed);
        self.0.store((old | flags).bits(), Ordering::Relaxed);
        old
    }

    /// Clears flags and returns what was there. `mt`: threads may overlap; else the change is not atomic.
    #[inline(always)]
    pub(in crate::engine) fn lower(&self, mt: bool, flags: ReqFlags) -> ReqFlags {
        if mt {
            // AcqRel: pairs with that of another `raise` or `lower`, as in `raise`.
            return ReqFlags::from_bits_retain(self.0.fetch_and(!flags.bits(), Ordering::AcqRel));
        }
        let old = self.load(Ordering::Relaxed);
        self.0.store(old.bits() & !flags.bits(), Ordering::Relaxed);
        old
    }

    /// Adds flags to a request that is the caller's alone.
    pub fn add(&self, flags: ReqFlags) {
        self.raise(false, flags);
    }

    /// Marks a request that nothing else completes.
    pub(in crate::engine) fn complete(&self) {
        // Release: pairs with the Acquire load in `Request::state`.
        self.0
            .fetch_or(ReqFlags::COMPLETED.bits(), Ordering::Release);
    }
}
