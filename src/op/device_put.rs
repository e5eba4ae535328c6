//! Puts of peers into registered memory of a device, by message. The parts of a long one are copied to the device
//! behind their arrival, and its last part is answered when all of them are there.

use super::{device_target, keep};
use crate::ctypes::*;
use crate::engine::partial_put::PartialPut;
use crate::engine::peer::Peer;
use crate::engine::worker::Worker;

/// Writes a part for a peer. `follows`: bytes of the put that come behind it, at most; 0: none, and all bytes of the
/// put are in place when this returns.
///
/// # Errors
/// `UCS_ERR_INVALID_ADDR`: the memory is not registered, or has been freed. `UCS_ERR_IO_ERROR`: its device has failed.
/// Later parts of the put are a put of their own then.
///
/// # Safety
/// `len` bytes are readable at `bytes`.
#[cold]
pub unsafe fn write(
    worker: &Worker,
    peer: &Peer,
    addr: u64,
    (bytes, len): (*const u8, usize),
    follows: u64,
) -> Result<(), ucs_status_t> {
    let mut partial_puts = worker.peer_lists.partial_puts.lock();
    // One that this part does not continue was left unfinished by a forced close: it ends here.
    let begun = (partial_puts.remove(peer)).filter(|put| put.expects(addr, len));
    if !device_target::permits(worker, addr, len as u64) {
        return Err(device_target::refuse(peer, addr, len as u64, "write"));
    }
    let mut put = match begun {
        Some(put) => put,
        None if len == 0 => return Ok(()),
        None => {
            let most = (len as u64).saturating_add(follows);
            let memory = device_target::memory(worker, peer, addr, most, "write")?;
            PartialPut::new(addr, memory)
        }
    };
    keep::keep_before_change(peer);
    // SAFETY: the put expects the bytes, or begins with them; registered memory, which the user does not free before.
    unsafe { put.store(bytes, len) }?;
    if follows == 0 {
        return put.finish();
    }
    partial_puts.insert(peer, put);
    Ok(())
}
