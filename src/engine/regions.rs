//! The table of registered memory, which checks remote accesses.

mod intervals;

use super::memory::ShmExport;
use crate::sys::sync::{AtomicU64, Ordering};
use crate::tl::mapped::MappedRegions;
use crate::tl::{TlRegion, TlRegions};
use intervals::Intervals;
use parking_lot::RwLock;

/// Id of a region in the table.
#[derive(Clone, Copy)]
pub struct RegionId {
    region: intervals::IntervalKey,
    export: Option<intervals::IntervalKey>,
}

/// All regions of a context. They may overlap, and one range may be registered several times.
#[derive(Default)]
pub struct RegionTable {
    table: RwLock<RegionIndex>,
    /// Those of all regions so far, which exclude most other memory without the lock. Changed under the lock. A thread
    /// that asks for the region of a call of `ucp_mem_map` has synchronised with that call.
    bounds: Bounds,
    /// Regions that were removed. Changed under the table's lock.
    removals: AtomicU64,
}

/// Bounds of memory. Relaxed everywhere: the holder says what orders the words.
struct Bounds {
    start: AtomicU64,
    end: AtomicU64,
}

impl Default for Bounds {
    /// Those of no memory: they contain no bytes, not even none.
    fn default() -> Self {
        Bounds {
            start: AtomicU64::new(u64::MAX),
            end: AtomicU64::new(0),
        }
    }
}

impl Bounds {
    fn contain(&self, start: u64, end: u64) -> bool {
        self.start.load(Ordering::Relaxed) <= start && end <= self.end.load(Ordering::Relaxed)
    }

    fn set(&self, start: u64, end: u64) {
        self.start.store(start, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
    }

    /// Makes the bounds contain this memory, too. One thread at a time.
    fn extend(&self, start: u64, end: u64) {
        let lowest = self.start.load(Ordering::Relaxed).min(start);
        let highest = self.end.load(Ordering::Relaxed).max(end);
        self.set(lowest, highest);
    }
}

/// The region that a worker's last search found: most accesses of a peer go to the same one. The progress thread's, so
/// Relaxed everywhere: the words are atomic only because a worker can be progressed by several threads in turn.
#[derive(Default)]
pub struct LastRegion {
    /// Those of no memory before the first search.
    bounds: Bounds,
    /// [`RegionTable::removals`] before the search: the region exists while that is unchanged.
    removals: AtomicU64,
}

impl LastRegion {
    fn contains(&self, start: u64, end: u64, removals: u64) -> bool {
        self.removals.load(Ordering::Relaxed) == removals && self.bounds.contain(start, end)
    }

