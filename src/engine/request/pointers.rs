//! Pointers of a request to what is not its own.

use crate::engine::endpoint::Endpoint;
use crate::engine::worker::Worker;
use std::ptr::{self, NonNull};

/// The worker of a request.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct WorkerRef(NonNull<Worker>);

impl WorkerRef {
    /// # Safety
    /// Neither the copies of the value nor the references that [`get`](Self::get) returns outlive the worker: a worker
    /// frees its requests' memory, and so the requests, when it is destroyed.
    #[inline(always)]
    pub unsafe fn new(worker: &Worker) -> Self {
        WorkerRef(NonNull::from(worker))
    }

    /// The worker.
    #[inline(always)]
    pub fn get<'a>(self) -> &'a Worker {
        // SAFETY: `new`'s caller promises that the worker lives; workers are only used by shared references.
        unsafe { self.0.as_ref() }
    }
}

/// Names the endpoint of a request. It may be freed: the name is only compared.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct EndpointRef(*const Endpoint);

impl EndpointRef {
    /// No endpoint, or one that was freed.
    pub const NONE: EndpointRef = EndpointRef(ptr::null());

    /// The name of an endpoint.
    #[inline(always)]
    pub fn of(ep: *const Endpoint) -> Self {
        EndpointRef(ep)
    }
}
