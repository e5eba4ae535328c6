//! Objects of libfabric, which are closed when they are dropped.

use super::bindings::fid;
use crate::sys::fork::Origin;
use std::ptr::null_mut;

/// An object, closed when it is dropped. A forked child does not close what its parent has opened. The pointer is null
/// when it is closed.
pub struct Closed(*mut fid, Origin);

impl Closed {
    /// An open object.
    pub fn new(object: *mut fid) -> Closed {
        Closed(object, Origin::here())
    }

    /// Closes the object. False: the provider refuses, and it stays open.
    fn close(&mut self) -> bool {
        if self.0.is_null() || self.1.is_inherited() {
            return true;
        }
        // SAFETY: the object is open, and nothing uses it any more: those that it has made are closed before.
        let is_closed = unsafe {
            let close = (*(*self.0).ops).close;
            close.is_none_or(|close| close(self.0) == 0)
        };
        if is_closed {
            self.0 = null_mut();
        }
        is_closed
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        self.close();
    }
}

/// Objects, each made by those before it: they are closed from the last on.
#[derive(Default)]
pub struct Opened(Vec<Closed>);

impl Opened {
    /// Adds an object that was made by those before.
    pub fn push(&mut self, object: *mut fid) {
        self.0.push(Closed::new(object));
    }

    /// Closes the object that was added last. False: the provider refuses, and it stays open.
    pub fn close_last(&mut self) -> bool {
        self.0.last_mut().is_none_or(Closed::close)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}
