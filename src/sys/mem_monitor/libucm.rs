//! A genuine libucm in this process: it hooks the memory functions for the UCX that it belongs to, and notifies us as
//! well.

use super::hooks;
use crate::ctypes::{UCM_EVENT_VM_UNMAPPED, UCS_OK, ucs_status_t};
use crate::sys::other_ucx;
use std::ffi::{c_int, c_void};

/// Event of unmapped addresses (`ucm_event_t.vm_unmapped`).
#[repr(C)]
struct Unmapped {
    address: *mut c_void,
    size: usize,
}

type Callback = unsafe extern "C" fn(c_int, *const Unmapped, *mut c_void);
type SetEventHandler = unsafe extern "C" fn(c_int, c_int, Callback, *mut c_void) -> ucs_status_t;

/// Handlers with smaller numbers are called first.
const PRIORITY: c_int = 0;

/// # Safety
/// Called by libucm, inside of the function that unmaps.
unsafe extern "C" fn unmapped(events: c_int, event: *const Unmapped, _: *mut c_void) {
    if events & UCM_EVENT_VM_UNMAPPED as c_int != 0 && !event.is_null() {
        // SAFETY: the event that belongs to this type.
        let event = unsafe { &*event };
        hooks::gone(event.address as usize, event.size);
    }
}

/// Installs a handler in each loaded libucm, which then stays loaded. Whether it is called is seen when memory is
/// unmapped.
pub fn subscribe() -> bool {
    other_ucx::libraries("libucm").any(|(_, libucm)| {
        let function = libucm.symbol(c"ucm_set_event_handler");
        if function == 0 {
            return false;
        }
        // SAFETY: the function of ucm.h by this name; the handler stays loaded, which the caller ensures.
        unsafe {
            let set: SetEventHandler = std::mem::transmute(function);
            set(
                UCM_EVENT_VM_UNMAPPED as c_int,
                PRIORITY,
                unmapped,
                std::ptr::null_mut(),
            ) == UCS_OK
        }
    })
}
