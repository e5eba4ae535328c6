//! Handles of allocations of this process, made when a peer is first offered one.

use crate::sys::cuda::{CuContext, Cuda, MemoryInfo};
use crate::wire::device_handle::MemoryExport;
use parking_lot::Mutex;
use std::collections::HashMap;

/// Allocations that are remembered. Further ones take the place of all.
const MAX_EXPORTS: usize = 4096;

/// How an allocation is exported, by its first byte.
#[derive(Default)]
pub struct Exports(Mutex<HashMap<u64, MadeHandle>>);

#[derive(Clone, Copy)]
struct MadeHandle {
    /// That of the allocation: a later one at the address has another.
    buffer_id: u64,
    /// `None`: the driver cannot export it.
    export: Option<MemoryExport>,
}

impl Exports {
    /// How peers open the allocation that contains this memory, which is accessed by the context that `ctx` returns.
    /// `None`: they cannot.
    pub fn of(
        &self,
        cuda: &Cuda,
        memory: &MemoryInfo,
        ctx: impl FnOnce() -> Option<CuContext>,
    ) -> Option<MemoryExport> {
        let same = |known: &&MadeHandle| known.buffer_id == memory.buffer_id;
        if let Some(known) = self.0.lock().get(&memory.start).filter(same) {
            return known.export;
        }
        let export = ctx().and_then(|ctx| legacy(cuda, memory, ctx));
        let made = MadeHandle {
            buffer_id: memory.buffer_id,
            export,
        };
        let mut known = self.0.lock();
        if known.len() >= MAX_EXPORTS {
            known.clear();
        }
        known.insert(memory.start, made);
        export
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
