//! Closes an endpoint whose provider works no more, before the objects that it uses.
//!
//! A provider may access memory for the operations of an endpoint, whatever its completion queue says, until the
//! endpoint is closed: then the operations are discarded, and no completion reports them.

use super::bindings::*;
use super::endpoint::{Calls, OfiEndpoint};
use super::shared_ep::OfiSharedEp;
use std::ffi::c_void;
use std::ptr::null_mut;

/// What the calls of a closed endpoint return.
const CLOSED_RESULT: isize = -(FI_ESHUTDOWN as isize);

unsafe extern "C" fn read(_: *mut fid_cq, _: *mut c_void, _: usize) -> isize {
    CLOSED_RESULT
}

unsafe extern "C" fn inject(_: *mut fid_ep, _: *const c_void, _: usize, _: fi_addr_t) -> isize {
    CLOSED_RESULT
}

unsafe extern "C" fn recv(
    _: *mut fid_ep,
    _: *mut c_void,
    _: usize,
    _: *mut c_void,
    _: fi_addr_t,
    _: *mut c_void,
) -> isize {
    CLOSED_RESULT
}

impl OfiEndpoint {
    /// The endpoint itself. `None`: it is closed.
    #[inline(always)]
    pub(super) fn open_ep(&self) -> Option<&fid_ep> {
        // SAFETY: it is null, or an object that is open as long as this value, or until `close`, which has it alone.
        unsafe { self.ep.as_ref() }
    }

    /// Closes the endpoint: the provider accesses no memory for its operations any more, and reports none of them.
    /// Posts and reads of the completion queue fail from then on. False: the provider refuses, and the endpoint stays
    /// open; the caller may try again.
    pub fn close(&mut self) -> bool {
        self.ep = null_mut();
        self.calls = Calls { read, inject, recv };
        if self.binds_mr {
            self.mrs.clear();
            self.user_mrs.clear();
        }
        // It was opened last.
        self.opened.close_last()
    }
}

impl OfiSharedEp {
    /// Closes the endpoint, whose provider works no more. False: it cannot be closed now, and the provider may access
    /// the memory of its operations.
    pub fn close(&self) -> bool {
        self.queues.lock().ep.close()
    }
}
