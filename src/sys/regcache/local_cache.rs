//! A worker's cache of recent lookups in a registration cache: a hit takes no lock, and writes no memory of other
//! workers.

use super::regions::WorkerShare;
use super::{Fetched, Handle, RegCache, Registrar};
use crate::sys::mem_monitor::EventRing;
use crate::sys::va_range::VaRange;
use std::io;
use std::sync::{Arc, Weak};

/// Number of slots; a power of two.
const SLOTS: usize = 64;

struct LocalSlot<T> {
    extent: VaRange,
    share: Weak<WorkerShare<T>>,
}

/// The local cache of a worker. Used by one thread at a time.
pub struct LocalCache<R: Registrar> {
    cache: Arc<RegCache<R>>,
    events: &'static EventRing,
    /// Number of the worker in the cache.
    worker: u32,
    /// Number of events seen: the slots are valid as long as there are no more.
    seen: u64,
    /// The slot of the last hit: accesses to consecutive parts of a long region stay in it.
    recent: usize,
    slots: Box<[LocalSlot<R::Region>; SLOTS]>,
}

impl<R: Registrar> LocalCache<R> {
    pub(super) fn new(cache: Arc<RegCache<R>>, events: &'static EventRing, worker: u32) -> Self {
        let empty = || LocalSlot {
            extent: VaRange {
                start: usize::MAX,
                end: 0,
            },
            share: Weak::new(),
        };
        LocalCache {
            cache,
            events,
            worker,
            seen: super::NEVER,
            recent: 0,
            slots: Box::new(std::array::from_fn(|_| empty())),
        }
    }

    /// A registration that contains these bytes; see [`RegCache::get`].
    ///
    /// # Errors
    /// Those of [`RegCache::get`].
    #[inline]
    pub fn get(&mut self, addr: usize, len: usize) -> io::Result<Handle<R::Region>> {
        let wanted = VaRange::new(addr, len);
        match self.find(wanted) {
            Some(handle) => Ok(handle),
            None => self.fetch(wanted),
        }
    }

    /// A registration that contains these bytes, if one exists.
    #[inline]
    pub fn peek(&mut self, addr: usize, len: usize) -> Option<Handle<R::Region>> {
        let wanted = VaRange::new(addr, len);
        self.find(wanted).or_else(|| self.fetch_known(wanted))
    }

    #[inline(always)]
    fn find(&mut self, wanted: VaRange) -> Option<Handle<R::Region>> {
        if self.seen != self.events.head() {
            return None;
        }
        if let Some(handle) = self.look(self.recent, wanted) {
            return Some(handle);
        }
        let slot = slot_of(wanted.start);
        self.look(slot, wanted).inspect(|_| self.recent = slot)
    }

    #[inline(always)]
    fn look(&self, slot: usize, wanted: VaRange) -> Option<Handle<R::Region>> {
        let slot = &self.slots[slot % SLOTS];
        if !slot.extent.contains(wanted) {
            return None;
        }
        let share = slot.share.upgrade()?;
        share.touch(self.cache.now()).then_some(Handle(share))
    }

    #[cold]
    #[inline(never)]
    fn fetch(&mut self, wanted: VaRange) -> io::Result<Handle<R::Region>> {
        let fetched = self.cache.fetch(self.worker, wanted)?;
        Ok(self.remember(wanted, fetched))
    }

    #[inline(never)]
    fn fetch_known(&mut self, wanted: VaRange) -> Option<Handle<R::Region>> {
        let fetched = self.cache.fetch_known(self.worker, wanted)?;
        Some(self.remember(wanted, fetched))
    }

    fn remember(&mut self, wanted: VaRange, fetched: Fetched<R::Region>) -> Handle<R::Region> {
        if let Some(seen) = fetched.seen {
            self.seen = seen;
            self.recent = slot_of(wanted.start);
            self.slots[self.recent] = LocalSlot {
                extent: fetched.share.registered.extent,
                share: Arc::downgrade(&fetched.share),
            };
        }
        Handle(fetched.share)
    }
}

impl<R: Registrar> Drop for LocalCache<R> {
    fn drop(&mut self) {
        self.cache.leave(self.worker);
    }
}

/// The slot for addresses of this page (of 4 KiB on every machine).
#[inline(always)]
fn slot_of(addr: usize) -> usize {
    // Fibonacci hashing: pages of buffers that were allocated together spread well.
    let hash = (addr >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash >> (usize::BITS - SLOTS.ilog2())
}
