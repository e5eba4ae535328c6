//! Execution of atomic operations on memory of this process, for peers that send them by message and for the worker
//! itself. One unit executes all operations on a region: the processor, or a device.

use crate::ctypes::*;
use crate::engine::peer::Peer;
use crate::engine::worker::Worker;
use crate::sys::log;
use crate::tl::amo::{self, AmoOp};
use parking_lot::Mutex;

/// Held while this process executes an operation on a word of a device: it reads and writes the word in two copies.
pub(super) static DEVICE_WORDS: Mutex<()> = Mutex::new(());

/// Executes an operation on registered memory by the unit that executes those of the peers.
///
/// # Errors
/// `UCS_ERR_IO_ERROR`: it is unknown whether the operation was executed.
///
/// # Safety
/// `addr` points to `amo.size` bytes of registered memory of this process and is aligned to them.
pub(super) unsafe fn execute(
    worker: &Worker,
    peer: &Peer,
    addr: u64,
    amo: AmoOp,
) -> Result<u64, ucs_status_t> {
    let (tl, regions) = (&worker.ctx.tl, &worker.ctx.regions);
    // SAFETY: the caller's memory is valid.
    let done = unsafe { tl.execute_amo(&worker.tl, regions, peer.fails_over(), addr, amo) };
    match done {
        // SAFETY: the caller's memory is valid.
        None => Ok(unsafe { amo::execute(addr as *mut u8, amo) }),
        Some(done) => done.map_err(|e| {
            log::once!(Error, each log::words(&e), "an atomic operation for a peer: {e}");
            UCS_ERR_IO_ERROR
        }),
    }
}
