//! Objects of libfabric, which are closed when they are dropped.

use super::bindings::fid;
use crate::sys::fork::Origin;

/// An object, closed when it is dropped. A forked child does not close what its parent has opened.
pub struct Closed(*mut fid, Origin);

impl Closed {
    /// An open object.
    pub fn new(object: *mut fid) -> Closed {
        Closed(object, Origin::here())
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        if self.0.is_null() || self.1.is_inherited() {
            return;
        }
        // SAFETY: the object is open, and nothing uses it any more: those that it has made are closed before.
        unsafe {
            if let Some(close) = (*(*self.0).ops).close {
                close(self.0);
            }
        }
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

    /// Closes the object that was added last.
    pub fn close_last(&mut self) {
        self.0.pop();
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}
