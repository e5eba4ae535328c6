//! A tagged message that nobody has asked for yet.

use super::offer::Offer;
use super::peer::Peer;
use crate::sys::copy;
use crate::wire::offered;
use std::mem::MaybeUninit;

/// Where the message is.
#[derive(Clone, Copy)]
pub enum Source {
    /// All here.
    Eager,
    /// All here, and the sender waits to hear of the match.
    Sync { peer: *const Peer, req: u64 },
    /// At the sender: a rendezvous to be started.
    Rts { peer: *const Peer, offer: Offer },
}

impl Source {
    /// Who waits for the message to be received, if anybody does.
    fn peer(&self) -> Option<&Peer> {
        match *self {
            Source::Eager => None,
            // SAFETY: it has come from the peer just now, or has a reference to it.
            Source::Sync { peer, .. } | Source::Rts { peer, .. } => Some(unsafe { &*peer }),
        }
    }

    /// The message waits, and names its peer as long as it does.
    pub fn hold(&self) {
        if let Some(peer) = self.peer() {
            peer.hold();
        }
    }

    /// The message is taken out of the list of those that wait. Under the lock of that list, by which it is found when
    /// its sender takes it back.
    pub fn take_out(&self) {
        if let Source::Rts { peer, offer } = self {
            // SAFETY: it has a reference to the peer.
            unsafe { &**peer }.offers.lock().hold(offer.req);
        }
    }

    /// The message does not wait any more. Its peer is not the caller's to look at afterwards.
    pub fn release(&self) {
        if let Some(peer) = self.peer() {
            peer.release();
        }
    }
}

/// What the matcher keeps of it.
pub struct Unexpected {
    pub source: Source,
    /// Bytes of the whole message.
    pub len: usize,
    /// The bytes, where they are here; of a rendezvous what its offer has beside it.
    pub bytes: Kept,
}

/// Bytes that are kept in place: with the rest of an [`Unexpected`] two cache lines.
const IN_PLACE: usize = 46;
// What an offer has beside it.
const _: () = assert!(offered::MOST <= IN_PLACE);

/// Bytes that wait: most messages are short and need no memory of their own.
pub enum Kept {
    InPlace(u8, MaybeUninit<[u8; IN_PLACE]>),
    Apart(Box<[u8]>),
}

impl Kept {
    /// A copy of a message.
    ///
    /// # Safety
    /// `len` bytes are readable at `bytes`.
    #[inline]
    pub unsafe fn copy(bytes: *const u8, len: usize) -> Kept {
        if len > IN_PLACE {
            // SAFETY: the caller's promise.
            return Kept::Apart(unsafe { std::slice::from_raw_parts(bytes, len) }.into());
        }
        let mut room = MaybeUninit::<[u8; IN_PLACE]>::uninit();
        // SAFETY: the room is long enough.
        unsafe { copy::from_shared(room.as_mut_ptr().cast(), bytes, len) };
        Kept::InPlace(len as u8, room)
    }

    /// Where they are.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        match self {
            Kept::InPlace(_, room) => room.as_ptr().cast(),
            Kept::Apart(bytes) => bytes.as_ptr(),
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
pub struct Removed {
    pub tag: u64,
    pub message: Unexpected,
}
