//! Registration cache: one for each memory domain, with a local cache for each worker.
//!
//! A region is registered for the pages of the requested range, and for no more: a page in use must not be unmapped by
//! the program, its neighbours may be. Events of `mem_monitor` withdraw regions: the next lookup removes them first.
//! Regions in use live until their last handle is dropped, and are not returned again.
//!
//! **Guarantee.** A lookup that begins after the unmapping call has returned, in program order, does not return a
//! region that was registered before that call's effect. (With a genuine libucm, or Open MPI's reports, which precede
//! the call: that was registered before that report.)

mod limits;
mod local_cache;
mod policy;
mod regions;

use crate::sys::arch::OwnLine;
use crate::sys::cuda::Cuda;
use crate::sys::dl_objects;
use crate::sys::log;
use crate::sys::mem_monitor::{self, EventRing, Monitor, UnmapEvent};
use crate::sys::trace::{self, ArgValue};
use crate::sys::va_range::VaRange;
use parking_lot::Mutex;
use regions::{CacheEntry, CachedRegions, Registered, Reservation, Usage, WorkerShare};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub use limits::{PinnedUsage, advice, is_shortage, refused};
pub use local_cache::LocalCache;
pub use policy::CachePolicy;

/// A memory domain, which registers memory.
pub trait Registrar: Send + Sync {
    /// Registered memory. Dropping it deregisters; that happens in any thread, and never inside of `munmap` or `free`.
    type Region: Send + Sync;

    /// Registers whole pages.
    ///
    /// # Errors
    /// `ENOMEM` and `EAGAIN` are retried, with fewer regions kept; all others are returned to the caller.
    fn register(&self, addr: usize, len: usize) -> io::Result<Self::Region>;
}

/// Keeps a region registered and in place until it is dropped: as long as a device may access the memory by it.
pub struct Handle<T>(Arc<WorkerShare<T>>);

impl<T> Handle<T> {
    /// Handle of a region that is in no cache.
    pub fn alone(extent: VaRange, region: T) -> Self {
        let registered = Arc::new(Registered {
            extent,
            region,
            _charge: Reservation::new(&Arc::default(), 0),
        });
        Handle(Arc::new(WorkerShare::new(registered, 0)))
    }

    /// The registrar's region.
    #[inline]
    pub fn region(&self) -> &T {
        &self.0.registered.region
    }

    /// The addresses that are registered.
    #[inline]
    pub fn extent(&self) -> VaRange {
        self.0.registered.extent
    }
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        Handle(self.0.clone())
    }
}

/// An event count that is never reached: a local cache with it makes a full lookup.
const NEVER: u64 = u64::MAX;
/// Worker number of lookups without a local cache.
const NO_WORKER: u32 = 0;

/// A registration cache. Any thread may use it; lookups that hit in a worker's local cache do not access it.
pub struct RegCache<R: Registrar> {
    registrar: R,
    policy: CachePolicy,
    watch: Monitor,
    page: usize,
    meter: Arc<Usage>,
    /// Number of registrations: the time in which uses are compared.
    clock: OwnLine<AtomicU64>,
    /// Copy of `CacheState::seen`, readable without the lock.
    drained: AtomicU64,
    workers: AtomicU32,
    state: Mutex<CacheState<R::Region>>,
}

struct CacheState<T> {
    regions: CachedRegions<T>,
    /// Number of events whose effect on `regions` is complete.
    seen: u64,
    /// Whether regions are kept.
    keeps: bool,
}

/// Result of a lookup that missed in the local cache.
struct Fetched<T> {
    share: Arc<WorkerShare<T>>,
    /// Number of events seen then; `None` for a region that is not kept, and dropped with its last handle.
    seen: Option<u64>,
}

impl<R: Registrar> RegCache<R> {
    /// An empty cache. Without memory events, or where the policy forbids it, every lookup registers.
    ///
    /// # Errors
    /// `Unsupported`: the policy requires a cache, and there are no memory events; the text has the reason.
    pub fn new(registrar: R, policy: CachePolicy, watch: Monitor) -> io::Result<Arc<Self>> {
        if let (Some(why), true) = (watch.blind(), policy.insists) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let seen = watch.events().head();
        let state = CacheState {
            regions: CachedRegions::new(),
            seen,
            keeps: policy.keeps && watch.blind().is_none(),
        };
        Ok(Arc::new(RegCache {
            registrar,
            policy,
            watch,
            page: mem_monitor::page_size(),
            meter: Arc::default(),
            clock: OwnLine(AtomicU64::new(0)),
            drained: AtomicU64::new(seen),
            workers: AtomicU32::new(NO_WORKER + 1),
            state: Mutex::new(state),
        }))
    }

