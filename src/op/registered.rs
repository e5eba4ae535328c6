//! Accesses of peers to registered memory, of the host or of a device.

use super::{amo_target, device_put, device_target, keep};
use crate::ctypes::*;
use crate::engine::datatype::Data;
use crate::engine::peer::Peer;
use crate::engine::worker::Worker;
use crate::tl::amo::AmoOp;

/// Whether a peer may access this memory of the host, which must be registered.
fn allowed(worker: &Worker, addr: u64, len: u64) -> bool {
    worker.ctx.regions.permits(&worker.last_region, addr, len)
}

/// Whether a peer may access this memory, of the host or of a device, which must be registered. Logs an error if not.
pub fn permitted(worker: &Worker, peer: &Peer, addr: u64, len: u64, what: &str) -> bool {
    let ok = allowed(worker, addr, len) || device_target::permits(worker, addr, len);
    if !ok {
        device_target::refuse(peer, addr, len, what);
    }
    ok
}

/// Writes a part of a put to this worker's memory for a peer. `follows`: bytes of the put that come behind it, at most;
/// 0: none. Behind the last part all of them are in place.
///
/// # Errors
/// `UCS_ERR_INVALID_ADDR`: the memory is not registered. `UCS_ERR_IO_ERROR`: its device has failed.
///
/// # Safety
/// `len` bytes are readable at `bytes`.
pub unsafe fn write(
    worker: &Worker,
    peer: &Peer,
    addr: u64,
    (bytes, len): (*const u8, usize),
    follows: u64,
) -> Result<(), ucs_status_t> {
    if !allowed(worker, addr, len as u64) {
        // SAFETY: the caller's bytes are readable.
        return unsafe { device_put::write(worker, peer, addr, (bytes, len), follows) };
    }
    keep::keep_before_change(peer);
    // SAFETY: registered memory of this process.
    unsafe { std::ptr::copy_nonoverlapping(bytes, addr as *mut u8, len) };
    Ok(())
}

/// What a peer reads.
///
/// # Errors
/// `UCS_ERR_INVALID_ADDR`: the memory is not registered.
pub fn source(worker: &Worker, peer: &Peer, addr: u64, len: u64) -> Result<Data, ucs_status_t> {
    if !allowed(worker, addr, len) {
        return device_target::source(worker, peer, addr, len);
    }
    let (ptr, len) = (addr as *mut u8, len as usize);
    Ok(Data::Contig { len, ptr })
}

/// Executes an atomic operation on this worker's memory for a peer. Returns the previous value.
///
/// # Errors
/// `UCS_ERR_INVALID_ADDR` if the memory is not registered or the address not aligned.
pub fn change(worker: &Worker, peer: &Peer, addr: u64, amo: AmoOp) -> Result<u64, ucs_status_t> {
    if addr % u64::from(amo.size) != 0 {
        return Err(UCS_ERR_INVALID_ADDR);
    }
    if !allowed(worker, addr, amo.size.into()) {
        return device_target::change(worker, peer, addr, amo);
    }
    keep::keep_before_change(peer);
    // SAFETY: registered memory of this process, aligned.
    unsafe { amo_target::execute(worker, peer, addr, amo) }
}
