//! Counters by which a kernel of a peer says that data have arrived: 8 bytes of any kind of memory, at any address.

use super::device_words;
use crate::ctypes::*;
use crate::engine::context::MemoryAccess;
use crate::engine::memory::{MemHandle, note_wrong_type};
use crate::engine::worker::Worker;
use crate::sys::cuda::MemoryKind;
use crate::sys::log;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a counter.
pub const COUNTER_BYTES: usize = size_of::<u64>();

/// What the caller says of a counter's memory.
#[derive(Clone, Copy, Default)]
pub struct CounterParams {
    /// A number of `ucs_memory_type_t`.
    pub memory_type: Option<u32>,
    /// The handle of the memory. It outranks the type.
    pub memh: Option<ucp_mem_h>,
}

/// How the memory of a counter is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CounterAccess {
    /// By the processor: it is the host's.
    Processor,
    /// By copies of the driver.
    Driver,
}

/// How memory is accessed whose kind the driver knows, if the context uses one.
fn by_driver(worker: &Worker, addr: u64) -> CounterAccess {
    let kind = match &worker.ctx.cuda {
        Some(cuda) => cuda.memory_at(addr).kind,
        None => MemoryKind::Host,
    };
    match kind {
        MemoryKind::Host => CounterAccess::Processor,
        MemoryKind::Device | MemoryKind::Managed => CounterAccess::Driver,
    }
}

/// # Errors
/// `UCS_ERR_UNSUPPORTED` for a type of memory that this context does not access, `UCS_ERR_INVALID_PARAM` for a handle
/// that is not mapped, and for memory of a device that is stated to be the host's; all with a line in the log.
fn access_of(
    worker: &Worker,
    what: &str,
    params: CounterParams,
    addr: u64,
) -> Result<CounterAccess, ucs_status_t> {
    if let Some(memh) = params.memh {
        return by_handle(worker, what, memh, addr);
    }
    let Some(memory_type) = params.memory_type else {
        return Ok(by_driver(worker, addr));
    };
    match worker.ctx.memory_access(memory_type) {
        MemoryAccess::Processor => Ok(CounterAccess::Processor),
        MemoryAccess::AskDriver(_) => Ok(by_driver(worker, addr)),
        MemoryAccess::CheckHost(cuda) if cuda.memory_at(addr).kind == MemoryKind::Device => {
            note_wrong_type(what, addr);
            Err(UCS_ERR_INVALID_PARAM)
        }
        MemoryAccess::CheckHost(_) => Ok(CounterAccess::Processor),
        MemoryAccess::None => {
            log::error!(
                "{what}: a counter in {}, and only {} is supported",
                memory_text(memory_type),
                worker.ctx.memory_types_text()
            );
            Err(UCS_ERR_UNSUPPORTED)
        }
    }
}

fn by_handle(
    worker: &Worker,
    what: &str,
    memh: ucp_mem_h,
    addr: u64,
) -> Result<CounterAccess, ucs_status_t> {
    let mapped = worker.ctx.handles.lock();
    if !mapped.contains(&(memh as usize)) {
        log::error!("{what}: a memory handle that is not mapped");
        return Err(UCS_ERR_INVALID_PARAM);
    }
    // SAFETY: the handle is mapped, and cannot be unmapped while the set is locked.
    let memory = unsafe { &*memh.cast::<MemHandle>() };
    let offset = addr.wrapping_sub(memory.addr);
    let is_inside =
        offset <= memory.len as u64 && memory.len as u64 - offset >= COUNTER_BYTES as u64;
    Ok(match memory.kind {
        MemoryKind::Host if is_inside => CounterAccess::Processor,
        // The handle of other memory says nothing.
        MemoryKind::Host | MemoryKind::Device | MemoryKind::Managed => by_driver(worker, addr),
    })
}

/// Sets a counter to 0.
///
/// # Errors
/// `UCS_ERR_INVALID_PARAM`, `UCS_ERR_UNSUPPORTED`: of the memory; `UCS_ERR_IO_ERROR`: its device has failed. All with a
/// line in the log.
///
/// # Safety
/// 8 bytes are writable at `addr`, and of the kind that `params` says.
pub unsafe fn init(
    worker: &Worker,
    what: &str,
    params: CounterParams,
    addr: u64,
) -> Result<(), ucs_status_t> {
    let access = access_of(worker, what, params, addr)?;
    let counter = addr as *mut u64;
    if access == CounterAccess::Processor && counter.is_aligned() {
        // SAFETY: writable by the caller's promise, and aligned. Release: pairs with the Acquire of `read`.
        unsafe { AtomicU64::from_ptr(counter).store(0, Ordering::Release) };
        return Ok(());
    }
    if access == CounterAccess::Processor {
        // SAFETY: writable by the caller's promise.
        unsafe { counter.write_unaligned(0) };
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { device_words::write(worker.ctx, addr, &[0; COUNTER_BYTES]) }
}

/// The value of a counter.
///
/// # Errors
/// `UCS_ERR_INVALID_PARAM`, `UCS_ERR_UNSUPPORTED`: of the memory; `UCS_ERR_IO_ERROR`: its device has failed. All with a
/// line in the log.
///
/// # Safety
/// 8 bytes are readable at `addr`, and of the kind that `params` says.
pub unsafe fn read(
    worker: &Worker,
    what: &str,
    params: CounterParams,
    addr: u64,
) -> Result<u64, ucs_status_t> {
    let access = access_of(worker, what, params, addr)?;
    let counter = addr as *mut u64;
    if access == CounterAccess::Processor && counter.is_aligned() {
        // SAFETY: readable by the caller's promise, and aligned. Acquire: pairs with the Release of the processor that
        // has changed it; what it wrote before is visible.
        return Ok(unsafe { AtomicU64::from_ptr(counter).load(Ordering::Acquire) });
    }
    if access == CounterAccess::Processor {
        // SAFETY: readable by the caller's promise.
        return Ok(unsafe { counter.read_unaligned() });
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { device_words::read(worker.ctx, addr) }?;
    Ok(u64::from_le_bytes(bytes))
}