    /// A local cache for one more worker. Local caches do not write common cache lines.
    pub fn lookaside(self: &Arc<Self>) -> LocalCache<R> {
        // Relaxed: the numbers only have to differ.
        let worker = self.workers.fetch_add(1, Ordering::Relaxed);
        LocalCache::new(self.clone(), self.events(), worker)
    }

    /// A registration that contains these bytes: an existing one, or a new one.
    ///
    /// # Errors
    /// Those of the registrar. A shortage that remains after all unused regions are dropped is explained in the log,
    /// once.
    pub fn get(&self, addr: usize, len: usize) -> io::Result<Handle<R::Region>> {
        let fetched = self.fetch(NO_WORKER, VaRange::new(addr, len))?;
        Ok(Handle(fetched.share))
    }

    /// Deregisters unused regions of which memory has been unmapped. It reads two words if there are no events. To be
    /// called now and then, since unmapped memory stays pinned until then.
    pub fn tidy(&self) {
        // Relaxed: an event that is not visible yet is handled by a later call.
        if self.drained.load(Ordering::Relaxed) != self.events().head() {
            drop(self.drain(&mut self.state.lock()));
        }
    }

    /// Deregisters up to so many unused regions, the least recently used first, and all that were unmapped, to make
    /// room for others. False: there were none. Any lock may be held but one that dropping a region takes.
    pub fn spare(&self, most: usize) -> bool {
        let wanted = PinnedUsage {
            regions: most,
            bytes: 0,
        };
        let gone = self.evict(wanted);
        let any = !gone.is_empty();
        // Before the caller tries again.
        drop(gone);
        any
    }

    /// Whether registrations outlive their last handle.
    pub fn keeps(&self) -> bool {
        self.state.lock().keeps
    }

    /// The registered memory, used or not.
    pub fn held(&self) -> PinnedUsage {
        self.meter.held()
    }

