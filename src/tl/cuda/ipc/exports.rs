//! Handles of allocations of this process, made when a peer is first offered one.

use super::service::MemoryService;
use crate::sys::cuda::{CuContext, Cuda, MemoryInfo};
use crate::wire::device_handle::MemoryExport;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Allocations that are remembered. Further ones take the place of all.
const MAX_EXPORTS: usize = 4096;

/// Pools that are remembered. Further ones take the place of all.
const MAX_POOLS: usize = 256;

/// How an allocation is exported, by its first byte.
#[derive(Default)]
pub struct Exports {
    made: Mutex<HashMap<u64, MadeHandle>>,
    /// By the driver's handle.
    pools: Mutex<HashMap<u64, ExportedPool>>,
    service: MemoryService,
}

#[derive(Clone, Copy)]
struct MadeHandle {
    /// That of the allocation: a later one at the address has another.
    buffer_id: u64,
    /// `None`: the driver cannot export it.
    export: Option<MemoryExport>,
}

/// A pool of which an allocation was exported. The driver may give its handle to another pool after its end.
struct ExportedPool {
    /// Its name for peers: no other pool of this process ever has it.
    name: u64,
    /// First byte and buffer id of the allocation that was exported last. While that exists the pool has not ended.
    witness: (u64, u64),
}

impl Exports {
    /// How peers open the allocation that contains this memory, which is accessed by the context that `ctx` returns.
    /// `None`: they cannot.
    pub fn of(
        &self,
        cuda: &'static Cuda,
        memory: &MemoryInfo,
        ctx: impl FnOnce() -> Option<CuContext>,
    ) -> Option<MemoryExport> {
        let same = |known: &&MadeHandle| known.buffer_id == memory.buffer_id;
        if let Some(known) = self.made.lock().get(&memory.start).filter(same) {
            return known.export;
        }
        let export = (ctx().and_then(|ctx| legacy(cuda, memory, ctx)))
            .or_else(|| self.by_descriptor(cuda, memory));
        let made = MadeHandle {
            buffer_id: memory.buffer_id,
            export,
        };
        let mut known = self.made.lock();
        if known.len() >= MAX_EXPORTS {
            known.clear();
        }
        known.insert(memory.start, made);
        export
    }

    /// The export of memory of `cuMemMap` or of a pool that the program has made for it.
    fn by_descriptor(&self, cuda: &'static Cuda, memory: &MemoryInfo) -> Option<MemoryExport> {
        let base = memory.start;
        if memory.buffer_id == 0 {
            // A later allocation at its address could not be distinguished from it.
            return None;
        }
        if let Some(handle) = cuda.pool_of(base) {
            let pointer = cuda.export_pool_pointer(base).ok()?;
            // Not kept: peers get one each.
            cuda.export_pool(base).ok()?;
            let service = self.service.name(cuda)?;
            return Some(MemoryExport::Pool {
                service,
                pool: self.pool_name(cuda, handle, memory),
                pointer,
            });
        }
        let is_shareable = cuda.has_descriptor(base).unwrap_or(false);
        let service = is_shareable.then(|| self.service.name(cuda))??;
        Some(MemoryExport::Mapped { service })
    }

    /// The name for peers of the pool with this handle, of which this memory is. A new one unless it is known that no
    /// other pool had the handle meanwhile.
    fn pool_name(&self, cuda: &Cuda, handle: u64, memory: &MemoryInfo) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let exists = |pool: &&ExportedPool| {
            let (base, buffer_id) = pool.witness;
            let there = cuda.memory_at(base);
            (there.start, there.buffer_id) == (base, buffer_id)
                && cuda.pool_of(base) == Some(handle)
        };
        let mut pools = self.pools.lock();
        let known = pools.get(&handle).filter(exists).map(|pool| pool.name);
        if known.is_none() && pools.len() >= MAX_POOLS {
            pools.clear();
        }
        // Relaxed: a number, by which nothing is published.
        let name = known.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
        let witness = (memory.start, memory.buffer_id);
        pools.insert(handle, ExportedPool { name, witness });
        name
    }
}

/// The handle of memory of `cuMemAlloc`.
fn legacy(cuda: &Cuda, memory: &MemoryInfo, ctx: CuContext) -> Option<MemoryExport> {
    let _current = cuda.enter(ctx).ok()?;
    let handle = cuda.ipc_handle(memory.start).ok()?;
    // Peers do not wait for what the program's calls have left to the device.
    cuda.synchronize_memops(memory.start);
    Some(MemoryExport::Legacy(handle))
}
