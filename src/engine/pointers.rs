//! Pointers from a structure to those that contain it: from a request, an endpoint, a peer or a queue to its worker,
//! from a request to its peer and its endpoint.
//!
//! A worker contains peers, and a peer requests, so their modules import the modules of what they contain. In the
//! other direction a pointer has no type: the module of the worker ([`worker`](super::worker)), of the peer
//! ([`peer`](super::peer)) and of the endpoint ([`endpoint`](super::endpoint)) alone make these pointers from
//! references and turn them into references again.

use std::ptr::{self, NonNull};

/// A worker, in what belongs to it. It keeps no count. The address is that of a
/// [`Worker`](super::worker::Worker), whose module has `new` and `get`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct WorkerRef(NonNull<()>);

impl WorkerRef {
    /// The worker of a test's endpoint, which is not used.
    #[cfg(test)]
    pub const UNUSED: WorkerRef = WorkerRef(NonNull::dangling());

    /// # Safety
    /// The address of a `Worker`, with the conditions of `WorkerRef::new`, which alone calls it.
    #[inline(always)]
    pub(super) unsafe fn from_address(address: NonNull<()>) -> Self {
        WorkerRef(address)
    }

    /// The address of the worker.
    #[inline(always)]
    pub(super) fn address(self) -> NonNull<()> {
        self.0
    }
}

/// A peer in a list of the worker, or that of a request, of a connection or of an incoming ring. It keeps no count:
/// `proto::release` frees a peer when no list of the worker contains it and no request or connection has it as its
/// peer. The address is that of a [`Peer`](super::peer::Peer), whose module has `new` and `get`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct PeerRef(NonNull<()>);

impl PeerRef {
    /// # Safety
    /// The address of a `Peer`, with the conditions of `PeerRef::new`, which alone calls it.
    #[inline(always)]
    pub(super) unsafe fn from_address(address: NonNull<()>) -> Self {
        PeerRef(address)
    }

    /// The address of the peer.
    #[inline(always)]
    pub(super) fn address(self) -> NonNull<()> {
        self.0
    }
}

/// Names the endpoint of a request. It may be freed: the name is only compared. `EndpointId::of` is in the module of
/// the [`Endpoint`](super::endpoint::Endpoint).
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct EndpointId(*const ());

impl EndpointId {
    /// No endpoint, or one that was freed.
    pub const NONE: EndpointId = EndpointId(ptr::null());

    /// The name of the endpoint at this address.
    #[inline(always)]
    pub(super) fn from_address(address: *const ()) -> Self {
        EndpointId(address)
    }
}
