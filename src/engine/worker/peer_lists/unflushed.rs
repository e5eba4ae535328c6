//! Peers that a flush or a fence of all peers has to look at.

use super::PeerSet;
use crate::engine::peer::{Peer, PeerHandle, PeerHold};
use crate::engine::pointers::PeerRef;

/// The peers to which something may be on the way: those with unanswered RMA by message, with pending requests, or
/// with a lane that completes later than the call. A flush of all peers costs nothing for the others.
///
/// Every peer in the list exists: `proto::release::sweep` removes one before it frees it. A peer is added under the
/// lock of its `tx`, and removed under that lock and that of the list. A caller with the lock of the list takes that of
/// a `tx` by [`MtLock::try_lock`]: another thread may hold it, and wait for the list.
///
/// [`MtLock::try_lock`]: crate::sys::lock::MtLock::try_lock
#[derive(Default)]
pub struct UnflushedPeers(Vec<PeerRef>);

/// What a look at a peer of the list has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushNeed {
    /// Something is on the way, or it could not be seen.
    Awaited,
    /// Nothing is on the way now. Its lane does not say when that changes: it stays in the list.
    Clean,
    /// Nothing is on the way before it is added again: it was marked as removed.
    Removed,
}

impl UnflushedPeers {
    /// Adds a peer that is not in the list. Called by [`Peer::note_unflushed`] alone.
    pub(in crate::engine) fn push(&mut self, peer: &Peer) {
        // SAFETY: peers in the list exist; the type says why.
        self.0.push(unsafe { PeerRef::new(peer) });
    }

    /// Whether no peer is awaited. Looks at the peers up to the first one that is, and removes those that `look` says
    /// were removed.
    #[inline(always)]
    pub fn is_clean(&mut self, mut look: impl FnMut(&Peer) -> FlushNeed) -> bool {
        let mut i = 0;
        while let Some(peer) = self.0.get(i) {
            match look(peer.get()) {
                FlushNeed::Awaited => return false,
                FlushNeed::Clean => i += 1,
                FlushNeed::Removed => drop(self.0.swap_remove(i)),
            }
        }
        true
    }

    /// References to the peers. One that was removed from the worker's list of peers may be among them: it is not freed
    /// as long as the reference exists.
    pub fn handles(&self) -> Vec<PeerHandle> {
        let held = |peer: &PeerRef| PeerHandle::Settled(PeerHold::new(peer.get()));
        self.0.iter().map(held).collect()
    }

    /// Removes peers that are about to be freed.
    pub fn remove(&mut self, gone: &PeerSet) {
        self.0.retain(|peer| !gone.contains(peer.get()));
    }

    /// The peers.
    pub fn iter(&self) -> impl Iterator<Item = PeerRef> {
        self.0.iter().copied()
    }
}
