//! Closes all connections of a worker that is destroyed.
//!
//! The provider drops what it has not sent when the endpoint is closed, and TCP under it what the peer has not read. So
//! each peer acknowledges the end of its connection, or ends it too.

use super::bindings::fi_cq_data_entry;
use super::conn::with_sender;
use super::ended_context::EndedContext;
use super::endpoint::{BATCH, Completed};
use super::iface::OfiIface;
use super::multi_recv;
use super::packet::{BYE, BYE_ACK, PacketHdr, RESET, bare};
use super::sender::OfiSender;
use super::tx_link::OfiTxLink;
use super::worker::OfiWorker;
use crate::sys::clock;
use crate::tl::Lane;
use crate::tl::interface::LINGER_MS;
use crate::tl::sink::Sink;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Interval at which the locks of peers are looked at, milliseconds.
const LOOK_MS: u64 = 20;

/// Closes the connections of all interfaces: waits, for a time, until the peers have acknowledged it.
pub fn close<P: Copy + Eq, S: Sink<Peer = P>>(worker: &mut OfiWorker<P>, sink: S) {
    if sink.is_inherited() {
        return;
    }
    let until = clock::coarse_ms() + LINGER_MS;
    let mut look_at = 0;
    loop {
        let now = clock::coarse_ms();
        let looks = now >= look_at;
        if looks {
            look_at = now + LOOK_MS;
        }
        let mut waits = false;
        for iface in worker.all_mut() {
            waits |= close_step(iface, sink, looks);
        }
        if !waits {
            break;
        }
        if now >= until {
            worker.all().for_each(keep_memory);
            break;
        }
        std::thread::yield_now();
    }
    for iface in worker.all_mut() {
        if iface.was_cut {
            keep_open(iface);
        }
        for (_, conn) in &iface.conns {
            if let Some(peer) = conn.peer {
                drop_lane(sink, peer, &conn.link);
            }
        }
        iface.control.clear();
    }
}

/// Sends and handles the ends of connections. Returns whether one is waited for. `looks`: the locks of peers are looked
/// at.
fn close_step<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S, looks: bool) -> bool {
    if looks {
        for (_, conn) in &mut iface.conns {
            conn.is_broken |= conn.is_dead();
        }
    }
    flush(iface, sink);
    while settle(iface) {}
    iface.conns.iter().any(|(_, conn)| {
        let is_open = conn.remote.is_some() && !conn.is_broken;
        is_open && !(conn.has_ended && conn.link.is_idle())
    })
}

/// A peer has not acknowledged the end of its connection. Where it uses memory of this endpoint, as a peer in this
/// process does, the endpoint stays open.
fn keep_memory<P>(iface: &OfiIface<P>) {
    if iface.in_memory {
        keep_open(iface);
    }
}

/// Leaves the endpoint open until the process ends. `ofi_rxm` of libfabric 1.17 crashes when it is closed after a cut:
/// it cancels a message of its own, which has no context, and looks for the message in the context.
fn keep_open<P>(iface: &OfiIface<P>) {
    std::mem::forget(iface.ep.clone());
}

/// Drops the lane to a peer if it is that of the connection with this sending half.
fn drop_lane<S: Sink>(sink: S, peer: S::Peer, link: &Arc<OfiTxLink>) {
    let is_its = |lane: &Lane| matches!(lane, Lane::Ofi(sender) if Arc::ptr_eq(&sender.link, link));
    drop(sink.take_lane(peer, is_its));
}

/// Sends what waits for room, and ends the connections for which nothing waits any more.
fn flush<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S) {
    iface.flush_control();
    iface.ep.take_blocked();
    for (link, _) in iface.ep.take_failed() {
        if let Some(conn) = iface.of_link(&link) {
            conn.is_broken = true;
        }
    }
    let mut ended = Vec::new();
    for (_, conn) in &mut iface.conns {
        let Some(peer) = conn.peer else { continue };
        let is_flushed = sink.has_failed(peer)
            || conn.is_broken
            || conn.has_ended
            || with_sender(sink, peer, OfiSender::flush) != Some(false);
        if is_flushed {
            conn.peer = None;
            ended.push((peer, conn.link.clone(), conn.remote));
        }
    }
    for (peer, link, remote) in ended {
        drop_lane(sink, peer, &link);
        if let Some(to) = remote.filter(|_| !is_broken(iface, &link)) {
            let packet = bare(to, BYE, link.next_seq());
            iface.send_control(&link, packet);
        }
    }
}

fn is_broken<P: Copy + Eq>(iface: &mut OfiIface<P>, link: &Arc<OfiTxLink>) -> bool {
    iface.of_link(link).is_none_or(|conn| conn.is_broken)
}

/// Handles completions: of what arrives only the ends of connections. Returns whether there were any.
fn settle<P: Copy + Eq>(iface: &mut OfiIface<P>) -> bool {
    let mut entries = [const { MaybeUninit::uninit() }; BATCH];
    let (ended, failed): (Vec<_>, bool) = match iface.ep.poll(&mut entries) {
        Completed::Nothing | Completed::Dead(_) => return false,
        Completed::Some(n) => {
            // SAFETY: the first `n` entries were written.
            let of = |entry: &MaybeUninit<_>| unsafe { entry.assume_init_read() };
            (entries[..n].iter().map(of).collect(), false)
        }
        Completed::Failed(failed) => {
            let entry = fi_cq_data_entry {
                op_context: failed.context,
                flags: failed.flags,
                ..fi_cq_data_entry::default()
            };
            (vec![entry], true)
        }
    };
    for entry in ended {
        // SAFETY: the context is that of an operation of the endpoint.
        let buffer = match unsafe { EndedContext::of(entry.op_context) } {
            Some(EndedContext::Received(buffer) | EndedContext::Sent(buffer)) => buffer,
            Some(EndedContext::Rma(op)) => {
                // SAFETY: the queue reports each operation once. The caller of the close completes the requests.
                unsafe { iface.ep.end_op(op, !failed) };
                continue;
            }
            Some(EndedContext::MultiRecv(buffer)) => {
                if !failed && multi_recv::has_packet(&entry) {
                    // SAFETY: the buffer is posted again behind the last use of the bytes.
                    on_packet(iface, unsafe { buffer.packet(&entry) });
                }
                if multi_recv::is_released(entry.flags) {
                    iface.ep.post_multi_recv(buffer);
                }
                continue;
            }
            None => continue,
        };
        // SAFETY: the queue reports each operation once, by its buffer.
        match unsafe { iface.ep.sent(buffer) } {
            Some(link) if failed => {
                if let Some(conn) = iface.of_link(&link) {
                    conn.is_broken = true;
                }
            }
            Some(_) => {}
            None if failed => {}
            None => {
                // SAFETY: the receive is complete, and the buffer is posted again behind the last use of the bytes.
                on_packet(iface, unsafe { buffer.packet(entry.len) });
                iface.ep.post_receive(buffer);
            }
        }
    }
    true
}

fn on_packet<P: Copy + Eq>(iface: &mut OfiIface<P>, packet: &[u8]) {
    let Some(hdr) = PacketHdr::decode(packet) else {
        return;
    };
    if let Some(conn) = iface.granted(hdr.grant())
        && matches!(hdr.kind, BYE | BYE_ACK | RESET)
    {
        // This side's own end, which was sent or will be, is the answer.
        conn.has_ended = true;
    }
}
