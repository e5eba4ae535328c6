//! Pointers to endpoints.

use super::Endpoint;
use crate::engine::pointers::EndpointId;
use std::ptr::{self, NonNull};

/// An endpoint in a table or list of its peer or worker, or in a session of the CM. It keeps no count.
///
/// An endpoint's memory is of its worker's pool, which frees it with the worker. Only progress gives it back to the
/// pool (`op::endpoint`), after it has removed the endpoint from all tables, lists and sessions; from then on the
/// memory stays readable until the pool hands it out again.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct EndpointRef(NonNull<Endpoint>);

impl EndpointRef {
    /// Points to an endpoint.
    ///
    /// # Safety
    /// The endpoint is of its worker's pool, and the pointer is not kept outside of what progress removes it from.
    #[inline(always)]
    pub unsafe fn new(ep: &Endpoint) -> Self {
        EndpointRef(NonNull::from(ep))
    }

    /// The endpoint.
    #[inline(always)]
    pub fn get<'a>(self) -> &'a Endpoint {
        // SAFETY: `new`'s caller promises that the endpoint is allocated; endpoints are only used by shared references.
        unsafe { self.0.as_ref() }
    }

    /// Whether it is this endpoint.
    #[inline(always)]
    pub fn is(self, ep: &Endpoint) -> bool {
        ptr::eq(self.0.as_ptr(), ep)
    }

    /// As the user gets it.
    #[inline(always)]
    pub fn as_ptr(self) -> *mut Endpoint {
        self.0.as_ptr()
    }
}

impl EndpointId {
    /// The name of an endpoint.
    #[inline(always)]
    pub fn of(ep: *const Endpoint) -> Self {
        EndpointId::from_address(ep.cast())
    }
}