    fn set(&self, found: intervals::IntervalKey, removals: u64) {
        self.bounds.set(found.start, found.end);
        self.removals.store(removals, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct RegionIndex {
    regions: Intervals<TlRegion>,
    /// Regions allocated by the library that peers can map.
    exports: Intervals<ShmExport>,
}

impl RegionTable {
    /// Adds the bytes from `start` to before `end`. `tl`: the transports' part of the region. `export`: the library
    /// allocated them, and peers can map them.
    pub fn insert(
        &self,
        start: u64,
        end: u64,
        tl: TlRegion,
        export: Option<ShmExport>,
    ) -> RegionId {
        let mut table = self.table.write();
        self.bounds.extend(start, end);
        RegionId {
            region: table.regions.insert(start, end, tl),
            export: export.map(|export| table.exports.insert(start, end, export)),
        }
    }

    /// Removes a region, and the right to map it: peers may access its bytes only as far as other regions contain them.
    /// A [`LastRegion`] that names it is no longer used.
    pub fn remove(&self, key: RegionId) {
        let mut table = self.table.write();
        // Release: pairs with the Acquire in `permits`.
        self.removals.fetch_add(1, Ordering::Release);
        table.regions.remove(key.region);
        if let Some(export) = key.export {
            table.exports.remove(export);
        }
    }

    /// The mappable memory that contains the bytes from `start` to before `end`; the newest one, which may have been
    /// allocated in place of another.
    pub fn export(&self, start: u64, end: u64) -> Option<ShmExport> {
        let mut newest: Option<(intervals::IntervalKey, ShmExport)> = None;
        self.table.read().exports.find(start, end, |key, export| {
            if newest.is_none_or(|(other, _)| other.number < key.number) {
                newest = Some((key, *export));
            }
            None::<()>
        });
        newest.map(|(_, export)| export)
    }

    /// The first result of `f` for a region that contains these bytes.
    fn find<T>(
        &self,
        addr: u64,
        len: u64,
        f: impl Fn(intervals::IntervalKey, &TlRegion) -> Option<T>,
    ) -> Option<T> {
        let end = addr.checked_add(len)?;
        if !self.bounds.contain(addr, end) {
            return None;
        }
        self.table.read().regions.find(addr, end, f)
    }

    /// Whether a peer may access these bytes. Called by the progress thread of the worker that owns `last`, always with
    /// the same table.
    #[inline]
    pub fn permits(&self, last: &LastRegion, addr: u64, len: u64) -> bool {
        // Acquire: pairs with the Release in `remove`. A search that begins after it waits for the lock that the
        // removal holds, and so does not find the removed region.
        let removals = self.removals.load(Ordering::Acquire);
        let Some(end) = addr.checked_add(len) else {
            return false;
        };
        last.contains(addr, end, removals) || self.search(last, addr, end, removals)
    }

    /// Whether the region that the last search found contains these bytes. Called as [`permits`](Self::permits) is.
    #[inline(always)]
    pub fn permits_again(&self, last: &LastRegion, addr: u64, len: u64) -> bool {
        // Acquire: pairs with the Release in `remove`.
        let removals = self.removals.load(Ordering::Acquire);
        (addr.checked_add(len)).is_some_and(|end| last.contains(addr, end, removals))
    }

    /// Whether a region contains the bytes from `addr` to before `end`, which becomes the last one then. `removals`: as
    /// many regions had been removed before the call.
    #[inline(never)]
    fn search(&self, last: &LastRegion, addr: u64, end: u64, removals: u64) -> bool {
        let found = self
            .table
            .read()
            .regions
            .find(addr, end, |key, _| Some(key));
        if let Some(key) = found {
            last.set(key, removals);
        }
        found.is_some()
    }
}

impl TlRegions for RegionTable {
    fn find<T>(&self, addr: u64, len: u64, f: impl Fn(&TlRegion) -> Option<T>) -> Option<T> {
        self.find(addr, len, |_, region| f(region))
    }
}

impl MappedRegions for RegionTable {
    fn around(&self, addr: u64, len: u64) -> Option<(u64, u64)> {
        self.find(addr, len, |key, _| Some((key.start, key.end - key.start)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::shm::ShmId;

    fn export(base: u64, len: usize, block: u32) -> ShmExport {
        let id = ShmId::Block(block);
        ShmExport { id, base, len }
    }

    fn insert(regions: &RegionTable, start: u64, end: u64) -> RegionId {
        regions.insert(start, end, TlRegion::default(), None)
    }

    fn insert_exported(regions: &RegionTable, export: ShmExport) -> RegionId {
        let end = export.base + export.len as u64;
        regions.insert(export.base, end, TlRegion::default(), Some(export))
    }

    /// State before the first search.
    fn contains(regions: &RegionTable, addr: u64, len: u64) -> bool {
        regions.permits(&LastRegion::default(), addr, len)
    }

    fn base_of(regions: &RegionTable, start: u64, end: u64) -> Option<u64> {
        regions.export(start, end).map(|e| e.base)
    }

    #[test]
    fn accesses_lie_in_one_region() {
        let regions = RegionTable::default();
        let first = insert(&regions, 1000, 2000);
        let again = insert(&regions, 1000, 2000);
        insert(&regions, 2000, 3000);
        assert!(contains(&regions, 1000, 1000) && contains(&regions, 2000, 1000));
        assert!(!contains(&regions, 1999, 2) && !contains(&regions, 999, 1));
        assert!(!contains(&regions, u64::MAX, 8));
        regions.remove(first);
        assert!(contains(&regions, 1500, 1));
        regions.remove(again);
        assert!(!contains(&regions, 1500, 1));
    }

    #[test]
    fn memory_around_between_and_of_removed_regions_is_in_none() {
        let regions = RegionTable::default();
        let around = |addr, len| regions.around(addr, len);
        assert_eq!(around(0, 0), None);
        let high = insert(&regions, 3000, 4000);
        assert_eq!(around(3000, 1000), Some((3000, 1000)));
        assert_eq!((around(2999, 2), around(3999, 2)), (None, None));
        insert(&regions, 1000, 2000);
        assert_eq!(around(1999, 1), Some((1000, 1000)));
        assert_eq!((around(2500, 1), around(999, 1)), (None, None));
        regions.remove(high);
        assert_eq!((around(3000, 8), around(u64::MAX, 8)), (None, None));
    }

    #[test]
    fn the_last_found_entry_ends_with_its_region() {
        let regions = RegionTable::default();
        let last = LastRegion::default();
        assert!(!regions.permits(&last, 0, 0));
        let first = insert(&regions, 1000, 2000);
        assert!(regions.permits(&last, 1000, 1000) && regions.permits(&last, 1500, 0));
        assert!(!regions.permits(&last, 999, 2) && !regions.permits(&last, 1999, 2));
        assert!(!regions.permits(&last, u64::MAX, 8));
        let other = insert(&regions, 3000, 4000);
        assert!(regions.permits(&last, 3500, 8) && regions.permits(&last, 1500, 8));
        regions.remove(first);
        assert!(!regions.permits(&last, 1500, 8) && regions.permits(&last, 3500, 8));
        regions.remove(other);
        assert!(!regions.permits(&last, 3500, 8));
    }

    #[test]
    fn an_export_is_found_among_regions_around_it_and_ends_with_its_memory() {
        let regions = RegionTable::default();
        let memory = insert_exported(&regions, export(0x10000, 0x4000, 1));
        for _ in 0..100 {
            insert(&regions, 0x11000, 0x12000);
        }
        insert(&regions, 0, 1 << 40);
        assert_eq!(base_of(&regions, 0x11000, 0x12000), Some(0x10000));
        assert_eq!(base_of(&regions, 0x13000, 0x14001), None);
        regions.remove(memory);
        assert_eq!(base_of(&regions, 0x11000, 0x12000), None);
        assert!(contains(&regions, 0x11000, 0x1000));
    }

    #[test]
    fn of_memory_in_the_place_of_other_the_newest_counts() {
        let regions = RegionTable::default();
        insert_exported(&regions, export(0x10000, 0x4000, 1));
        let newer = insert_exported(&regions, export(0x10000, 0x3000, 2));
        let id_of = |end| regions.export(0x10000, end).map(|e| e.id);
        assert_eq!(id_of(0x11000), Some(ShmId::Block(2)));
        assert_eq!(id_of(0x14000), Some(ShmId::Block(1)));
        regions.remove(newer);
        assert_eq!(id_of(0x11000), Some(ShmId::Block(1)));
    }
}
