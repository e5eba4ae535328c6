//! Unexpected tagged messages.

use super::peer::Peer;
use super::pointers::PeerRef;
use super::rndv_rts::RtsInfo;
use crate::sys::copy;
use crate::tl::rma::MrKeys;
use crate::wire::rts_keys;
use std::mem::MaybeUninit;

/// Where the payload is.
#[derive(Clone, Copy)]
pub enum PayloadSource {
    /// Received completely.
    Eager,
    /// Received completely, and the sender waits for the acknowledgement of the match.
    Sync { peer: PeerRef, req: u64 },
    /// At the sender: a rendezvous to be started.
    Rts { peer: PeerRef, offer: RtsInfo },
    /// Nowhere: it was at a sender that is lost. A receive of the message ends with `UCS_ERR_CANCELED`.
    Lost,
}

impl PayloadSource {
    /// The peer that waits until the message is received, if one does.
    fn peer(&self) -> Option<&Peer> {
        match *self {
            PayloadSource::Eager | PayloadSource::Lost => None,
            PayloadSource::Sync { peer, .. } | PayloadSource::Rts { peer, .. } => Some(peer.get()),
        }
    }

    /// The message begins to wait; it takes a reference to its peer.
    pub fn hold(&self) {
        if let Some(peer) = self.peer() {
            peer.hold();
        }
    }

    /// The message is removed from the list of unexpected ones. Under the lock of that list, as a cancel by the sender
    /// looks it up there.
    pub fn take_out(&self) {
        if let PayloadSource::Rts { peer, offer } = self {
            peer.get().held_rts.lock().hold(offer.req);
        }
    }

    /// The message does not wait any more. Drops its reference: the caller must not use the peer afterwards.
    pub fn release(&self) {
        if let Some(peer) = self.peer() {
            peer.release();
        }
    }
}

/// An unexpected message in the matcher.
pub struct UnexpectedTag {
    pub source: PayloadSource,
    /// Bytes of the whole message.
    pub len: usize,
    /// The payload, where it has arrived; of a rendezvous the STADDs of its RTS.
    pub bytes: InlineOrHeap,
}

/// Bytes that are kept in place: with the rest of an [`UnexpectedTag`] two cache lines.
const IN_PLACE: usize = 46;
// Room for the STADDs of an RTS.
const _: () = assert!(rts_keys::MOST <= IN_PLACE && MrKeys::MOST <= IN_PLACE);

/// Bytes that wait: most messages are short and need no memory of their own.
pub enum InlineOrHeap {
    InPlace(u8, MaybeUninit<[u8; IN_PLACE]>),
    Apart(Box<[u8]>),
}

impl InlineOrHeap {
    /// A copy of a message.
    ///
    /// # Safety
    /// `len` bytes are readable at `bytes`.
    #[inline]
    pub unsafe fn copy(bytes: *const u8, len: usize) -> InlineOrHeap {
        if len > IN_PLACE {
            // SAFETY: the caller's promise.
            return InlineOrHeap::Apart(unsafe { std::slice::from_raw_parts(bytes, len) }.into());
        }
        let mut room = MaybeUninit::<[u8; IN_PLACE]>::uninit();
        // SAFETY: the room is long enough.
        unsafe { copy::from_shared(room.as_mut_ptr().cast(), bytes, len) };
        InlineOrHeap::InPlace(len as u8, room)
    }

    /// Where they are.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        match self {
            InlineOrHeap::InPlace(_, room) => room.as_ptr().cast(),
            InlineOrHeap::Apart(bytes) => bytes.as_ptr(),
        }
    }
}

/// An eager message of which some fragments have arrived.
pub struct PartialTag {
    pub tag: u64,
    /// Bytes of the message.
    pub total: usize,
    /// Of them, those that have arrived.
    pub received: usize,
    /// Those bytes, in a vector with room for `total`. `None`: there was no memory, and the message is dropped when it
    /// is complete.
    pub bytes: Option<Vec<u8>>,
}

/// A message that `ucp_tag_probe_nb` took out: handed out as `ucp_tag_message_h`.
pub struct DetachedMsg {
    pub tag: u64,
    pub message: UnexpectedTag,
}
