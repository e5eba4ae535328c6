//! Reads the connections of peers.

use super::accept;
use super::socket::{self, Received};
use super::worker::ShmtestWorker;
use crate::ctypes::*;
use crate::tl::Message;
use crate::tl::sink::Sink;

/// Packets that are read of one connection before the next one.
const BATCH: usize = 16;

/// Reads all connections, and drops those that have ended. Returns the number of packets.
pub fn receive<S: Sink>(worker: &mut ShmtestWorker<S::Peer>, sink: S) -> u32 {
    let mut buffer = std::mem::take(&mut worker.buffer);
    let (mut count, mut i) = (0, 0);
    // A callback may fork: the child reads no further.
    while i < worker.rx.len() && !sink.is_inherited() {
        match read(worker, sink, &mut buffer, i) {
            Ok(packets) => (count, i) = (count + packets, i + 1),
            Err(Ended) => {
                if let Some(peer) = worker.rx.remove(i).peer {
                    sink.lane_down(peer, UCS_ERR_CONNECTION_RESET);
                    count += 1;
                }
            }
        }
    }
    worker.buffer = buffer;
    count
}

/// The peer has closed a connection, is another worker's, or has failed.
struct Ended;

/// Reads a connection. Returns the number of packets.
fn read<S: Sink>(
    worker: &mut ShmtestWorker<S::Peer>,
    sink: S,
    buffer: &mut [u8],
    i: usize,
) -> Result<u32, Ended> {
    for count in 0..BATCH {
        let conn = &worker.rx[i];
        if conn.peer.is_some_and(|peer| sink.has_failed(peer)) {
            return Err(Ended);
        }
        let packet = match socket::receive(&conn.socket, buffer) {
            Received::Nothing => return Ok(count as u32),
            Received::End => return Err(Ended),
            Received::Packet(packet) => packet,
            Received::TooLong => &[],
        };
        match conn.peer {
            None => {
                let peer = accept::peer_of(worker, sink, &conn.socket, packet).ok_or(Ended)?;
                worker.rx[i].peer = Some(peer);
            }
            Some(peer) => deliver(sink, peer, packet)?,
        }
        if sink.is_inherited() {
            return Ok(count as u32 + 1);
        }
    }
    Ok(BATCH as u32)
}

fn deliver<S: Sink>(sink: S, peer: S::Peer, packet: &[u8]) -> Result<(), Ended> {
    let Some(m) = Message::in_packet(packet) else {
        sink.malformed(peer, "a malformed packet");
        return Err(Ended);
    };
    // SAFETY: the record is in the packet, which is readable during the call.
    let is_well = unsafe { sink.deliver(peer, &m) };
    is_well.then_some(()).ok_or(Ended)
}
