//! The worker's completion queues.

use super::Worker;
use crate::ctypes::*;
use crate::engine::cq::{Cq, CqNotice};
use crate::engine::pointers::WorkerRef;
use std::ffi::c_void;

impl Worker {
    /// Opens the queue with this number, with the entries that arrived before. `None`: it is open already.
    pub fn open_cq(&self, id: u8) -> Option<&Cq> {
        // SAFETY: queues are dropped with their worker.
        unsafe { self.cqs.open(WorkerRef::new(self), id) }
    }

    /// Adds the entry of a signal that has arrived to the queue with this number.
    #[inline(always)]
    pub fn notify_cq(&self, id: u8, notice: CqNotice) {
        // SAFETY: queues are dropped with their worker.
        unsafe { self.cqs.notify(WorkerRef::new(self), id, notice) };
        // A thread that waits for the queue may sleep, while another thread progresses.
        self.wake();
    }

    /// [`notify_cq`](Self::notify_cq) for callers that are compiled for each mode.
    ///
    /// # Safety
    /// `MT` says whether threads may share the worker.
    #[inline(always)]
    pub unsafe fn notify_cq_in<const MT: bool>(&self, id: u8, notice: CqNotice) {
        if MT {
            return self.notify_cq(id, notice);
        }
        // SAFETY: single-thread mode; queues are dropped with their worker, and nothing keeps a reference to entries.
        unsafe { self.cqs.notify_alone(WorkerRef::new(self), id, notice) };
        // As in `notify_cq`: calls of several threads follow each other.
        self.wake();
    }

    /// Adds the completion of an operation of this process to one of the queues.
    pub fn complete_in_cq(
        &self,
        cq: &Cq,
        request: *mut c_void,
        status: ucs_status_t,
        user_data: *mut c_void,
        got: (u64, usize),
    ) {
        cq.complete(request, status, user_data, got);
        // A thread that waits for the queue may sleep, while another thread progresses.
        self.wake();
    }
}
