//! Values by peer.

use crate::engine::peer::Peer;
use crate::engine::pointers::PeerRef;
use std::collections::HashMap;

/// Values by peer. Every peer that has one exists, as the peers in a [`PeerList`](super::PeerList) do.
pub struct PeerMap<T>(HashMap<PeerRef, T>);

impl<T> PeerMap<T> {
    /// A map in which no peer has a value.
    pub(super) fn new() -> Self {
        PeerMap(HashMap::new())
    }

    fn key(peer: &Peer) -> PeerRef {
        // SAFETY: a key of the map is that of a peer that exists, as the type says; any other is only compared, while
        // the caller's reference exists.
        unsafe { PeerRef::new(peer) }
    }

    /// Sets the value of a peer. Returns the previous one.
    pub fn insert(&mut self, peer: &Peer, value: T) -> Option<T> {
        self.0.insert(Self::key(peer), value)
    }

    /// The value of a peer.
    pub fn get_mut(&mut self, peer: &Peer) -> Option<&mut T> {
        self.0.get_mut(&Self::key(peer))
    }

    /// Removes the value of a peer. Called in progress.
    pub fn remove(&mut self, peer: &Peer) -> Option<T> {
        self.0.remove(&Self::key(peer))
    }

    /// The peers that have a value.
    pub fn peers(&self) -> impl Iterator<Item = PeerRef> {
        self.0.keys().copied()
    }
}
