//! Counted references to peers. Progress frees a lost peer that has none. Endpoints have one, messages that wait for a
//! receive, and calls of other threads that look at peers without an endpoint.

use super::Peer;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// A reference that keeps a peer from being freed. It does not outlive the worker.
pub struct PeerRef(NonNull<Peer>);

impl PeerRef {
    /// One more reference.
    pub fn new(peer: &Peer) -> Self {
        peer.hold();
        Self(NonNull::from(peer))
    }
}

impl std::ops::Deref for PeerRef {
    type Target = Peer;

    fn deref(&self) -> &Peer {
        // SAFETY: counted: the peer is not freed before `drop`.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for PeerRef {
    fn drop(&mut self) {
        self.release();
    }
}

impl Peer {
    /// Counts a reference that is not a [`PeerRef`], for [`release`](Self::release).
    pub fn hold(&self) {
        // Relaxed: whoever calls has the peer by another reference, by the lock of the worker's peers, or progresses.
        self.references.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a reference. The peer is not the caller's to look at any more.
    pub fn release(&self) {
        // Release: pairs with the Acquire load in `is_held`: what the caller did with the peer comes before its end.
        self.references.fetch_sub(1, Ordering::Release);
    }

    /// Whether there is any reference. Asked under the lock of the worker's peers, by which others are found.
    pub fn is_held(&self) -> bool {
        self.references.load(Ordering::Acquire) != 0
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // A placeholder that was left behind leads to its successor.
        if let Some(successor) = self.successor() {
            successor.release();
        }
    }
}
