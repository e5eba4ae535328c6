//! Allocations of other processes that are open here.
//!
//! They stay open between copies, up to a bound. A copy holds the allocation that it uses: what is forgotten meanwhile
//! is closed when the last copy has ended.

use super::opening::{OpenFailure, OpenMemory, OpenPools};
use crate::options::Options;
use crate::sys::cuda::{CuContext, CuDevice, Cuda};
use crate::wire::device_handle::{DeviceHandle, ProcessIdentity, UUID};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashSet;
use std::sync::Arc;

/// Allocations that stay open without a copy, unless the options say another number.
const MAX_OPEN: usize = 256;
/// Refusals that are remembered. Further ones take the place of all.
const MAX_REFUSED: usize = 4096;
/// Locks of processes whose allocations are opened.
const OPEN_LOCKS: usize = 16;

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
    pub device: CuDevice,
    memory: OpenMemory,
}

impl OpenedAllocation {
    /// Its first byte here.
    pub fn addr(&self) -> u64 {
        self.memory.addr()
    }

    /// Whether another device than that of the context can access it from now on.
    pub fn allows(&self, device: CuDevice) -> bool {
        self.memory.allow(self.cuda, device).is_ok()
    }

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
        let ctx = self.is_usable().then_some(self.ctx);
        self.memory.close(self.cuda, ctx, self.device);
    }
}

/// Why an allocation cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// None of this process, device and kind can: nothing of it was ever opened, or the process does not answer.
    Process(OpenFailure),
    /// This one cannot: it was freed, or its process has ended.
    Allocation(OpenFailure),
}

/// How much stays open without a copy.
struct CacheLimits {
    allocations: usize,
    bytes: u64,
}

impl CacheLimits {
    fn new(options: &Options) -> CacheLimits {
        let options = &options.cuda;
        let number = (options.cache_max_regions.number()).filter(|&number| number < usize::MAX);
        CacheLimits {
            allocations: match options.cache {
                true => number.unwrap_or(MAX_OPEN),
                false => 0,
            },
            bytes: options.cache_max_size.bytes_or(usize::MAX) as u64,
        }
    }
}

/// All of them.
pub struct OpenedTable {
    limits: CacheLimits,
    tables: Mutex<Tables>,
    pools: OpenPools,
    /// By the number of the process.
    open_locks: [Mutex<()>; OPEN_LOCKS],
}

/// A process, a device, and a kind of export.
type Source = (ProcessIdentity, [u8; UUID], u8);

fn source(handle: &DeviceHandle) -> Source {
    (handle.owner, handle.device, handle.export.kind())
}

#[derive(Default)]
struct Tables {
    /// The last used one at the end.
    open: Vec<Arc<OpenedAllocation>>,
    /// Those of which nothing can be opened.
    refused: HashSet<Source>,
    /// Allocations that cannot be opened: process, base and buffer id.
    unusable: HashSet<(ProcessIdentity, u64, u64)>,
    /// Those of which something was opened.
    proven: HashSet<Source>,
    /// Those whose memory no device of this process can copy, or none that reaches this device's memory, too.
    apart: HashSet<(Source, CuDevice)>,
}

impl OpenedTable {
    /// Nothing is open.
    pub fn new(options: &Options) -> OpenedTable {
        OpenedTable {
            limits: CacheLimits::new(options),
            tables: Mutex::default(),
            pools: OpenPools::default(),
            open_locks: Default::default(),
        }
    }

