//! The lane to a peer, if it is one of this transport.

use super::sender::TofuSender;
use crate::tl::Lane;
use crate::tl::sink::Sink;

/// Calls `act` with the sender to a peer, under the peer's lock. `None`: there is none.
#[inline]
pub fn with_sender<S: Sink, R>(
    sink: S,
    peer: S::Peer,
    act: impl FnOnce(&mut TofuSender) -> R,
) -> Option<R> {
    let called = sink.with_lane(peer, |lane| match lane {
        Lane::Tofu(sender) => Some(act(sender)),
        _ => None,
    });
    called.flatten()
}

/// Drops the sender to a peer.
pub fn drop_lane<S: Sink>(sink: S, peer: S::Peer) {
    // Without the peer's lock: the destructor takes the lock of the queue.
    drop(sink.take_lane(peer, |lane| matches!(lane, Lane::Tofu(_))));
}
