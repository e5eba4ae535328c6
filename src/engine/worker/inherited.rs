//! A worker in a forked child ([`inherited`](crate::engine::inherited)).

use super::Worker;
use crate::ctypes::*;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// Flags that are added to the operations of an inherited worker: they exclude each other, so that every operation
/// takes the slow path.
const BOTH_HINTS: u32 = UCP_OP_ATTR_FLAG_FAST_CMPL as u32 | UCP_OP_ATTR_FLAG_MULTI_SEND as u32;

/// Disables a worker.
///
/// # Safety
/// `worker` is one that is not dropped yet. The process has a single thread.
pub unsafe fn disable(worker: NonNull<()>, _: usize) {
    // SAFETY: the caller's promise; the fields that are used are atomics, or locks.
    let worker = unsafe { worker.cast::<Worker>().as_ref() };
    // Relaxed, here and below: there is one thread.
    worker.fast_path_recv.set(false);
    worker.receive_limit.set(1);
    worker
        .extra_op_flags
        .fetch_or(BOTH_HINTS, Ordering::Relaxed);
    worker.progress_flags.set_inherited();
    worker.rx.disable();
    // Requests that the program holds are freed into the pool. It is sound to use at any time: elements are removed and
    // returned by one store.
    worker.pool.free_in_child();
}
