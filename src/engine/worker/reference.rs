//! The worker of what belongs to it.

use super::Worker;
use crate::engine::cq::Cq;
use crate::engine::peer::Peer;
use crate::engine::pointers::WorkerRef;
use std::ptr::NonNull;

impl WorkerRef {
    /// # Safety
    /// Neither the copies of the value nor the references that [`get`](Self::get) returns outlive the worker. They do
    /// not if the value is the worker of
    /// - a request or an endpoint, whose memory the worker frees when it is destroyed;
    /// - a peer or a completion queue, which the worker owns;
    /// - a listener, which the program does not use after it has destroyed the worker.
    #[inline(always)]
    pub unsafe fn new(worker: &Worker) -> Self {
        // SAFETY: the address of a worker; the caller's promise.
        unsafe { Self::from_address(NonNull::from(worker).cast()) }
    }

    /// The worker.
    #[inline(always)]
    pub fn get<'a>(self) -> &'a Worker {
        // SAFETY: the address is that of a worker, from `new`, whose caller promises that the worker lives; workers are
        // only used by shared references.
        unsafe { self.address().cast().as_ref() }
    }
}

impl Peer {
    /// The worker that has the peer.
    #[inline(always)]
    pub fn worker(&self) -> &Worker {
        self.worker_ref().get()
    }
}

impl Cq {
    /// The worker of the queue.
    pub fn worker(&self) -> &Worker {
        self.worker_ref().get()
    }
}
