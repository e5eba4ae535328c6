//! References to peers: counted ones, and those of requests and lists, which are not.
//!
//! Progress frees a failed peer that has no counted reference. Endpoints have one, and so do messages that wait for a
//! receive and calls of other threads that use peers without an endpoint.

use super::Peer;
use crate::engine::pointers::PeerRef;
use crate::engine::request::Request;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// A counted reference, which keeps a peer from being freed. It does not outlive the worker.
pub struct PeerHold(NonNull<Peer>);

impl PeerHold {
    /// One more reference.
    pub fn new(peer: &Peer) -> Self {
        peer.hold();
        Self(NonNull::from(peer))
    }
}

impl std::ops::Deref for PeerHold {
    type Target = Peer;

    fn deref(&self) -> &Peer {
        // SAFETY: counted: the peer is not freed before `drop`.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for PeerHold {
    fn drop(&mut self) {
        self.release();
    }
}

impl Peer {
    /// Counts a reference that is not a [`PeerHold`], for [`release`](Self::release).
    pub fn hold(&self) {
        // Relaxed: the caller has another reference, or the lock of the worker's peers, or that of the list of
        // unflushed peers, which has this one, or progresses: the peer is not freed concurrently.
        self.references.fetch_add(1, Ordering::Relaxed);
    }

    /// Drops a reference. The caller must not use the peer any more.
    pub fn release(&self) {
        // Release: pairs with the Acquire load in `is_held`: what the caller did with the peer comes before its end.
        self.references.fetch_sub(1, Ordering::Release);
    }

    /// Whether there is any reference. Called under the lock of the worker's peers, without which only a flush of all
    /// peers makes new ones, or in progress for a peer that was removed from all lists, after which nothing does.
    pub fn is_held(&self) -> bool {
        self.references.load(Ordering::Acquire) != 0
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // A replaced stub peer has a reference to its successor.
        if let Some(successor) = self.successor() {
            successor.release();
        }
    }
}

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
        // SAFETY: the address of a peer; the caller's promise.
        unsafe { Self::from_address(NonNull::from(peer).cast()) }
    }

    /// The peer.
    #[inline(always)]
    pub fn get<'a>(self) -> &'a Peer {
        // SAFETY: the address is that of a peer, from `new`, whose caller promises that the peer lives; peers are only
        // used by shared references.
        unsafe { self.address().cast().as_ref() }
    }

    /// Whether it is this peer.
    #[inline(always)]
    pub fn is(self, peer: &Peer) -> bool {
        self.address() == NonNull::from(peer).cast()
    }
}

impl Request {
    /// The peer. A request has one when it is posted.
    #[inline(always)]
    pub fn peer<'a>(&self) -> &'a Peer {
        self.peer.expect("a posted request has a peer").get()
    }

    /// Whether it is posted to this peer.
    #[inline(always)]
    pub fn is_to(&self, peer: &Peer) -> bool {
        self.peer.is_some_and(|p| p.is(peer))
    }
}
