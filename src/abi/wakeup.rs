//! Sleeping until a worker has events.

use super::output::{inherited, invalid};
use super::worker::worker_of;
use crate::ctypes::*;
use crate::engine::wakeup::Wakeup;
use crate::engine::worker::Worker;
use crate::op::wakeup;
use std::ffi::{c_int, c_void};

unsafe fn wake_of(
    worker: ucp_worker_h,
    function: &str,
) -> Result<(&'static Worker, &'static Wakeup), ucs_status_t> {
    if worker.is_null() {
        return Err(invalid(function, "worker is null"));
    }
    // SAFETY: the caller's handle.
    let w = unsafe { worker_of(worker) };
    if w.is_inherited() {
        return Err(inherited(function));
    }
    w.wakeup.as_ref().map(|wake| (w, wake)).ok_or_else(|| {
        invalid(
            function,
            "the context was created without UCP_FEATURE_WAKEUP",
        )
    })
}

/// The descriptor that becomes readable when there is something to progress.
///
/// # Safety
/// A live worker; `fd` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_worker_get_efd(worker: ucp_worker_h, fd: *mut c_int) -> ucs_status_t {
    if fd.is_null() {
        return invalid("ucp_worker_get_efd", "fd is null");
    }
    // SAFETY: the caller's handle and pointer.
    unsafe {
        match wake_of(worker, "ucp_worker_get_efd").map(|(_, wake)| wake.epoll_fd()) {
            Ok(Some(epoll)) => {
                fd.write(epoll);
                UCS_OK
            }
            // The user supplied an epoll descriptor.
            Ok(None) => UCS_ERR_UNSUPPORTED,
            Err(status) => status,
        }
    }
}

/// Prepares for sleep: `UCS_ERR_BUSY` if there is something to progress first.
///
/// # Safety
/// A live worker.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_worker_arm(worker: ucp_worker_h) -> ucs_status_t {
    // SAFETY: the caller's handle.
    match unsafe { wake_of(worker, "ucp_worker_arm") } {
        Ok((w, wake)) => wakeup::arm(w, wake),
        Err(status) => status,
    }
}

/// Sleeps until there may be something to progress.
///
/// # Safety
/// A live worker.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_worker_wait(worker: ucp_worker_h) -> ucs_status_t {
    // SAFETY: the caller's handle.
    match unsafe { wake_of(worker, "ucp_worker_wait") } {
        Ok((w, wake)) => wakeup::wait(w, wake),
        Err(status) => status,
    }
}

/// Pauses the processor for a moment, between two reads of memory that another thread or process writes.
#[unsafe(no_mangle)]
pub extern "C" fn ucp_worker_wait_mem(_worker: ucp_worker_h, _address: *mut c_void) {
    std::hint::spin_loop();
}

/// Wakes the worker, from any thread.
///
/// # Safety
/// A live worker.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_worker_signal(worker: ucp_worker_h) -> ucs_status_t {
    // SAFETY: the caller's handle.
    match unsafe { wake_of(worker, "ucp_worker_signal") } {
        Ok((_, wake)) => {
            wake.signal();
            UCS_OK
        }
        Err(status) => status,
    }
}
