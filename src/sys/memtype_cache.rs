//! Memory types that programs have set, by address (`ucs_memtype_cache_*`). The library only uses host memory and reads
//! nothing here.

use super::fork::{Lock, Mutex};
use crate::ctypes::ucs_sys_device_t;
use std::collections::BTreeMap;

/// Regions begin and end at multiples of this many bytes, as in UCX.
const GRAIN: usize = 16;

/// Attributes of a region.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Attributes {
    /// A number of `ucs_memory_type_t`, unchecked.
    pub kind: u32,
    pub device: ucs_sys_device_t,
    pub flags: u8,
}

/// Result of a lookup of an address range that begins in a region.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Found {
    /// All of the range is in the region from `start` up to `end`.
    Inside {
        start: usize,
        end: usize,
        attributes: Attributes,
    },
    /// The range reaches beyond the region.
    Beyond,
}

/// Regions that do not overlap: start, end and attributes of each.
struct Regions(BTreeMap<usize, (usize, Attributes)>);

static REGIONS: Mutex<Regions> = Mutex::new(Regions(BTreeMap::new()));

/// Lock of the cache, which a fork acquires.
pub fn lock_to_watch() -> &'static Lock {
    REGIONS.lock_to_watch()
}

impl Regions {
    /// Removes the range; the rest of regions that reach beyond it stays.
    fn cut(&mut self, start: usize, end: usize) {
        let overlapping: Vec<_> = self
            .0
            .range(..end)
            .rev()
            .map(|(&from, &(to, attributes))| (from, to, attributes))
            .take_while(|&(_, to, _)| to > start)
            .collect();
        for (from, to, attributes) in overlapping {
            self.0.remove(&from);
            if from < start {
                self.0.insert(from, (start, attributes));
            }
            if to > end {
                self.0.insert(end, (to, attributes));
            }
        }
    }

    fn find(&self, address: usize, size: usize) -> Option<Found> {
        let (&start, &(end, attributes)) = self.0.range(..=address).next_back()?;
        if address >= end {
            return None;
        }
        Some(if size <= end - address {
            Found::Inside {
                start,
                end,
                attributes,
            }
        } else {
            Found::Beyond
        })
    }
}

/// The range, widened to whole grains; `None` when it is empty.
fn widened(address: usize, size: usize) -> Option<(usize, usize)> {
    let start = address / GRAIN * GRAIN;
    let end = address.checked_add(size)?.checked_next_multiple_of(GRAIN)?;
    (size > 0).then_some((start, end))
}

/// Finds the region that contains an address.
pub fn lookup(address: usize, size: usize) -> Option<Found> {
    REGIONS.lock().find(address, size)
}

/// Sets the type of a range, in place of an earlier one.
pub fn update(address: usize, size: usize, attributes: Attributes) {
    if let Some((start, end)) = widened(address, size) {
        let mut regions = REGIONS.lock();
        regions.cut(start, end);
        regions.0.insert(start, (end, attributes));
    }
}

/// Removes the attributes of a range.
pub fn remove(address: usize, size: usize) {
    if let Some((start, end)) = widened(address, size) {
        REGIONS.lock().cut(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUDA: Attributes = Attributes {
        kind: 1,
        device: 3,
        flags: 0,
    };
    const ROCM: Attributes = Attributes { kind: 3, ..CUDA };

    fn inside(start: usize, end: usize, attributes: Attributes) -> Option<Found> {
        Some(Found::Inside {
            start,
            end,
            attributes,
        })
    }

    #[test]
    fn a_later_statement_cuts_an_earlier_one() {
        let mut regions = Regions(BTreeMap::new());
        regions.0.insert(4096, (8192, CUDA));
        assert_eq!(regions.find(4095, 100), None);
        assert_eq!(regions.find(8000, 192), inside(4096, 8192, CUDA));
        assert_eq!(regions.find(8000, 193), Some(Found::Beyond));
        assert_eq!(regions.find(8192, 1), None);
        let (start, end) = widened(5000, 100).expect("it is not empty");
        regions.cut(start, end);
        regions.0.insert(start, (end, ROCM));
        assert_eq!(regions.find(5000, 100), inside(4992, 5104, ROCM));
        assert_eq!(regions.find(4096, 1), inside(4096, 4992, CUDA));
        assert_eq!(regions.find(5104, 1), inside(5104, 8192, CUDA));
        regions.cut(0, usize::MAX);
        assert!(regions.0.is_empty());
        assert_eq!(widened(5000, 0), None);
    }
}
