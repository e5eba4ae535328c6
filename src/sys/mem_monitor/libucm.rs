//! A genuine libucm in this process: it watches memory for the UCX that came with it, and tells us as well.

use super::dl_objects::{self, LoadedObject};
use super::hooks;
use crate::ctypes::{UCM_EVENT_VM_UNMAPPED, UCS_OK, ucs_status_t};
use std::ffi::{c_int, c_void};

/// What is told of addresses that go (`ucm_event_t.vm_unmapped`).
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
        // SAFETY: the event that goes with this type.
        let event = unsafe { &*event };
        hooks::gone(event.address as usize, event.size);
    }
}

/// Lets one tell us, if there is one. It stays loaded then. Whether it does tell shows when something is unmapped.
pub fn subscribe() -> bool {
    dl_objects::named("libucm").iter().any(|path| {
        // One of ours by this name has no such function.
        let Some(function) =
            LoadedObject::keep(path).map(|libucm| libucm.symbol(c"ucm_set_event_handler"))
        else {
            return false;
        };
        if function == 0 {
            return false;
        }
        // SAFETY: the function of ucm.h by this name; the handler stays loaded, as the caller has seen to.
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
