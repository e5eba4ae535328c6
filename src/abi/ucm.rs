//! The functions of libucm that Open MPI uses: it hooks memory functions itself and reports unmapped memory to the
//! library.

use crate::ctypes::*;
use crate::sys::mem_monitor;
use std::ffi::{c_int, c_void};

/// Announces that the program will report these events itself.
#[unsafe(no_mangle)]
pub extern "C" fn ucm_set_external_event(events: c_int) {
    mem_monitor::expect_reports(events);
}

/// Whether these events are noticed.
#[unsafe(no_mangle)]
pub extern "C" fn ucm_test_events(events: c_int) -> ucs_status_t {
    let _ = events;
    UCS_OK
}

/// Whether the program's reports of these events are noticed.
#[unsafe(no_mangle)]
pub extern "C" fn ucm_test_external_events(events: c_int) -> ucs_status_t {
    let _ = events;
    UCS_OK
}

/// Reports that `length` bytes at `address` are about to be unmapped.
///
/// It is called inside of munmap, so it neither allocates nor waits for a lock.
#[unsafe(no_mangle)]
pub extern "C" fn ucm_vm_munmap(address: *mut c_void, length: usize) {
    mem_monitor::gone(address as usize, length);
}
