//! Registered memory of devices, which peers access by messages to its owner.

use super::{amo_target, keep};
use crate::ctypes::*;
use crate::engine::datatype::Data;
use crate::engine::peer::Peer;
use crate::engine::regions::LastRegion;
use crate::engine::worker::Worker;
use crate::sys::cuda::MemoryKind;
use crate::sys::log;
use crate::tl::amo::{self, AmoOp};
use crate::tl::cuda::{DeviceData, DevicePieces, Lookup};

/// Whether a peer may access this memory of a device, which must be registered.
#[cold]
pub fn permits(worker: &Worker, addr: u64, len: u64) -> bool {
    let regions = &worker.ctx.device_regions;
    regions.permits(&LastRegion::default(), addr, len)
}

/// Logs that a peer asks for memory that is not registered, or that cannot be accessed: the first one of the process
/// as an error.
#[cold]
pub fn refuse(peer: &Peer, addr: u64, len: u64, what: &str) -> ucs_status_t {
    log::once!(
        Error,
        "worker {:#x} asks to {what} {len} bytes at {addr:#x}, which is not registered: ucp_mem_map was not called \
         for all of it, or ucp_mem_unmap too early",
        peer.uid
    );
    UCS_ERR_INVALID_ADDR
}

/// Memory of a device for an access of at most `len` bytes by a peer, which may access the first of them.
///
/// # Errors
/// `UCS_ERR_INVALID_ADDR`: the memory has been freed.
#[cold]
pub fn memory(
    worker: &Worker,
    peer: &Peer,
    addr: u64,
    len: u64,
    what: &str,
) -> Result<DeviceData, ucs_status_t> {
    let Some(cuda) = &worker.ctx.cuda else {
        return Err(refuse(peer, addr, len, what));
    };
    // The driver is asked each time: the program may have freed what a peer names.
    let memory = cuda.cuda.memory_at(addr);
    if memory.kind == MemoryKind::Host {
        return Err(refuse(peer, addr, len, what));
    }
    let whole = (DevicePieces::Contig { addr }, len as usize);
    let known = Lookup::knowing(memory);
    Ok(DeviceData::new(cuda, whole, known, memory))
}

/// The data of an access by a peer, to be ended by [`Data::finish`].
///
/// # Errors
/// `UCS_ERR_INVALID_ADDR`: the memory is not registered, or has been freed.
#[cold]
fn data(
    worker: &Worker,
    peer: &Peer,
    addr: u64,
    len: u64,
    what: &str,
) -> Result<Data, ucs_status_t> {
    match permits(worker, addr, len) {
        true => memory(worker, peer, addr, len, what).map(Data::of_device),
        false => Err(refuse(peer, addr, len, what)),
    }
}

/// What a peer reads.
///
/// # Errors
/// `UCS_ERR_INVALID_ADDR`: the memory is not registered, or has been freed.
#[cold]
pub fn source(worker: &Worker, peer: &Peer, addr: u64, len: u64) -> Result<Data, ucs_status_t> {
    data(worker, peer, addr, len, "read")
}

/// Executes an atomic operation for a peer: atomic to all others that this process executes for peers. Returns the
/// previous value.
///
/// # Errors
/// `UCS_ERR_INVALID_ADDR`: the memory is not registered, or has been freed. `UCS_ERR_IO_ERROR`: its device has failed.
#[cold]
pub fn change(worker: &Worker, peer: &Peer, addr: u64, amo: AmoOp) -> Result<u64, ucs_status_t> {
    // One at a time, as several threads may progress workers of this context.
    let _alone = amo_target::DEVICE_WORDS.lock();
    let size = usize::from(amo.size);
    let source = data(worker, peer, addr, size as u64, "change")?;
    keep::keep_before_change(peer);
    let mut word = [0u8; 8];
    // SAFETY: registered memory, which the user does not free before; the data end here; the word has room for `size`
    // bytes, and is aligned for either size below.
    unsafe {
        source.read_out(word.as_mut_ptr())?;
        let mut value = u64::from_le_bytes(word);
        let old = amo::execute((&raw mut value).cast(), amo);
        let target = data(worker, peer, addr, size as u64, "change")?;
        target.write_in((&raw const value).cast())?;
        Ok(old)
    }
}
