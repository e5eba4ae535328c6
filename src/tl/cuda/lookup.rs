//! The kind of memory at an address. The driver is asked each time, but for pages of the host that are known to be so;
//! what it said is remembered for the length of one operation, as memory under an operation is not freed.

use super::context::CudaContext;
use super::host_pages::PAGE;
use crate::sys::cuda::{MemoryInfo, MemoryKind};
use std::collections::{BTreeMap, BTreeSet};

/// What the driver has said during one operation.
#[derive(Default)]
pub struct Lookup {
    /// What was found last.
    last: Option<MemoryInfo>,
    /// Allocations, by their first byte.
    known: BTreeMap<u64, MemoryInfo>,
    host_pages: PageSet,
}

/// Numbers of pages. One page takes no memory of the heap.
#[derive(Default)]
struct PageSet {
    last: Option<u64>,
    earlier: BTreeSet<u64>,
}

impl PageSet {
    fn contains(&self, page: u64) -> bool {
        self.last == Some(page) || self.earlier.contains(&page)
    }

    fn insert(&mut self, page: u64) {
        if let Some(earlier) = self.last.replace(page) {
            self.earlier.insert(earlier);
        }
    }
}

impl Lookup {
    /// Knows this memory.
    pub fn knowing(memory: MemoryInfo) -> Lookup {
        Lookup {
            last: Some(memory),
            ..Lookup::default()
        }
    }

    /// Knows this memory from now on, too.
    pub fn know(&mut self, memory: MemoryInfo) {
        self.known.insert(memory.start, memory);
    }

    /// The memory at an address.
    pub fn at(&mut self, shared: &CudaContext, addr: u64) -> MemoryInfo {
        if let Some(last) = self.last.filter(|last| last.contains(addr)) {
            return last;
        }
        if self.host_pages.contains(addr / PAGE) {
            return MemoryInfo::HOST;
        }
        let info = (self.known_at(addr)).unwrap_or_else(|| shared.memory_at(addr));
        match info.kind {
            MemoryKind::Host => self.host_pages.insert(addr / PAGE),
            MemoryKind::Device | MemoryKind::Managed => self.found(info),
        }
        info
    }

    /// The memory of a device, or managed memory, at an address. The driver is asked where none is known, also of pages
    /// that were the host's earlier.
    pub fn device_at(&mut self, shared: &CudaContext, addr: u64) -> Option<MemoryInfo> {
        if let Some(last) = self.last.filter(|last| last.contains(addr)) {
            return Some(last);
        }
        let info = (self.known_at(addr)).unwrap_or_else(|| shared.cuda.memory_at(addr));
        let is_device = info.kind != MemoryKind::Host;
        is_device.then(|| {
            self.found(info);
            info
        })
    }

    fn known_at(&self, addr: u64) -> Option<MemoryInfo> {
        let below = self.known.range(..=addr).next_back();
        (below.map(|(_, info)| *info)).filter(|info| info.contains(addr))
    }

    fn found(&mut self, info: MemoryInfo) {
        self.known.insert(info.start, info);
        self.last = Some(info);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_page_takes_no_memory_of_the_heap() {
        let mut pages = PageSet::default();
        assert!(!pages.contains(7));
        pages.insert(7);
        assert!(pages.contains(7) && pages.earlier.is_empty());
    }

    #[test]
    fn all_pages_are_found() {
        let mut pages = PageSet::default();
        for page in 0..5 {
            pages.insert(page);
        }
        assert!((0..5).all(|page| pages.contains(page)) && !pages.contains(5));
    }
}
