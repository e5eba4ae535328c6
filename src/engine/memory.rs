//! Memory that the user registered, and the table of it that remote accesses are checked against.

use super::context::Context;
use crate::sys::segment::PAGE;
use crate::sys::shared::{Shared, SharedId};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;

/// A registered region. Handed out as `ucp_mem_h`; freed by `ucp_mem_unmap`.
pub struct Memory {
    /// First byte, 0 for the handle of an empty region.
    pub addr: u64,
    /// Bytes.
    pub len: usize,
    /// How peers map it, if they can.
    pub export: Option<Export>,
    /// Memory that this handle allocated; unmapped with it.
    owned: Option<Owned>,
    /// Key in the context's table.
    key: Option<(u64, u64)>,
}

enum Owned {
    Shared {
        _memory: Shared,
    },
    /// No shared memory could be had: memory that peers reach by other ways.
    Private {
        ptr: NonNull<u8>,
        len: usize,
    },
}

/// Memory that peers can map, in which a region lies.
#[derive(Clone, Copy, Debug)]
pub struct Export {
    pub id: SharedId,
    /// Where it begins in this process.
    pub base: u64,
    /// Bytes.
    pub len: usize,
}

// SAFETY: the memory is the user's business; the handle's own fields do not change.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// A region as the table knows it.
#[derive(Clone)]
struct Region {
    end: u64,
    export: Option<Export>,
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
            export: None,
            owned: None,
            key: None,
        }
    }

    /// Registers memory of the user's. If it lies in memory that the library allocated, peers
    /// map it as they map that.
    pub fn register(ctx: &Context, addr: u64, len: usize) -> Memory {
        let export = ctx.regions.find(addr, len as u64, |r| r.export);
        let end = addr.saturating_add(len as u64);
        let key = ctx.regions.insert(addr, Region { end, export });
        Memory {
            addr,
            len,
            export,
            owned: None,
            key: Some(key),
        }
    }

    /// Allocates `len` bytes, rounded up to pages, in memory that peers can map. `at`: exactly
    /// there.
    ///
    /// # Errors
    /// What the system says; `AlreadyExists` if `at` is taken.
    pub fn allocate(ctx: &Context, len: usize, at: Option<NonNull<u8>>) -> io::Result<Memory> {
        let len = len
            .checked_next_multiple_of(PAGE)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let (ptr, owned, id) = match Shared::create(len, at) {
            Ok((memory, id)) => (memory.start(), Owned::Shared { _memory: memory }, Some(id)),
            Err(_) => {
                let ptr = map_private(len, at)?;
                (ptr, Owned::Private { ptr, len }, None)
            }
        };
        let base = ptr.as_ptr() as u64;
        let export = id.map(|id| Export { id, base, len });
        let end = base + len as u64;
        let key = ctx.regions.insert(base, Region { end, export });
        Ok(Memory {
            addr: base,
            len,
            export,
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
