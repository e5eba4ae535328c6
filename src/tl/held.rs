//! Progress as every call of it does it, in single-thread mode, as an interface sees it.

use super::sink::Sink;

/// What has an interface of type `I`, if the transport is used.
pub trait IfaceSlot<I> {
    fn iface(&mut self) -> Option<&mut I>;
}

/// A worker in single-thread mode, while nothing borrows its interfaces. Copies name the same worker.
///
/// A call that finds nothing leaves the worker as it is; one that handles messages [holds](Self::hold) it, so that
/// progress called by a callback returns at once.
pub trait Held: Copy {
    /// Names a peer.
    type Peer: Copy + Eq;
    /// The sink for a place that each message passes: its short path is part of the caller's code.
    type Inlined: Sink<Peer = Self::Peer>;
    type Called: Sink<Peer = Self::Peer>;
    /// The interfaces of the worker.
    type Interfaces;

    fn inlined(self) -> Self::Inlined;
    fn called(self) -> Self::Called;

    /// Calls `act` with the interfaces. It calls nothing of the layer above.
    ///
    /// # Safety
    /// Single-thread mode; nothing up the stack borrows the interfaces.
    unsafe fn look<R>(self, act: impl FnOnce(&mut Self::Interfaces) -> R) -> R;

    /// Calls `act`, which handles messages, with the interfaces, and the number of the progress call, which falls by
    /// one with each; counts the events that it returns.
    ///
    /// # Safety
    /// As for [`look`](Self::look), and the worker is not held.
    unsafe fn hold(self, act: impl FnOnce(&mut Self::Interfaces, u32) -> u32) -> u32;
}
