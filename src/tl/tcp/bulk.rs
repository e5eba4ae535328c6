//! Long payloads that arrive over TCP: each part is stored in its place when it arrives. Between two parts nothing is
//! held: the layer above gives the place of each.

use super::receiver::TcpReceiver;
use super::stream::ReadError;
use crate::tl::payload::PayloadPlace;
use crate::tl::sink::Sink;

/// Whether pieces of the payload that are in the buffer have to be as long as packing functions expect.
pub(super) fn is_in_pieces<S: Sink>(sink: S, peer: S::Peer, receiver: &TcpReceiver) -> bool {
    (receiver.bulk()).is_some_and(|record| matches!(sink.place(peer, record), PayloadPlace::Pieces))
}

/// Handles `n` bytes of payload that are in the buffer.
pub(super) fn piece<S: Sink>(sink: S, peer: S::Peer, receiver: &mut TcpReceiver, n: usize) {
    if let Some((record, bytes)) = receiver.piece(n) {
        sink.deliver_part(peer, record, bytes);
        receiver.take(n);
        received(sink, peer, receiver, n);
    }
}

/// Reads payload from the socket into its place. `None`: it has to go through the buffer.
pub(super) fn read<S: Sink>(
    sink: S,
    peer: S::Peer,
    receiver: &mut TcpReceiver,
) -> Option<Result<bool, ReadError>> {
    let PayloadPlace::Memory(mut memory) = sink.place(peer, receiver.bulk()?) else {
        return None;
    };
    Some(receiver.read_to(&mut memory).map(|read| {
        sink.placed(memory, read.bytes);
        received(sink, peer, receiver, read.bytes);
        read.more
    }))
}

/// Counts received bytes.
fn received<S: Sink>(sink: S, peer: S::Peer, receiver: &mut TcpReceiver, n: usize) {
    if let Some(record) = receiver.payload_done(n) {
        sink.delivered(peer, &record);
    }
}
