//! Memory for rings: long rings are registered one by one, short ones are cut from slabs, which are registered as a
//! whole.
//!
//! A control queue has room for some thousands of registrations, fewer than there may be peers. The memory of a ring is
//! not used again, as a peer whose connection has failed may still write to it. A slab is deregistered with the last of
//! its rings.

use super::vcq::{Vcq, VcqRegion};
use std::io;
use std::sync::Arc;

/// Bytes of a slab.
const SLAB: usize = 1 << 20;
/// Rings of this many bytes or more, a page of the machines with this interconnect, are registered one by one.
const PAGE: usize = 64 << 10;

/// Memory of one ring.
pub struct RingMemory {
    region: Arc<VcqRegion>,
    offset: usize,
    len: usize,
}

impl RingMemory {
    /// Where it begins. Peers write to it at any time: values read may change.
    #[inline(always)]
    pub fn ptr(&self) -> *mut u8 {
        // SAFETY: the offset is within the region.
        unsafe { self.region.ptr().add(self.offset) }
    }

    /// Steering address of the memory.
    pub fn stadd(&self) -> u64 {
        self.region.stadd + self.offset as u64
    }

    /// Bytes that the ring may use from [`ptr`](Self::ptr) on, as allocated by [`RingPool::take`].
    pub fn len(&self) -> usize {
        self.len
    }
}

/// The slab that the next ring of a size is cut from.
struct OpenSlab {
    size: usize,
    region: Arc<VcqRegion>,
    used: usize,
}

/// Allocator of a worker's rings.
#[derive(Default)]
pub struct RingPool {
    open: Vec<OpenSlab>,
}

impl RingPool {
    /// Allocates `size` bytes, zeroed.
    ///
    /// # Errors
    /// The system's or the library's error.
    pub fn take(&mut self, vcq: &Arc<Vcq>, size: usize) -> io::Result<RingMemory> {
        if size >= PAGE {
            let region = Arc::new(VcqRegion::new(vcq, size)?);
            return Ok(RingMemory {
                region,
                offset: 0,
                len: size,
            });
        }
        let is_full = |open: &OpenSlab| open.used + size > open.region.len();
        self.open.retain(|open| open.size != size || !is_full(open));
        if !self.open.iter().any(|open| open.size == size) {
            let region = Arc::new(VcqRegion::new(vcq, SLAB)?);
            self.open.push(OpenSlab {
                size,
                region,
                used: 0,
            });
        }
        let mut all = self.open.iter_mut();
        let open = all.find(|open| open.size == size);
        let open = open.ok_or(io::ErrorKind::OutOfMemory)?;
        let offset = open.used;
        open.used += size;
        Ok(RingMemory {
            region: open.region.clone(),
            offset,
            len: size,
        })
    }
}
