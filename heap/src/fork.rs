//! Forks: the memory of a parent and its child is the same after a fork, because it is shared, and must not be. The
//! parent copies what is allocated before the fork, and the child maps the copies in place of it.
//!
//! A child that shares the address space (`vfork`, `posix_spawn`) runs none of this and needs none. A child of a system
//! call that a program makes without libc shares the heap with its parent.

use crate::heap::{HEAP, Heap};
use crate::segment::Snapshot;
use std::cell::UnsafeCell;
use std::io;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicI32, Ordering};

/// What a fork keeps from before it until after it.
struct Fork {
    heap: MutexGuard<'static, Heap>,
    copies: Vec<io::Result<Option<Snapshot>>>,
}

struct ForkCell(UnsafeCell<Option<Fork>>);

// SAFETY: only the thread that holds the lock of the heap, and has it in here, accesses the content.
unsafe impl Sync for ForkCell {}

static FORK: ForkCell = ForkCell(UnsafeCell::new(None));

/// The thread that forks, 0: none. Relaxed: a thread compares it with its own number, which only itself has written.
static FORKING: AtomicI32 = AtomicI32::new(0);

fn this_thread() -> i32 {
    // SAFETY: no parameters; always succeeds.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

/// Registers the handlers of forks, before all others: `prepare` handlers run in reverse, so that those of other
/// libraries, which may wait for a thread that allocates, run before the heap is locked, and their child handlers find
/// the memory separated.
pub fn register() {
    // SAFETY: the functions exist as long as the process: this library is not unloaded, because it was preloaded.
    unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
}

/// Calls `act` with the heap, which is locked meanwhile. In handlers of forks of other libraries, too.
pub fn with_heap<R>(act: impl FnOnce(&mut Heap) -> R) -> R {
    let forking = FORKING.load(Ordering::Relaxed);
    if forking != 0 && forking == this_thread() {
        // SAFETY: this thread has stored the lock there and is in a handler of another library.
        if let Some(fork) = unsafe { (*FORK.0.get()).as_mut() } {
            return act(&mut fork.heap);
        }
    }
    match HEAP.lock() {
        Ok(mut heap) => act(&mut heap),
        // No panic leaves the heap in between: they end the process.
        Err(poisoned) => act(&mut poisoned.into_inner()),
    }
}

extern "C" fn prepare() {
    let mut heap = HEAP.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let copies = heap.snapshot();
    // SAFETY: this thread holds the lock.
    unsafe { *FORK.0.get() = Some(Fork { heap, copies }) };
    FORKING.store(this_thread(), Ordering::Relaxed);
}

/// Ends what [`prepare`] has begun; the lock is still held while the result exists.
fn end() -> Option<Fork> {
    FORKING.store(0, Ordering::Relaxed);
    // SAFETY: this thread has stored the lock there, or is the child's copy of the thread that has.
    unsafe { (*FORK.0.get()).take() }
}

extern "C" fn in_parent() {
    drop(end());
}

extern "C" fn in_child() {
    let Some(Fork { mut heap, copies }) = end() else {
        return;
    };
    if let Err(e) = heap.separate(copies) {
        crate::report(&format!(
            "cannot separate a child's memory from its parent's: {e}"
        ));
        std::process::abort();
    }
}