    /// Keeps other threads from opening allocations of a process: they find what this thread opens. A second opening
    /// could choose another context, which the driver refuses.
    pub fn lock_opening(&self, owner: ProcessIdentity) -> MutexGuard<'_, ()> {
        self.open_locks[(owner.number % OPEN_LOCKS as u64) as usize].lock()
    }

    /// Remembers that memory of a handle cannot be copied from or to memory of a device of this process. True: it was
    /// not known.
    pub fn note_apart(&self, handle: &DeviceHandle, near: CuDevice) -> bool {
        let mut tables = self.tables.lock();
        bound(&mut tables.apart);
        tables.apart.insert((source(handle), near))
    }

    /// Whether the allocation was found not to be possible to open.
    pub fn is_refused(&self, handle: &DeviceHandle) -> bool {
        let tables = self.tables.lock();
        let allocation = (handle.owner, handle.base, handle.buffer_id);
        tables.refused.contains(&source(handle)) || tables.unusable.contains(&allocation)
    }

    /// The allocation, if it is open. Closes an earlier one at its place.
    pub fn find(&self, handle: &DeviceHandle) -> Option<Arc<OpenedAllocation>> {
        let mut tables = self.tables.lock();
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
        let tables = self.tables.lock();
        let same = |open: &&Arc<OpenedAllocation>| open.is_of(handle) && open.device == device;
        let open = tables.open.iter().find(same)?;
        (cuda.context_id(open.ctx) == open.ctx_id).then_some(open.ctx)
    }

    /// Opens an allocation for a context of `device`, and remembers it, or that it cannot be opened.
    ///
    /// # Errors
    /// Those of the driver, and of the owner's service.
    pub fn open(
        &self,
        cuda: &'static Cuda,
        handle: &DeviceHandle,
        ctx: CuContext,
        device: CuDevice,
    ) -> Result<Arc<OpenedAllocation>, OpenError> {
        let opened = (cuda.enter(ctx).map_err(OpenFailure::from))
            .and_then(|_current| OpenMemory::open(cuda, handle, device, &self.pools));
        let mut tables = self.tables.lock();
        let place = source(handle);
        match opened {
            Ok(memory) => {
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
                    memory,
                });
                bound(&mut tables.proven);
                tables.proven.insert(place);
                tables.open.push(Arc::clone(&open));
                let excess = tables.excess(&self.limits);
                drop(tables);
                drop(excess);
                Ok(open)
            }
            Err(e) if e.is_passing() => Err(OpenError::Allocation(e)),
            Err(e) if !e.is_silence() && (e.is_gone() || tables.proven.contains(&place)) => {
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
        let mut tables = self.tables.lock();
        let all = std::mem::take(&mut tables.open).into_iter();
        let (gone, left): (Vec<_>, Vec<_>) = all.partition(|open| open.owner == owner);
        tables.open = left;
        tables.refused.retain(|(process, ..)| *process != owner);
        tables.unusable.retain(|(process, ..)| *process != owner);
        tables.proven.retain(|(process, ..)| *process != owner);
        tables.apart.retain(|((process, ..), _)| *process != owner);
        drop(tables);
        drop(gone);
    }

    /// A copy has ended: closes what no copy uses and is beyond the limits.
    pub fn close_excess(&self) {
        let excess = self.tables.lock().excess(&self.limits);
        drop(excess);
    }

    /// Closes all that no copy uses, and forgets the others.
    pub fn close_all(&self) {
        let open = std::mem::take(&mut self.tables.lock().open);
        drop(open);
    }
}

impl Tables {
    /// Removes what is beyond the limits of those that no copy uses, what was not used for the longest time first.
    fn excess(&mut self, limits: &CacheLimits) -> Vec<Arc<OpenedAllocation>> {
        let is_idle = |open: &Arc<OpenedAllocation>| Arc::strong_count(open) == 1;
        let (mut idle, mut bytes) = (0, 0u128);
        for open in self.open.iter().filter(|open| is_idle(open)) {
            idle += 1;
            bytes += u128::from(open.len);
        }
        let is_excess = |open: &Arc<OpenedAllocation>| {
            let is = is_idle(open) && (idle > limits.allocations || bytes > limits.bytes.into());
            if is {
                idle -= 1;
                bytes -= u128::from(open.len);
            }
            is
        };
        let all = std::mem::take(&mut self.open).into_iter();
        let (excess, left) = all.partition(is_excess);
        self.open = left;
        excess
    }
}

/// Makes room where a set has grown too long.
fn bound<T>(set: &mut HashSet<T>) {
    if set.len() >= MAX_REFUSED {
        set.clear();
    }
}