    #[inline(always)]
    fn events(&self) -> &'static EventRing {
        self.watch.events()
    }

    #[inline(always)]
    fn now(&self) -> u64 {
        // Relaxed: a time, which publishes no other data.
        self.clock.0.load(Ordering::Relaxed)
    }

    /// Removes and marks the regions that new events affect. The caller may drop the result without the lock.
    fn drain(&self, state: &mut CacheState<R::Region>) -> Vec<CacheEntry<R::Region>> {
        let (ring, mut gone) = (self.events(), Vec::new());
        let head = ring.head();
        if head == state.seen {
            return gone;
        }
        for event in ring.events(state.seen, head) {
            match event {
                UnmapEvent::Gone(extent) => gone.extend(state.regions.remove_touched(extent)),
                UnmapEvent::Forked if !self.policy.purge_on_fork => (),
                UnmapEvent::Everything | UnmapEvent::Forked => {
                    gone.extend(state.regions.remove_all())
                }
            }
        }
        if trace::is_on() && !gone.is_empty() {
            self.record_gone("unmapped by the program", gone.len());
        }
        state.seen = head;
        // Relaxed: a hint for `tidy`, which tolerates an old value.
        self.drained.store(head, Ordering::Relaxed);
        gone
    }

    fn fetch(&self, worker: u32, wanted: VaRange) -> io::Result<Fetched<R::Region>> {
        let (found, keeps) = self.look_up(worker, wanted);
        match found {
            Some(fetched) => Ok(fetched),
            None => self.register(worker, wanted.pages(self.page), keeps),
        }
    }

    fn fetch_known(&self, worker: u32, wanted: VaRange) -> Option<Fetched<R::Region>> {
        self.look_up(worker, wanted).0
    }

    /// The region that contains these bytes, and whether regions are kept.
    fn look_up(&self, worker: u32, wanted: VaRange) -> (Option<Fetched<R::Region>>, bool) {
        let mut state = self.state.lock();
        let gone = self.drain(&mut state);
        let (seen, keeps) = (state.seen, state.keeps);
        let share = state.regions.share(wanted, worker, self.now());
        drop(state);
        drop(gone);
        let seen = Some(seen);
        (share.map(|share| Fetched { share, seen }), keeps)
    }

    #[cold]
    fn register(
        &self,
        worker: u32,
        extent: VaRange,
        keeps: bool,
    ) -> io::Result<Fetched<R::Region>> {
        if Cuda::opened().is_some_and(|cuda| !cuda.is_pinnable(extent.start as u64)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let keeps = keeps && self.is_reported() && !dl_objects::may_be_closed(extent);
        let charge = Reservation::new(&self.meter, extent.len());
        let keeps = keeps && self.make_room(extent.len());
        // Events from here on may be about pages that the registration pinned.
        let since = self.events().head();
        let began = trace::is_on().then(trace::now);
        let region = self.register_if_possible(extent);
        if let Some(began) = began {
            self.record("register", began, extent, region.is_ok());
        }
        let region = region?;
        let registered = Arc::new(Registered {
            extent,
            region,
            _charge: charge,
        });
        if keeps {
            Ok(self.keep(worker, registered, since))
        } else {
            Ok(self.share_region(registered))
        }
    }

    /// Whether events are still reported. If not, nothing is kept from now on.
    fn is_reported(&self) -> bool {
        let reported = self.watch.still();
        if !reported {
            let mut state = self.state.lock();
            state.keeps = false;
            let gone = state.regions.remove_all();
            drop(state);
            drop(gone);
        }
        reported
    }

    /// Makes room for so many bytes, which are counted already. False if there is none.
    fn make_room(&self, bytes: usize) -> bool {
        if bytes > self.policy.max_bytes || self.policy.max_regions == 0 {
            return false;
        }
        let held = self.held();
        let over = PinnedUsage {
            regions: held.regions.saturating_sub(self.policy.max_regions),
            bytes: held.bytes.saturating_sub(self.policy.max_bytes),
        };
        if over == PinnedUsage::default() {
            return true;
        }
        drop(self.evict(over));
        let held = self.held();
        held.regions <= self.policy.max_regions && held.bytes <= self.policy.max_bytes
    }

    /// Removes so many unused regions, and all that were unmapped.
    fn evict(&self, wanted: PinnedUsage) -> Vec<CacheEntry<R::Region>> {
        let mut state = self.state.lock();
        let mut gone = self.drain(&mut state);
        let evicted = state.regions.evict(wanted, self.now());
        drop(state);
        if trace::is_on() && !evicted.is_empty() {
            self.record_gone("evict", evicted.len());
        }
        gone.extend(evicted);
        gone
    }

    /// Records a registration.
    #[cold]
    fn record(&self, name: &'static str, began: u64, extent: VaRange, is_ok: bool) {
        let held = self.held();
        let args = [
            ("address", ArgValue::Hex(extent.start as u64)),
            ("bytes", extent.len().into()),
            (
                "result",
                if is_ok { "registered" } else { "refused" }.into(),
            ),
            ("regions", held.regions.into()),
            ("pinned bytes", held.bytes.into()),
        ];
        trace::slice("memory", name, began, &args);
    }

    /// Records that regions have left the cache.
    #[cold]
    fn record_gone(&self, name: &'static str, regions: usize) {
        let held = self.held();
        let args = [
            ("regions", regions.into()),
            ("pinned bytes", held.bytes.into()),
        ];
        trace::instant("memory", name, &args);
    }

    /// Registers; after each shortage it drops twice as many unused regions.
    fn register_if_possible(&self, extent: VaRange) -> io::Result<R::Region> {
        let mut wanted = PinnedUsage {
            regions: 1,
            bytes: extent.len(),
        };
        loop {
            let error = match self.registrar.register(extent.start, extent.len()) {
                Err(error) if limits::is_shortage(&error) => error,
                result => return result,
            };
            let dropped = self.evict(wanted);
            if dropped.is_empty() {
                self.complain(&error, extent.len());
                return Err(error);
            }
            drop(dropped);
            wanted.regions *= 2;
            wanted.bytes = wanted.bytes.saturating_mul(2);
        }
    }

    fn complain(&self, error: &io::Error, len: usize) {
        if len <= self.policy.spared {
            return log::diag!("{len} bytes cannot be registered: {error}");
        }
        let held = self.held();
        // Without the failed one.
        let others = PinnedUsage {
            regions: held.regions - 1,
            bytes: held.bytes - len,
        };
        limits::report(|| limits::message(error, len, others));
    }

    /// Keeps a new region, unless part of it was unmapped meanwhile, or another thread has registered the range.
    fn keep(&self, worker: u32, new: Arc<Registered<R::Region>>, since: u64) -> Fetched<R::Region> {
        let (ring, extent) = (self.events(), new.extent);
        let mut state = self.state.lock();
        let mut gone = self.drain(&mut state);
        let seen = state.seen;
        // Relaxed, under the lock: a time, which publishes no other data.
        let now = self.clock.0.fetch_add(1, Ordering::Relaxed) + 1;
        if !state.keeps || ring.concerned(since, seen, extent) {
            drop(state);
            return self.share_region(new);
        }
        let other = state.regions.share(extent, worker, now);
        let share = other.or_else(|| {
            gone.extend(state.regions.insert(new, now));
            state.regions.share(extent, worker, now)
        });
        drop(state);
        drop(gone);
        let share = share.expect("inserted just now, under the lock");
        Fetched {
            share,
            seen: Some(seen),
        }
    }

    /// A region that is dropped with its last handle.
    fn share_region(&self, registered: Arc<Registered<R::Region>>) -> Fetched<R::Region> {
        let share = Arc::new(WorkerShare::new(registered, self.now()));
        Fetched { share, seen: None }
    }

    fn leave(&self, worker: u32) {
        self.state.lock().regions.leave(worker);
    }
}
