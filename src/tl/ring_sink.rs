//! What rings in shared memory call in the layer above, beyond [`Sink`].

use super::sink::Sink;
use super::{Message, TlWorker};
use crate::wire::header::NoteHdr;

/// Maximum number of messages taken from one ring before its sender gets credit for them.
pub const BATCH: u32 = 16;

/// The layer above, as rings see it beyond [`Sink`]: part of the hot path. A peer's messages are counted by `count`,
/// before another function handles them.
pub trait RingSink: Sink {
    /// Threads share the worker: eager tagged messages go through [`handle_batch`](Self::handle_batch).
    const BATCHES: bool;
    /// Counts the messages of a peer.
    type Counter: Copy;

    /// What all threads of the worker use of the transports.
    fn shared(&self) -> &TlWorker;

    /// What counts the messages of a peer.
    fn counter(self, peer: Self::Peer) -> Self::Counter;

    /// Counts messages that have arrived.
    fn count(self, counter: Self::Counter, messages: u32, bytes: u64);

    /// Handles an eager tagged message; not called where there are [`BATCHES`](Self::BATCHES).
    fn handle_eager(self, m: Message);

    /// Handles an eager active message. False: it is not one of the frequent ones, and nothing was done.
    fn handle_am(self, m: Message) -> bool;

    /// Handles a signal behind data that are in place: adds an entry with `value` to completion queue `cq`. `head`: its
    /// header. False: it is refused.
    fn handle_signal(self, peer: Self::Peer, cq: u8, value: u64, head: NoteHdr) -> bool;

    /// Handles consecutive eager tagged messages: `first`, and those that `next` returns, which is called after each,
    /// until it returns `None`. There are [`BATCH`] at most; their records are readable during the call.
    fn handle_batch(self, first: Message, next: impl FnMut() -> Option<Message>);

    /// Handles a message of any kind. False: it was malformed, for which the peer has failed.
    ///
    /// # Safety
    /// The record of `m` is readable during the call.
    unsafe fn handle(self, peer: Self::Peer, m: &Message) -> bool;
}
