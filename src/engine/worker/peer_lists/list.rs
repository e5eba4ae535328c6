//! Lists of peers.

use crate::engine::peer::Peer;
use crate::engine::pointers::PeerRef;
use crate::sys::spare::is_spare;
use std::collections::VecDeque;

/// Peers, the oldest entry first; each with a `T`.
///
/// Every peer in a list exists:
/// - Any thread adds peers, to which it has a reference.
/// - Only calls that hold the worker's `rx` free peers: `proto::release::sweep`, and `proto::cm::endpoint_freed` stub
///   peers. The first frees those that [`PeerLists::all`](super::PeerLists::all) does not contain, and removes them
///   from `on_host` before; a peer is added to that list only when it is made. Stub peers can be in `pending` and
///   `failed` only, which the second reads, the former by `PeerTx::in_pending_list`.
/// - Only progress, which holds `rx`, removes entries ([`take`](Self::take), [`pop`](Self::pop),
///   [`retain`](Self::retain)), and it frees no peers before it has handled what it has removed: endpoints that a
///   callback closes meanwhile are freed by a later call.
/// - The destruction of the worker frees all peers, and uses no list after that.
pub struct PeerList<T = ()>(VecDeque<(PeerRef, T)>);

impl<T> PeerList<T> {
    /// A list without entries. Allocates nothing before the first one is added.
    pub(super) fn new() -> Self {
        PeerList(VecDeque::new())
    }

    /// Adds a peer with its `T`.
    pub fn push_with(&mut self, peer: &Peer, with: T) {
        // SAFETY: peers in a list exist; the type says why.
        self.0.push_back((unsafe { PeerRef::new(peer) }, with));
    }

    /// Removes all entries. Called in progress.
    pub fn take(&mut self) -> VecDeque<(PeerRef, T)> {
        std::mem::take(&mut self.0)
    }

    /// Whether the list has no entry.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The peers.
    pub fn iter(&self) -> impl Iterator<Item = PeerRef> {
        self.0.iter().map(|&(peer, _)| peer)
    }

    /// Frees memory that was needed when there were many more entries.
    pub fn trim(&mut self) {
        if is_spare(self.0.capacity(), self.0.len()) {
            self.0.shrink_to_fit();
        }
    }
}

impl PeerList {
    /// Adds a peer.
    pub fn push(&mut self, peer: &Peer) {
        self.push_with(peer, ());
    }

    /// Removes the oldest entry. Called in progress.
    pub fn pop(&mut self) -> Option<PeerRef> {
        self.0.pop_front().map(|(peer, ())| peer)
    }

    /// Removes the peers for which `keeps` is false. Called in progress.
    pub fn retain(&mut self, mut keeps: impl FnMut(PeerRef) -> bool) {
        self.0.retain(|&(peer, ())| keeps(peer));
    }

    /// Puts entries that were taken back in front of those that were added since.
    pub fn put_back(&mut self, peers: impl DoubleEndedIterator<Item = PeerRef>) {
        peers.rev().for_each(|peer| self.0.push_front((peer, ())));
    }
}
