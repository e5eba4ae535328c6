//! Flags of a request, which the threads that complete it and free it change, and when it was first seen to wait.

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

/// Bits of the flags. Above them is the time at which a walk over what waits (`proto::waits`) has first seen the
/// request, 0: none has. A new request's flags are written as a whole, so that the time costs the operation nothing.
const FLAG_BITS: u32 = 8;
/// Milliseconds of a unit of that time, as a shift, and the number of units after which it wraps: 49 days.
const UNIT_SHIFT: u32 = 8;
const UNITS: u64 = (1 << (u32::BITS - FLAG_BITS)) - 1;
const _: () = assert!(ReqFlags::all().bits() >> FLAG_BITS == 0);

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

    /// When a walk over what waits has first seen the request, coarse milliseconds, to within a quarter of a second
    /// before: now, if this one is the first. Called in progress, for a request that is in a list whose lock is held.
    /// `mt`: threads may overlap; else the change is not atomic.
    pub fn first_seen(&self, mt: bool, now: u64) -> u64 {
        let units = now >> UNIT_SHIFT;
        match u64::from(self.0.load(Ordering::Relaxed) >> FLAG_BITS) {
            0 => {
                // Units from 1 on. Relaxed in the atomic change: `raise` and `lower` leave these bits as they are, and
                // they publish nothing.
                let seen = ((units % UNITS) as u32 + 1) << FLAG_BITS;
                self.raise_relaxed(mt, seen);
                units << UNIT_SHIFT
            }
            seen => {
                let age = (units % UNITS + UNITS - (seen - 1)) % UNITS;
                units.saturating_sub(age) << UNIT_SHIFT
            }
        }
    }

    /// Sets bits that no other thread changes.
    fn raise_relaxed(&self, mt: bool, bits: u32) {
        if mt {
            self.0.fetch_or(bits, Ordering::Relaxed);
        } else {
            self.0
                .store(self.0.load(Ordering::Relaxed) | bits, Ordering::Relaxed);
        }
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_as_old_as_the_walk_that_saw_it_first() {
        for mt in [false, true] {
            for start in [
                0,
                1 << UNIT_SHIFT,
                (UNITS - 1) << UNIT_SHIFT,
                UNITS << UNIT_SHIFT,
            ] {
                let flags = AtomicReqFlags::new(ReqFlags::TAG_RECV);
                assert_eq!(flags.first_seen(mt, start), start);
                assert_eq!(flags.first_seen(mt, start + 10_000), start, "{start}");
                assert!(flags.has(ReqFlags::TAG_RECV) && !flags.has(ReqFlags::COMPLETED));
                flags.raise(mt, ReqFlags::COMPLETED);
                assert_eq!(flags.first_seen(mt, start + 70_000), start);
                assert!(flags.load(Ordering::Relaxed).contains(ReqFlags::COMPLETED));
            }
        }
    }

    #[test]
    fn a_request_in_reused_memory_is_new() {
        let flags = AtomicReqFlags::new(ReqFlags::SHARED);
        flags.first_seen(false, 1000);
        let flags = AtomicReqFlags::new(ReqFlags::SHARED);
        assert_eq!(
            flags.first_seen(false, 9000),
            9000 >> UNIT_SHIFT << UNIT_SHIFT
        );
    }
}
