//! Memory that the user registered, and the table of it that remote accesses are checked against.

use super::context::Context;
use crate::sys::segment::{Mapping, PAGE, Segment, SegmentId};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// A registered region. Handed out as `ucp_mem_h`; freed by `ucp_mem_unmap`.
pub struct Memory {
    /// First byte, 0 for the handle of an empty region.
    pub addr: u64,
    /// Bytes.
    pub len: usize,
    /// The segment that peers can map, and where the region's first byte's segment begins here.
    pub shared: Option<(Arc<Segment>, u64)>,
    /// Memory that this handle allocated; unmapped with it.
    owned: Option<Owned>,
    /// Key in the context's table.
    key: Option<(u64, u64)>,
}

enum Owned {
    Shared {
        _map: Mapping,
    },
    /// No segment could be had (descriptors used up): memory that peers reach by other ways.
    Private {
        ptr: NonNull<u8>,
        len: usize,
    },
}

// SAFETY: the memory is the user's business; the handle's own fields do not change.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// A region as the table knows it.
#[derive(Clone)]
struct Region {
    end: u64,
    shared: Option<(Arc<Segment>, u64)>,
}

/// All regions of a context by start and number. Regions may overlap.
#[derive(Default)]
pub struct Regions(RwLock<Table>);

#[derive(Default)]
struct Table {
    by_start: BTreeMap<(u64, u64), Region>,
    /// Number of the newest region.
    last: u64,
}

impl Regions {
    fn insert(&self, start: u64, region: Region) -> (u64, u64) {
        let mut table = self.0.write();
        table.last += 1;
        let key = (start, table.last);
        table.by_start.insert(key, region);
        key
    }

    fn find<T>(&self, addr: u64, len: u64, f: impl Fn(&Region) -> Option<T>) -> Option<T> {
        let end = addr.checked_add(len)?;
        let table = self.0.read();
        // The nearest start first: with disjoint regions it is the only candidate.
        table
            .by_start
            .range(..=(addr, u64::MAX))
            .rev()
            .filter(|(_, r)| end <= r.end)
            .find_map(|(_, r)| f(r))
    }

    /// Whether a peer may touch these bytes.
    pub fn contains(&self, addr: u64, len: u64) -> bool {
        self.find(addr, len, |_| Some(())).is_some()
    }
}

impl Memory {
    /// The handle of nothing.
    pub fn empty() -> Memory {
        Memory {
            addr: 0,
            len: 0,
            shared: None,
            owned: None,
            key: None,
        }
    }

    /// Registers memory of the user's. If it lies in memory that the library allocated, peers
    /// map it as they map that.
    pub fn register(ctx: &Context, addr: u64, len: usize) -> Memory {
        let shared = ctx.regions.find(addr, len as u64, |r| r.shared.clone());
        let key = ctx.regions.insert(
            addr,
            Region {
                end: addr.saturating_add(len as u64),
                shared: shared.clone(),
            },
        );
        Memory {
            addr,
            len,
            shared,
            owned: None,
            key: Some(key),
        }
    }

    /// Allocates `len` bytes, rounded up to pages, in a segment that peers can map. `at`: exactly
    /// there.
    ///
    /// # Errors
    /// What the system says; `AlreadyExists` if `at` is taken.
    pub fn allocate(ctx: &Context, len: usize, at: Option<NonNull<u8>>) -> io::Result<Memory> {
        let len = len
            .checked_next_multiple_of(PAGE)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let (ptr, owned, segment) = match Segment::create(len) {
            Ok(segment) => {
                let map = segment.map(0, len, at)?;
                (
                    map.ptr(),
                    Owned::Shared { _map: map },
                    Some(Arc::new(segment)),
                )
            }
            Err(_) => {
                let ptr = map_private(len, at)?;
                (ptr.as_ptr(), Owned::Private { ptr, len }, None)
            }
        };
        let addr = ptr as u64;
        let shared = segment.map(|s| (s, addr));
        let key = ctx.regions.insert(
            addr,
            Region {
                end: addr + len as u64,
                shared: shared.clone(),
            },
        );
        Ok(Memory {
            addr,
            len,
            shared,
            owned: Some(owned),
            key: Some(key),
        })
    }

    /// Takes the region out of the table; the memory goes when the handle is dropped.
    pub fn unregister(&mut self, ctx: &Context) {
        if let Some(key) = self.key.take() {
            ctx.regions.0.write().by_start.remove(&key);
        }
    }

    /// The segment as peers find it, and the address at which it begins in this process.
    pub fn segment(&self) -> Option<(SegmentId, u64, usize)> {
        self.shared
            .as_ref()
            .map(|(s, base)| (s.id(), *base, s.len()))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(Owned::Private { ptr, len }) = self.owned {
            // SAFETY: mapped by `map_private`, unmapped once.
            unsafe { libc::munmap(ptr.as_ptr().cast(), len) };
        }
    }
}

fn map_private(len: usize, at: Option<NonNull<u8>>) -> io::Result<NonNull<u8>> {
    let fixed = if at.is_some() {
        libc::MAP_FIXED_NOREPLACE
    } else {
        0
    };
    let hint = at.map_or(std::ptr::null_mut(), |p| p.as_ptr().cast());
    // SAFETY: a fresh anonymous mapping; MAP_FIXED_NOREPLACE replaces nothing.
    let ptr = unsafe {
        libc::mmap(
            hint,
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed,
            -1,
            0,
        )
    };
    if ptr == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(ptr.cast()).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}
