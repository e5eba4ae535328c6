//! Memory for rings: long ones are registered one by one, short ones are pieces of slabs that are registered as a
//! whole.
//!
//! A control queue takes some thousands of registrations, and there may be more peers than that. A piece is not used
//! twice: a peer that was given up may still write to it. A slab goes with the last of its pieces.

use super::vcq::{Vcq, VcqRegion};
use std::io;
use std::sync::Arc;

/// Bytes of a slab. Rings of this size or more are not pieces.
const SLAB: usize = 1 << 20;
/// From which size on a ring is registered by itself: a page of the machines that have the interconnect, bytes.
const PAGE: usize = 64 << 10;

/// A ring's memory.
pub struct RingMemory {
    region: Arc<VcqRegion>,
    offset: usize,
    len: usize,
}

impl RingMemory {
    /// Where it begins. Peers write to it at any time: what is read may change.
    #[inline(always)]
    pub fn ptr(&self) -> *mut u8 {
        // SAFETY: inside of the region.
        unsafe { self.region.ptr().add(self.offset) }
    }

    /// Steering address of the same.
    pub fn stadd(&self) -> u64 {
        self.region.stadd + self.offset as u64
    }

    pub fn len(&self) -> usize {
        self.len
    }
}

/// The slab that the next piece of a size comes from.
struct OpenSlab {
    size: usize,
    region: Arc<VcqRegion>,
    used: usize,
}

/// A worker's.
#[derive(Default)]
pub struct RingPool {
    open: Vec<OpenSlab>,
}

impl RingPool {
    /// `size` bytes, zeroed.
    ///
    /// # Errors
    /// What the system or the library says.
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
