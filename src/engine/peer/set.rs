//! Sets of peers.

use super::Peer;
use crate::engine::pointers::PeerRef;
use std::collections::HashSet;

/// A set of peers that keeps no count of references. It is made and dropped in one call that holds the worker's `rx` or
/// is the only user of the worker, and that call frees no peer of the set: no other call frees peers meanwhile.
#[derive(Default)]
pub struct PeerSet(HashSet<PeerRef>);

impl PeerSet {
    /// Adds a peer.
    pub fn insert(&mut self, peer: PeerRef) {
        self.0.insert(peer);
    }

    /// Whether the set contains a peer.
    pub fn contains(&self, peer: &Peer) -> bool {
        // SAFETY: the value is only compared, while the caller's reference exists.
        self.0.contains(&unsafe { PeerRef::new(peer) })
    }

    /// The peers, in no order.
    pub fn iter(&self) -> impl Iterator<Item = PeerRef> {
        self.0.iter().copied()
    }
}

impl Extend<PeerRef> for PeerSet {
    fn extend<I: IntoIterator<Item = PeerRef>>(&mut self, peers: I) {
        self.0.extend(peers);
    }
}

impl FromIterator<PeerRef> for PeerSet {
    fn from_iter<I: IntoIterator<Item = PeerRef>>(peers: I) -> Self {
        PeerSet(peers.into_iter().collect())
    }
}
