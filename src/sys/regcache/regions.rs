//! The regions of a cache: found by any range inside of one, evicted in the order of their last use.
//!
//! No region is inside of another, as the smaller one would never be found. So the order of their starts is the order
//! of their ends, and an ordered map finds the region that contains a range and those that overlap one.

use super::limits::PinnedUsage;
use crate::sys::arch::OwnLine;
use crate::sys::va_range::VaRange;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Counts regions and bytes that are registered.
#[derive(Default)]
pub struct Usage {
    regions: AtomicUsize,
    bytes: AtomicUsize,
}

impl Usage {
    /// The present counts. Relaxed, here and below: independent numbers.
    pub fn held(&self) -> PinnedUsage {
        PinnedUsage {
            regions: self.regions.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}

/// The part of one region in the counts, registered or about to be.
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

/// Registered memory; deregistered on drop.
pub struct Registered<T> {
    pub extent: VaRange,
    pub region: T,
    /// Behind `region`: dropped after the deregistration.
    pub _charge: Reservation,
}

/// A worker's reference to a region. Its handles are counted here, and not in the region: workers that use the same
/// region do not write the same cache line.
pub struct WorkerShare<T> {
    pub registered: Arc<Registered<T>>,
    /// Time of the last use, in registrations of the cache.
    used: AtomicU64,
    /// Not to be returned by lookups any more.
    withdrawn: AtomicBool,
    _apart: OwnLine<()>,
}

impl<T> WorkerShare<T> {
    pub fn new(registered: Arc<Registered<T>>, now: u64) -> Self {
        WorkerShare {
            registered,
            used: AtomicU64::new(now),
            withdrawn: AtomicBool::new(false),
            _apart: OwnLine(()),
        }
    }

    /// Records a use. False if the region must not be used any more.
    #[inline(always)]
    pub fn touch(&self, now: u64) -> bool {
        // Relaxed: the time publishes nothing. The flag is set under the cache's lock, before the events that it
        // follows from count as seen; a thread that has seen those had the lock since.
        self.used.store(now, Ordering::Relaxed);
        !self.withdrawn.load(Ordering::Relaxed)
    }
}

/// A region in the cache.
pub struct CacheEntry<T> {
    registered: Arc<Registered<T>>,
    /// By worker number.
    shares: Vec<(u32, Arc<WorkerShare<T>>)>,
    /// Its key in `order`.
    stamp: u64,
}

impl<T> CacheEntry<T> {
    fn last_use(&self) -> u64 {
        let uses = self.shares.iter().map(|(_, share)| &share.used);
        // Relaxed: the time publishes nothing.
        uses.map(|used| used.load(Ordering::Relaxed))
            .fold(self.stamp, u64::max)
    }

    /// Whether there is a handle, besides the cache's own references.
    fn is_used(&self) -> bool {
        self.shares
            .iter()
            .any(|(_, share)| Arc::strong_count(share) > 1)
    }

    fn withdraw(&self) {
        for (_, share) in &self.shares {
            // Relaxed: set under the cache's lock; see `WorkerShare::touch`.
            share.withdrawn.store(true, Ordering::Relaxed);
        }
    }
}

/// The regions of a cache. Functions return the removed ones, for deregistration without the lock.
pub struct CachedRegions<T> {
    /// By their start.
    map: BTreeMap<usize, CacheEntry<T>>,
    /// Stamp and start, the least recently used first. A stamp is updated when it comes to the front.
    order: BTreeSet<(u64, usize)>,
}

impl<T> CachedRegions<T> {
    pub const fn new() -> Self {
        CachedRegions {
            map: BTreeMap::new(),
            order: BTreeSet::new(),
        }
    }

    /// The reference of a worker to the region that contains all of these addresses.
    pub fn share(&mut self, extent: VaRange, worker: u32, now: u64) -> Option<Arc<WorkerShare<T>>> {
        let (_, kept) = self.map.range_mut(..=extent.start).next_back()?;
        if !kept.registered.extent.contains(extent) {
            return None;
        }
        if let Some((_, share)) = kept.shares.iter().find(|(of, _)| *of == worker) {
            share.touch(now);
            return Some(share.clone());
        }
        let share = Arc::new(WorkerShare::new(kept.registered.clone(), now));
        kept.shares.push((worker, share.clone()));
        Some(share)
    }

    /// Adds a region that is inside of no other; removes those inside of it.
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

    /// Removes all regions that overlap these addresses.
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

    /// Removes the least recently used of the unused regions, until they are so many and so many bytes, or none is
    /// left.
    pub fn evict(&mut self, wanted: PinnedUsage, now: u64) -> Vec<CacheEntry<T>> {
        let (mut evicted, mut bytes) = (Vec::new(), 0);
        let mut at = (0, 0);
        // A region in use, or used since its stamp, is moved further back: each once, so that the loop ends.
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

    /// Removes the references of a destroyed worker.
    pub fn leave(&mut self, worker: u32) {
        for kept in self.map.values_mut() {
            kept.shares.retain(|(of, _)| *of != worker);
        }
    }
}
