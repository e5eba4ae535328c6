//! Pointers of a request to what is not its own.

use crate::engine::endpoint::Endpoint;
use crate::engine::peer::Peer;
use crate::engine::request::Request;
use crate::engine::worker::Worker;
use crate::tl::Token;
use std::ptr::{self, NonNull};

/// A worker, in what belongs to it. It keeps no count.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct WorkerRef(NonNull<Worker>);

impl WorkerRef {
    /// The worker of a test's endpoint, which is not used.
    #[cfg(test)]
    pub const UNUSED: WorkerRef = WorkerRef(NonNull::dangling());

    /// # Safety
    /// Neither the copies of the value nor the references that [`get`](Self::get) returns outlive the worker. They do
    /// not if the value is the worker of
    /// - a request or an endpoint, whose memory the worker frees when it is destroyed;
    /// - a peer or a completion queue, which the worker owns;
    /// - a listener, which the program does not use after it has destroyed the worker.
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

/// A peer in a list of the worker, or that of a request, of a connection or of an incoming ring. It keeps no count:
/// `proto::release` frees a peer when no list of the worker contains it and no request or connection has it as its
/// peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct PeerRef(NonNull<Peer>);

impl PeerRef {
    /// # Safety
    /// Neither the copies of the value nor the references that [`get`](Self::get) returns outlive the peer. They do not
    /// if the value is the peer of
    /// - a request, until it completes: a request that was posted is in the peer's queue, in a list of the worker that
    ///   `proto::release::named_by_requests` reads, or with an endpoint or a lane of the peer, which have to end first;
    ///   and a stub peer lives as long as the endpoint of its requests;
    /// - a connection, one that is to be made again, an incoming ring, a split copy or an RTR race, in the worker's
    ///   lists: `proto::release` reads them;
    /// - an entry of a [`PeerList`](crate::engine::worker::PeerList): the type says why;
    /// - a message that has arrived and whose data are to be received: it comes from the peer in this progress call, or
    ///   waits and has a counted reference ([`Peer::hold`]);
    /// - a local variable of a progress call, which frees a peer only where none is left.
    #[inline(always)]
    pub unsafe fn new(peer: &Peer) -> Self {
        PeerRef(NonNull::from(peer))
    }

    /// The peer.
    #[inline(always)]
    pub fn get<'a>(self) -> &'a Peer {
        // SAFETY: `new`'s caller promises that the peer lives; peers are only used by shared references.
        unsafe { self.0.as_ref() }
    }

    /// Whether it is this peer.
    #[inline(always)]
    pub fn is(self, peer: &Peer) -> bool {
        ptr::eq(self.0.as_ptr(), peer)
    }
}

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

/// Names the endpoint of a request. It may be freed: the name is only compared.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct EndpointId(*const Endpoint);

impl EndpointId {
    /// No endpoint, or one that was freed.
    pub const NONE: EndpointId = EndpointId(ptr::null());

    /// The name of an endpoint.
    #[inline(always)]
    pub fn of(ep: *const Endpoint) -> Self {
        EndpointId(ep)
    }
}

impl Request {
    /// Names the request to a lane.
    #[inline(always)]
    pub fn token(req: *mut Request) -> Token {
        Token::new(req)
    }

    /// The request that a lane's token names; null for [`Token::NONE`]. Every token of a lane is one of
    /// [`token`](Self::token).
    #[inline(always)]
    pub fn by_token(token: Token) -> *mut Request {
        token.address()
    }
}
