//! Allocations of other processes that are open here.
//!
//! They stay open between copies, up to a bound. A copy holds the allocation that it uses: what is forgotten meanwhile
//! is closed when the last copy has ended.

use crate::sys::cuda::{CuContext, CuDevice, Cuda, CudaError};
use crate::wire::device_handle::{DeviceHandle, MemoryExport, ProcessIdentity, UUID};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;

/// Allocations that stay open without a copy.
const MAX_OPEN: usize = 256;
/// Refusals that are remembered. Further ones take the place of all.
const MAX_REFUSED: usize = 4096;

/// An allocation of another process. Closed on drop.
pub struct OpenedAllocation {
    cuda: &'static Cuda,
    owner: ProcessIdentity,
    /// UUID of its device.
    of: [u8; UUID],
    base: u64,
    len: u64,
    buffer_id: u64,
    /// The context for which it is open, and the identity of that, as its handle may be that of a later one.
    pub ctx: CuContext,
    ctx_id: Option<u64>,
    /// The context's device.
    device: CuDevice,
    /// Its first byte here.
    pub addr: u64,
}

impl OpenedAllocation {
    /// Whether the context for which it is open still exists.
    fn is_usable(&self) -> bool {
        self.ctx_id.is_none() || self.cuda.context_id(self.ctx) == self.ctx_id
    }

    fn is(&self, handle: &DeviceHandle) -> bool {
        self.has_place_of(handle) && self.buffer_id == handle.buffer_id && self.len == handle.len
    }

    /// Whether it begins where the allocation of a handle begins: it is that one, or an earlier one that was freed.
    fn has_place_of(&self, handle: &DeviceHandle) -> bool {
        self.is_of(handle) && self.base == handle.base
    }

    fn is_of(&self, handle: &DeviceHandle) -> bool {
        self.owner == handle.owner && self.of == handle.device
    }
}

impl Drop for OpenedAllocation {
    fn drop(&mut self) {
        // A context that is gone has closed it.
        if self.is_usable()
            && let Ok(_current) = self.cuda.enter(self.ctx)
        {
            self.cuda.close_ipc(self.addr);
        }
    }
}

/// Why an allocation cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// None of this process and device can: nothing of it was ever opened.
    Process(CudaError),
    /// This one cannot: it was freed, or its process has ended.
    Allocation(CudaError),
}

/// All of them, the last used one at the end.
#[derive(Default)]
pub struct OpenedTable(Mutex<Tables>);

#[derive(Default)]
struct Tables {
    open: Vec<Arc<OpenedAllocation>>,
    /// Processes of which nothing can be opened, each for a device.
    refused: HashSet<(ProcessIdentity, [u8; UUID])>,
    /// Allocations that cannot be opened: process, base and buffer id.
    unusable: HashSet<(ProcessIdentity, u64, u64)>,
    /// Processes of which something was opened.
    proven: HashSet<(ProcessIdentity, [u8; UUID])>,
}

impl OpenedTable {
    /// Whether the allocation was found not to be possible to open.
    pub fn is_refused(&self, handle: &DeviceHandle) -> bool {
        let tables = self.0.lock();
        let allocation = (handle.owner, handle.base, handle.buffer_id);
        tables.refused.contains(&(handle.owner, handle.device))
            || tables.unusable.contains(&allocation)
    }

    /// The allocation, if it is open. Closes an earlier one at its place.
    pub fn find(&self, handle: &DeviceHandle) -> Option<Arc<OpenedAllocation>> {
        let mut tables = self.0.lock();
        let at = (tables.open.iter()).rposition(|open| open.has_place_of(handle))?;
        let found = tables.open.remove(at);
        if found.is(handle) && found.is_usable() {
            tables.open.push(Arc::clone(&found));
            return Some(found);
        }
        // Closed without the lock.
        drop(tables);
        drop(found);
        None
    }

    /// The context of `device` in which memory of the same process and device is open: the driver permits no second
    /// one.
    pub fn context_of(
        &self,
        cuda: &Cuda,
        handle: &DeviceHandle,
        device: CuDevice,
    ) -> Option<CuContext> {
        let tables = self.0.lock();
        let same = |open: &&Arc<OpenedAllocation>| open.is_of(handle) && open.device == device;
        let open = tables.open.iter().find(same)?;
        (cuda.context_id(open.ctx) == open.ctx_id).then_some(open.ctx)
    }

    /// Opens an allocation for a context of `device`, and remembers it, or that it cannot be opened.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn open(
        &self,
        cuda: &'static Cuda,
        handle: &DeviceHandle,
        ctx: CuContext,
        device: CuDevice,
    ) -> Result<Arc<OpenedAllocation>, OpenError> {
        let opened = (cuda.enter(ctx)).and_then(|_current| match handle.export {
            MemoryExport::Legacy(handle) => cuda.open_ipc(handle),
            // In its own process only.
            MemoryExport::Address => Err(cuda.unsupported("cuIpcOpenMemHandle")),
        });
        let mut tables = self.0.lock();
        let place = (handle.owner, handle.device);
        match opened {
            Ok(addr) => {
                let open = Arc::new(OpenedAllocation {
                    cuda,
                    owner: handle.owner,
                    of: handle.device,
                    base: handle.base,
                    len: handle.len,
                    buffer_id: handle.buffer_id,
                    ctx,
                    ctx_id: cuda.context_id(ctx),
                    device,
                    addr,
                });
                bound(&mut tables.proven);
                tables.proven.insert(place);
                tables.open.push(Arc::clone(&open));
                let idle = tables.beyond_bound();
                drop(tables);
                drop(idle);
                Ok(open)
            }
            Err(e) if tables.proven.contains(&place) => {
                bound(&mut tables.unusable);
                let allocation = (handle.owner, handle.base, handle.buffer_id);
                tables.unusable.insert(allocation);
                Err(OpenError::Allocation(e))
            }
            Err(e) => {
                bound(&mut tables.refused);
                tables.refused.insert(place);
                Err(OpenError::Process(e))
            }
        }
    }

    /// Forgets a process that has ended.
    pub fn forget(&self, owner: ProcessIdentity) {
        let mut tables = self.0.lock();
        let all = std::mem::take(&mut tables.open).into_iter();
        let (gone, left): (Vec<_>, Vec<_>) = all.partition(|open| open.owner == owner);
        tables.open = left;
        tables.refused.retain(|(process, _)| *process != owner);
        tables.unusable.retain(|(process, ..)| *process != owner);
        tables.proven.retain(|(process, _)| *process != owner);
        drop(tables);
        drop(gone);
    }

    /// Closes all that no copy uses, and forgets the others.
    pub fn close_all(&self) {
        let open = std::mem::take(&mut self.0.lock().open);
        drop(open);
    }
}

impl Tables {
    /// Removes the allocation that was not used for the longest time, if there are too many and no copy uses it.
    fn beyond_bound(&mut self) -> Option<Arc<OpenedAllocation>> {
        if self.open.len() <= MAX_OPEN {
            return None;
        }
        let idle = |open: &Arc<OpenedAllocation>| Arc::strong_count(open) == 1;
        let at = self.open.iter().position(idle)?;
        Some(self.open.remove(at))
    }
}

/// Makes room where a set has grown too long.
fn bound<T>(set: &mut HashSet<T>) {
    if set.len() >= MAX_REFUSED {
        set.clear();
    }
}
