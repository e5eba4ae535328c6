//! The registration cache against a plain list, with synthetic events; and threads that hold handles while memory
//! changes.

use proptest::prelude::*;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use ucp::sys::log::{self, LogLevel};
use ucp::sys::mem_monitor::{EventRing, Monitor, UnmapEvent, page_size};
use ucp::sys::regcache::{CachePolicy, Handle, PinnedUsage, RegCache, Registrar};
use ucp::sys::va_range::VaRange;

/// A ring of the test's own, with static lifetime.
fn ring() -> &'static EventRing {
    Box::leak(Box::new(EventRing::new()))
}

/// `count` pages from page number `first` on. They are not mapped.
fn pages(first: usize, count: usize) -> VaRange {
    VaRange::new((0x10_0000 + first) * page_size(), count * page_size())
}

/// Keeps a list of registrations.
#[derive(Clone)]
struct Book {
    live: Arc<Mutex<Vec<VaRange>>>,
    made: Arc<AtomicUsize>,
    /// Limit of the registered pages.
    room: usize,
}

struct Entry {
    extent: VaRange,
    live: Arc<Mutex<Vec<VaRange>>>,
}

impl Book {
    fn new(room: usize) -> Self {
        Book {
            live: Arc::default(),
            made: Arc::default(),
            room,
        }
    }

    fn live(&self) -> Vec<VaRange> {
        let mut live = self.live.lock().unwrap().clone();
        live.sort_by_key(|extent| extent.start);
        live
    }

    fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }
}

impl Registrar for Book {
    type Region = Entry;

    fn register(&self, addr: usize, len: usize) -> io::Result<Entry> {
        assert_eq!((addr % page_size(), len % page_size()), (0, 0));
        let mut live = self.live.lock().unwrap();
        let taken: usize = live.iter().map(|extent| extent.len()).sum();
        if taken + len > self.room.saturating_mul(page_size()) {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        let extent = VaRange::new(addr, len);
        live.push(extent);
        self.made.fetch_add(1, Ordering::Relaxed);
        let live = self.live.clone();
        Ok(Entry { extent, live })
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut live = self.live.lock().unwrap();
        let at = live.iter().position(|extent| *extent == self.extent);
        live.swap_remove(at.expect("registered once, deregistered once"));
    }
}

/// The specification: a list, searched from front to back.
#[derive(Default)]
struct Model {
    kept: Vec<(VaRange, u64)>,
    clock: u64,
}

impl Model {
    fn contains(&self, wanted: VaRange) -> bool {
        self.kept.iter().any(|(extent, _)| extent.contains(wanted))
    }

    fn touch(&mut self, used: VaRange) {
        let now = self.clock;
        let entry = self.kept.iter_mut().find(|(extent, _)| *extent == used);
        entry.expect("what is given out is kept").1 = now;
    }

    fn bytes(&self) -> usize {
        self.kept.iter().map(|(extent, _)| extent.len()).sum()
    }

    fn insert(&mut self, new: VaRange, policy: &CachePolicy) {
        if new.len() > policy.max_bytes || policy.max_regions == 0 {
            return;
        }
        while self.kept.len() + 1 > policy.max_regions
            || self.bytes() + new.len() > policy.max_bytes
        {
            let oldest = self
                .kept
                .iter()
                .min_by_key(|(extent, used)| (*used, extent.start));
            let oldest = oldest.expect("nothing is in use").0;
            self.kept.retain(|(extent, _)| *extent != oldest);
        }
        self.clock += 1;
        self.kept.retain(|(extent, _)| !new.contains(*extent));
        self.kept.push((new, self.clock));
    }

    fn event(&mut self, event: UnmapEvent) {
        match event {
            UnmapEvent::Gone(unmapped) => {
                self.kept.retain(|(extent, _)| !extent.overlaps(unmapped))
            }
            UnmapEvent::Everything | UnmapEvent::Forked => self.kept.clear(),
        }
    }

