//! Counted references to peers. Progress frees a failed peer that has none. Endpoints have one, and so do messages that
//! wait for a receive and calls of other threads that use peers without an endpoint.

use super::Peer;
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
        // Relaxed: the caller has another reference, or the lock of the worker's peers, or progresses: the peer is not
        // freed concurrently.
        self.references.fetch_add(1, Ordering::Relaxed);
    }

    /// Drops a reference. The caller must not use the peer any more.
    pub fn release(&self) {
        // Release: pairs with the Acquire load in `is_held`: what the caller did with the peer comes before its end.
        self.references.fetch_sub(1, Ordering::Release);
    }

    /// Whether there is any reference. Called under the lock of the worker's peers, without which no new one is made.
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
