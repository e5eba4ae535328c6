//! The kind of memory at an address. The driver is asked each time; what it said is remembered for the length of one
//! operation only, as memory under an operation is not freed.

use crate::sys::cuda::{Cuda, MemoryInfo, MemoryKind};

/// Bytes of the host's pages: a page is the host's as a whole, or the driver's.
const PAGE: u64 = 4096;

/// What the driver has said during one operation.
pub struct Lookup {
    cuda: &'static Cuda,
    /// Allocations, the last one found at the end.
    known: Vec<MemoryInfo>,
    /// The page of the host that was found last.
    host_page: Option<u64>,
}

impl Lookup {
    /// Knows nothing yet.
    pub fn new(cuda: &'static Cuda) -> Lookup {
        Lookup {
            cuda,
            known: Vec::new(),
            host_page: None,
        }
    }

    /// The memory at an address.
    pub fn at(&mut self, addr: u64) -> MemoryInfo {
        if self.host_page == Some(addr / PAGE) {
            return MemoryInfo::HOST;
        }
        let newest = self.known.iter().rposition(|info| info.contains(addr));
        if let Some(i) = newest {
            let last = self.known.len() - 1;
            self.known.swap(i, last);
            return self.known[last];
        }
        let info = self.cuda.memory_at(addr);
        match info.kind {
            MemoryKind::Host => self.host_page = Some(addr / PAGE),
            MemoryKind::Device | MemoryKind::Managed => self.known.push(info),
        }
        info
    }
}
