//! The regions that a cache keeps: found by any range inside of one, dropped in the order of their last use.
//!
//! None lies inside of another: the smaller one would never be asked for again. So in the order of their starts they
//! are in the order of their ends as well, and an ordered map is all it takes to find what contains a range and what it
//! touches.

use super::limits::PinnedUsage;
use crate::sys::arch::OwnLine;
use crate::sys::mem_monitor::VaRange;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Counts what is registered.
#[derive(Default)]
pub struct Usage {
    regions: AtomicUsize,
    bytes: AtomicUsize,
}

impl Usage {
    /// How much it is at the moment. Relaxed, here and below: numbers that nothing else hangs on.
    pub fn held(&self) -> PinnedUsage {
        PinnedUsage {
            regions: self.regions.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}

/// One region's part of what is registered, or about to be.
pub struct Reservation {
    meter: Arc<Usage>,
    bytes: usize,
}

impl Reservation {
    pub fn new(meter: &Arc<Usage>, bytes: usize) -> Self {
        meter.regions.fetch_add(1, Ordering::Relaxed);
        meter.bytes.fetch_add(bytes, Ordering::Relaxed);
        let meter = meter.clone();
        Reservation { meter, bytes }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.meter.regions.fetch_sub(1, Ordering::Relaxed);
        self.meter.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Memory that is registered, until this is dropped.
pub struct Registered<T> {
    pub extent: VaRange,
    pub region: T,
    /// Behind `region`, so that it is given back after that.
    pub _charge: Reservation,
}

/// One worker's share in a region. Its handles are counted here, and not in the region: workers that use the same one
/// do not write the same cache line.
pub struct WorkerRef<T> {
    pub registered: Arc<Registered<T>>,
    /// When it was used last, in registrations of the cache.
    used: AtomicU64,
    /// Not to be given out any more.
    withdrawn: AtomicBool,
    _apart: OwnLine<()>,
}

impl<T> WorkerRef<T> {
    pub fn new(registered: Arc<Registered<T>>, now: u64) -> Self {
        WorkerRef {
            registered,
            used: AtomicU64::new(now),
            withdrawn: AtomicBool::new(false),
            _apart: OwnLine(()),
        }
    }

    /// Notes a use. False if it must not be used any more.
    #[inline(always)]
    pub fn touch(&self, now: u64) -> bool {
        // Relaxed: nothing hangs on the time. The flag is set under the cache's lock, before the events that it follows
        // from count as seen; who has seen those had the lock since.
        self.used.store(now, Ordering::Relaxed);
        !self.withdrawn.load(Ordering::Relaxed)
    }
}

/// A region that is kept.
pub struct CacheEntry<T> {
    registered: Arc<Registered<T>>,
    /// By the number of the worker.
    shares: Vec<(u32, Arc<WorkerRef<T>>)>,
    /// Its place in the order.
    stamp: u64,
}

impl<T> CacheEntry<T> {
    fn last_use(&self) -> u64 {
        let uses = self.shares.iter().map(|(_, share)| &share.used);
        // Relaxed: see `WorkerRef::touch`.
        uses.map(|used| used.load(Ordering::Relaxed))
            .fold(self.stamp, u64::max)
    }

    /// Whether anybody has a handle, besides our own references.
    fn is_used(&self) -> bool {
        self.shares
            .iter()
            .any(|(_, share)| Arc::strong_count(share) > 1)
    }

    fn withdraw(&self) {
        for (_, share) in &self.shares {
            // Relaxed: see `WorkerRef::touch`.
            share.withdrawn.store(true, Ordering::Relaxed);
        }
    }
}

/// See the module. What leaves it is returned, to be deregistered without the lock.
pub struct CachedRegions<T> {
    /// By their start.
    map: BTreeMap<usize, CacheEntry<T>>,
    /// Stamp and start, the least recently used first. A stamp is brought up to date when it comes to the front.
    order: BTreeSet<(u64, usize)>,
}

impl<T> CachedRegions<T> {
    pub const fn new() -> Self {
        CachedRegions {
            map: BTreeMap::new(),
            order: BTreeSet::new(),
        }
    }

    /// The share of a worker in the region that holds all of these addresses.
    pub fn share(&mut self, extent: VaRange, worker: u32, now: u64) -> Option<Arc<WorkerRef<T>>> {
        let (_, kept) = self.map.range_mut(..=extent.start).next_back()?;
        if !kept.registered.extent.contains(extent) {
            return None;
        }
        if let Some((_, share)) = kept.shares.iter().find(|(of, _)| *of == worker) {
            share.touch(now);
            return Some(share.clone());
        }
        let share = Arc::new(WorkerRef::new(kept.registered.clone(), now));
        kept.shares.push((worker, share.clone()));
        Some(share)
    }

    /// Keeps a region that lies in none; those that lie in it leave.
    pub fn insert(&mut self, registered: Arc<Registered<T>>, now: u64) -> Vec<CacheEntry<T>> {
        let extent = registered.extent;
        let inside = self.map.range(extent.start..extent.end);
        let inside = inside.take_while(|(_, kept)| kept.registered.extent.end <= extent.end);
        let starts: Vec<usize> = inside.map(|(start, _)| *start).collect();
        let gone = self.remove(&starts);
        let kept = CacheEntry {
            registered,
            shares: Vec::new(),
            stamp: now,
        };
        self.map.insert(extent.start, kept);
        self.order.insert((now, extent.start));
        gone
    }

    /// Removes all that has any of these addresses.
    pub fn remove_touched(&mut self, extent: VaRange) -> Vec<CacheEntry<T>> {
        let touched = self.map.range(..extent.end).rev();
        let touched = touched.take_while(|(_, kept)| kept.registered.extent.end > extent.start);
        let starts: Vec<usize> = touched.map(|(start, _)| *start).collect();
        self.remove(&starts)
    }

    pub fn remove_all(&mut self) -> Vec<CacheEntry<T>> {
        self.order.clear();
        let all: Vec<_> = std::mem::take(&mut self.map).into_values().collect();
        all.iter().for_each(CacheEntry::withdraw);
        all
    }

    fn remove(&mut self, starts: &[usize]) -> Vec<CacheEntry<T>> {
        let removed = starts.iter().filter_map(|start| self.map.remove(start));
        let removed: Vec<_> = removed.collect();
        for kept in &removed {
            kept.withdraw();
            self.order
                .remove(&(kept.stamp, kept.registered.extent.start));
        }
        removed
    }

    /// Removes the least recently used of those that nobody uses, until they are so many and so many bytes, or no more.
    pub fn evict(&mut self, wanted: PinnedUsage, now: u64) -> Vec<CacheEntry<T>> {
        let (mut evicted, mut bytes) = (Vec::new(), 0);
        let mut at = (0, 0);
        // What is in use, or was since its stamp, goes to its place further back: each once, so that this ends.
        while evicted.len() < wanted.regions || bytes < wanted.bytes {
            let Some(&(stamp, start)) = self.order.range(at..).next() else {
                break;
            };
            at = (stamp, start + 1);
            let Some(kept) = self.map.get_mut(&start) else {
                continue;
            };
            let is_used = kept.is_used();
            let last = if is_used { now } else { kept.last_use() };
            if last > stamp {
                kept.stamp = last;
                self.order.remove(&(stamp, start));
                self.order.insert((last, start));
            } else if !is_used {
                bytes += kept.registered.extent.len();
                evicted.extend(self.remove(&[start]));
            }
        }
        evicted
    }

    /// A worker that has gone has no shares.
    pub fn leave(&mut self, worker: u32) {
        for kept in self.map.values_mut() {
            kept.shares.retain(|(of, _)| *of != worker);
        }
    }
}