    fn live(&self) -> Vec<VaRange> {
        let mut live: Vec<_> = self.kept.iter().map(|(extent, _)| *extent).collect();
        live.sort_by_key(|extent| extent.start);
        live
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// The worker (0: none), the first page, the number of bytes and the first byte.
    Get(usize, usize, usize, usize),
    Gone(usize, usize),
    Everything,
    Forked,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let page = page_size();
    let step = prop_oneof![
        12 => (0..3usize, 0..40usize, 0..page, 1..6 * page)
            .prop_map(|(worker, first, at, len)| Step::Get(worker, first, at, len)),
        4 => (0..44usize, 1..4usize).prop_map(|(first, count)| Step::Gone(first, count)),
        1 => Just(Step::Everything),
        1 => Just(Step::Forked),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    #[test]
    fn behaves_as_a_list(steps in steps(), max_regions in 0..8usize, max_pages in 1..30usize) {
        let policy = CachePolicy {
            max_regions,
            max_bytes: max_pages * page_size(),
            ..CachePolicy::default()
        };
        let (ring, book, mut model) = (ring(), Book::new(usize::MAX), Model::default());
        let cache = RegCache::new(book.clone(), policy, Monitor::of(ring)).unwrap();
        let mut workers = [cache.lookaside(), cache.lookaside()];
        for step in steps {
            let event = match step {
                Step::Get(worker, first, at, len) => {
                    let wanted = VaRange::new(pages(first, 1).start + at, len);
                    let (made, known) = (book.made(), model.contains(wanted));
                    let handle = match worker {
                        0 => cache.get(wanted.start, wanted.len()),
                        n => workers[n - 1].get(wanted.start, wanted.len()),
                    };
                    let handle = handle.unwrap();
                    prop_assert!(handle.extent().contains(wanted));
                    prop_assert_eq!(handle.region().extent, handle.extent());
                    prop_assert_eq!(book.made() - made, usize::from(!known));
                    if known {
                        model.touch(handle.extent());
                    } else {
                        prop_assert_eq!(handle.extent(), wanted.pages(page_size()), "no more than requested");
                        model.insert(handle.extent(), &policy);
                    }
                    None
                }
                Step::Gone(first, count) => Some(UnmapEvent::Gone(pages(first, count))),
                Step::Everything => Some(UnmapEvent::Everything),
                Step::Forked => Some(UnmapEvent::Forked),
            };
            if let Some(event) = event {
                ring.note(event);
                model.event(event);
                cache.tidy();
            }
            prop_assert_eq!(book.live(), model.live());
            let held = cache.held();
            prop_assert_eq!((held.regions, held.bytes), (model.kept.len(), model.bytes()));
        }
        drop((workers, cache));
        prop_assert!(book.live().is_empty());
    }

    /// With handles that are held over other steps, and a registrar that runs out of room.
    #[test]
    fn regions_in_use_stay(steps in steps(), room in 6..30usize, drops in prop::collection::vec(0..6usize, 120)) {
        // Failed registrations are logged once for each cache, and there are hundreds.
        log::set_level(LogLevel::Fatal);
        let (ring, book) = (ring(), Book::new(room));
        let policy = CachePolicy { max_regions: 6, ..CachePolicy::default() };
        let cache = RegCache::new(book.clone(), policy, Monitor::of(ring)).unwrap();
        let mut worker = cache.lookaside();
        // With the regions unmapped since.
        let mut held: Vec<(Handle<Entry>, bool)> = Vec::new();
        for (step, drops) in steps.into_iter().zip(drops) {
            match step {
                Step::Get(_, first, at, len) => {
                    let wanted = VaRange::new(pages(first, 1).start + at, len);
                    match worker.get(wanted.start, wanted.len()) {
                        Ok(handle) => {
                            prop_assert!(handle.extent().contains(wanted));
                            for (other, stale) in &held {
                                let same = std::ptr::eq(other.region(), handle.region());
                                prop_assert!(!(same && *stale), "given out again: {wanted:?}");
                            }
                            held.push((handle, false));
                        }
                        Err(_) => {
                            let used: Vec<_> = held.iter().map(|(handle, _)| handle.region()).collect();
                            let is_used = |extent: &VaRange| used.iter().any(|entry| entry.extent == *extent);
                            prop_assert!(book.live().iter().all(is_used), "something was left to be dropped");
                        }
                    }
                }
                Step::Gone(first, count) => {
                    let unmapped = pages(first, count);
                    ring.note(UnmapEvent::Gone(unmapped));
                    held.iter_mut().for_each(|(handle, stale)| *stale |= handle.extent().overlaps(unmapped));
                }
                Step::Everything | Step::Forked => {
                    ring.note(UnmapEvent::Everything);
                    held.iter_mut().for_each(|(_, stale)| *stale = true);
                }
            }
            let live = book.live();
            prop_assert!(held.iter().all(|(handle, _)| live.contains(&handle.extent())), "it was deregistered in use");
            if drops < held.len() {
                held.swap_remove(drops);
            }
        }
        drop((held, worker, cache));
        prop_assert!(book.live().is_empty());
    }
}

fn cache(ring: &'static EventRing, policy: CachePolicy) -> (Arc<RegCache<Book>>, Book) {
    let book = Book::new(usize::MAX);
    let cache = RegCache::new(book.clone(), policy, Monitor::of(ring)).unwrap();
    (cache, book)
}

#[test]
fn a_hit_needs_no_registration_and_a_handle_keeps() {
    let ring = ring();
    let (cache, book) = cache(ring, CachePolicy::default());
    let mut worker = cache.lookaside();
    let buffer = pages(0, 4);
    let handle = worker.get(buffer.start, buffer.len()).unwrap();
    let inside = worker.get(buffer.start + 100, 5000).unwrap();
    assert!(std::ptr::eq(handle.region(), inside.region()));
    assert_eq!(book.made(), 1);
    ring.note(UnmapEvent::Gone(pages(3, 1)));
    let fresh = worker.get(buffer.start, 10).unwrap();
    assert!(!std::ptr::eq(handle.region(), fresh.region()));
    assert_eq!(fresh.extent(), pages(0, 1));
    assert_eq!(book.live().len(), 2, "the old one is in use");
    drop((handle, inside));
    assert_eq!(book.live(), [pages(0, 1)]);
    drop((worker, cache));
    assert_eq!(book.live(), [pages(0, 1)], "a handle outlives its cache");
    drop(fresh);
    assert!(book.live().is_empty());
}

#[test]
fn unused_entries_are_evicted_for_new_ones() {
    let ring = ring();
    let (cache, book) = cache(ring, CachePolicy::default());
    let used = cache.get(pages(0, 1).start, 1).unwrap();
    for first in 1..6 {
        drop(cache.get(pages(first, 1).start, 1).unwrap());
    }
    assert!(cache.spare(2));
    let left = [0, 3, 4, 5].map(|first| pages(first, 1));
    assert_eq!(book.live(), left, "the oldest, without what is used");
    ring.note(UnmapEvent::Gone(pages(5, 1)));
    assert!(cache.spare(1), "and what was unmapped");
    assert_eq!(book.live(), [0, 4].map(|first| pages(first, 1)));
    assert!(cache.spare(10) && !cache.spare(10));
    assert_eq!(book.live(), [pages(0, 1)]);
    drop(used);
    assert!(cache.spare(1));
    assert!(book.live().is_empty());
}

#[test]
fn workers_of_one_cache_share_regions() {
    let (cache, book) = cache(ring(), CachePolicy::default());
    let (mut one, mut two) = (cache.lookaside(), cache.lookaside());
    let buffer = pages(0, 2);
    let held = one.get(buffer.start, 1).unwrap();
    assert!(std::ptr::eq(
        held.region(),
        two.get(buffer.start, 1).unwrap().region()
    ));
    drop(one);
    assert!(std::ptr::eq(
        held.region(),
        cache.get(buffer.start, 1).unwrap().region()
    ));
    assert_eq!(book.made(), 1);
}

#[test]
fn without_monitor_nothing_is_cached() {
    let book = Book::new(usize::MAX);
    let blind = Monitor::no_readers("a test");
    let insists = CachePolicy {
        insists: true,
        ..CachePolicy::default()
    };
    let error = RegCache::new(book.clone(), insists, blind.clone()).err();
    assert_eq!(error.map(|e| e.to_string()), Some("a test".to_owned()));
    let cache = RegCache::new(book.clone(), CachePolicy::default(), blind).unwrap();
    assert!(!cache.keeps());
    let mut worker = cache.lookaside();
    for round in 1..3 {
        let handle = worker.get(pages(0, 1).start, 1).unwrap();
        assert_eq!((book.made(), book.live().len()), (round, 1));
        drop(handle);
        assert!(book.live().is_empty());
    }
    let held = [
        worker.get(pages(0, 1).start, 1),
        worker.get(pages(0, 1).start, 1),
    ];
    assert_eq!(cache.held().regions, held.len());
}

#[test]
fn a_forking_process_may_cache() {
    let ring = ring();
    let policy = CachePolicy {
        purge_on_fork: false,
        ..CachePolicy::default()
    };
    let (cache, book) = cache(ring, policy);
    drop(cache.get(pages(0, 1).start, 1));
    ring.note(UnmapEvent::Forked);
    drop(cache.get(pages(0, 1).start, 1));
    assert_eq!(book.made(), 1);
    ring.note(UnmapEvent::Everything);
    cache.tidy();
    assert_eq!(cache.held(), PinnedUsage::default());
}

#[test]
fn memory_unmapped_during_registration_is_not_kept() {
    struct Slow(&'static EventRing);
    impl Registrar for Slow {
        type Region = ();
        fn register(&self, addr: usize, _: usize) -> io::Result<()> {
            self.0.note(UnmapEvent::Gone(VaRange::new(addr, 1)));
            Ok(())
        }
    }
    let ring = ring();
    let cache = RegCache::new(Slow(ring), CachePolicy::default(), Monitor::of(ring)).unwrap();
    let handle = cache.lookaside().get(pages(0, 1).start, 1).unwrap();
    assert_eq!(cache.held().regions, 1);
    drop(handle);
    assert_eq!(cache.held().regions, 0);
}

/// Simulated memory: the current mapping of each page.
struct Memory {
    pages: Vec<AtomicU64>,
    now: AtomicU64,
}

struct Pinned(Vec<u64>);

/// Remembers the pages of each registration.
struct Pins(Arc<Memory>);

impl Registrar for Pins {
    type Region = Pinned;
    fn register(&self, addr: usize, len: usize) -> io::Result<Pinned> {
        let first = addr / page_size() - 0x10_0000;
        let all = &self.0.pages[first..first + len / page_size()];
        let ids = all.iter().map(|page| page.load(Ordering::SeqCst));
        Ok(Pinned(ids.collect()))
    }
}

/// Threads that each own buffers for a while (under a mutex, as with an allocator) use them or map them again. A
/// returned handle always has the current pages.
#[test]
fn threads_never_get_stale_regions() {
    const BUFFERS: usize = 12;
    const LEN: usize = 3;
    let ring = ring();
    let memory = Arc::new(Memory {
        pages: (0..BUFFERS * LEN).map(|_| AtomicU64::new(0)).collect(),
        now: AtomicU64::new(1),
    });
    let policy = CachePolicy {
        max_regions: 8,
        ..CachePolicy::default()
    };
    let cache = RegCache::new(Pins(memory.clone()), policy, Monitor::of(ring)).unwrap();
    let buffers: Vec<Mutex<()>> = (0..BUFFERS).map(|_| Mutex::new(())).collect();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (cache, memory, buffers) = (&cache, &memory, &buffers);
            scope.spawn(move || {
                let mut worker = cache.lookaside();
                let mut random = thread + 1;
                for _ in 0..20_000 {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    let which = (random >> 40) as usize % BUFFERS;
                    let _owned = buffers[which].lock().unwrap();
                    let extent = pages(which * LEN, LEN);
                    let all = &memory.pages[which * LEN..][..LEN];
                    if (random >> 33) % 8 == 0 {
                        ring.note(UnmapEvent::Gone(extent));
                        for page in all {
                            let id = memory.now.fetch_add(1, Ordering::SeqCst);
                            page.store(id, Ordering::SeqCst);
                        }
                        ring.note(UnmapEvent::Gone(extent));
                    }
                    let handle = worker.get(extent.start, extent.len()).unwrap();
                    let there: Vec<u64> = all.iter().map(|p| p.load(Ordering::SeqCst)).collect();
                    assert_eq!(handle.region().0, there);
                }
            });
        }
    });
    assert!(cache.held().regions <= 8);
}
