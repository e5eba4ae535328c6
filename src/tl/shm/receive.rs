//! Arrivals through rings: which ring is polled next, and what the layer above does with a message.
//!
//! Messages of several senders are handled in the order of [`order`](super::order). A progress call of a worker that
//! was idle handles one message, the next one two, then four: a program that checks for arrivals after each call sees
//! them one after the other.

pub mod short;

use super::inbox::Doorbell;
use super::order::RingSet;
use super::ring::Consumer;
use super::worker::ShmRx;
use crate::tl::Message;
use crate::tl::sink::Sink;

/// Maximum number of messages taken from one ring before its sender gets credit for them.
pub const BATCH: u32 = 16;

/// The layer above, as rings see it beyond [`Sink`]: part of the hot path. A peer's messages are counted by `count`,
/// before another function handles them.
pub trait RingSink: Sink {
    /// Threads share the worker: eager tagged messages go through [`handle_batch`](Self::handle_batch).
    const BATCHES: bool;
    /// Counts the messages of a peer.
    type Counter: Copy;

    /// The doorbell of the worker's inbox.
    fn doorbell(&self) -> &Doorbell;

    /// What counts the messages of a peer.
    fn counter(self, peer: Self::Peer) -> Self::Counter;

    /// Counts messages that have arrived.
    fn count(self, counter: Self::Counter, messages: u32, bytes: u64);

    /// Handles an eager tagged message; not called where there are [`BATCHES`](Self::BATCHES).
    fn handle_eager(self, m: Message);

    /// Handles an eager active message. False: it is not one of the frequent ones, and nothing was done.
    fn handle_am(self, m: Message) -> bool;

    /// Handles consecutive eager tagged messages: `first`, and those that `next` returns, which is called after each,
    /// until it returns `None`. There are [`BATCH`] at most; their records are readable during the call.
    fn handle_batch(self, first: Message, next: impl FnMut() -> Option<Message>);

    /// Handles a message of any kind. False: it was malformed, for which the peer has failed.
    ///
    /// # Safety
    /// The record of `m` is readable during the call.
    unsafe fn handle(self, peer: Self::Peer, m: &Message) -> bool;
}

impl<P> RingSet for Vec<Box<ShmRx<P>>> {
    fn count(&self) -> usize {
        self.len()
    }

    fn ring(&mut self, number: usize) -> &mut Consumer {
        &mut self[number].consumer
    }

    #[inline(always)]
    fn others_are_empty(&self, ring: usize) -> bool {
        let (before, behind) = (&self[..ring], &self[ring + 1..]);
        before.iter().all(|c| c.consumer.is_empty()) && behind.iter().all(|c| c.consumer.is_empty())
    }
}
