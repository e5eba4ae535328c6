//! Arrivals over TCP: connections, messages, and long payloads that go to their place.

use super::{listener, rx_dispatch, sink, tcp_rx_bulk};
use crate::engine::peer::Peer;
use crate::engine::request::PeerRef;
use crate::engine::worker::{Rx, Worker};
use crate::proto::tx;
use crate::sys::epoll::SocketEvent;
use crate::sys::log;
use crate::tl::Lane;
use crate::tl::ib::oob::IbOob;
use crate::tl::ib::worker::IbWorker;
use crate::tl::sink::Sink;
use crate::tl::tcp::conn::TcpConnPhase;
use crate::tl::tcp::receiver::{Buffered, PIECE, TcpReceiver};
use crate::tl::tcp::worker::{LISTENER, TIMER, TcpWorker};
use crate::tl::tcp::{accept, connect};
use std::io::ErrorKind;
use std::sync::atomic::Ordering;

/// Up to this number of open connections are read without `epoll_wait`.
const DIRECT: usize = 2;
/// Progress calls between two polls of the listening socket while connections are polled directly.
const LISTEN_EVERY: u32 = 64;
/// Where there are shared-memory rings too, one of so many progress calls polls the sockets, unless unhandled messages
/// were left: polling a socket is a system call.
const SHARE: u32 = 8;
/// Maximum number of messages, and pieces of long ones, that one progress call handles from all sockets: a program that
/// checks for arrivals between two calls sees a backlog in portions.
const PORTION: u32 = 128;
/// Minimum number of them for one connection. If more connections are ready than the portion allows, some are handled
/// in the next calls: a change of the connection costs more than a short message.
const MIN_SHARE: u32 = 16;
/// While the listed connections are enough for a whole portion, one of so many polls calls `epoll_wait`, which reports
/// each of them again for some 100 ns.
const ASK_EVERY: u32 = 8;

/// Progresses connections, messages and pending queues. Called only while there are connections, or some are to be
/// made.
#[inline(never)]
pub fn progress(worker: &Worker, rx: &mut Rx) -> u32 {
    let mut count = look(worker, rx);
    // Sends requests that callbacks have queued in this call.
    if worker.progress_flags.backlog() != 0 {
        count += tx::progress_backlog(worker);
    }
    if let Some(sockets) = rx.tcp.as_deref() {
        sockets.end_poll();
    }
    count
}

fn look(worker: &Worker, rx: &mut Rx) -> u32 {
    let busy = listener::is_busy(worker);
    let count = if busy { listener::progress(worker) } else { 0 };
    let rings = !rx.shm_rings.is_empty();
    let Some(sockets) = rx.tcp.as_deref_mut() else {
        worker.progress_flags.set_networked(busy);
        return count;
    };
    let calls = sockets.begin_poll();
    if rings && calls % SHARE != 0 && sockets.behind() == 0 {
        return count;
    }
    sockets.portion = PORTION;
    let wanted = worker.peer_lists.connect_tcp.lock().take();
    let wanted = wanted.into_iter().map(|(peer, ())| peer);
    connect::start(sockets, sink::cold(worker), wanted);
    let ports = rx.ib.as_deref_mut();
    let mut oob = IbOob {
        sink: sink::cold(worker),
        ports,
    };
    if oob.is_due() {
        oob.start(sockets);
    }
    let turn = if rings { calls / SHARE } else { calls };
    let direct = sockets.unsettled == 0
        && sockets.open.len() <= DIRECT
        && sockets.epoll.writing.load(Ordering::Relaxed) == 0
        && turn % LISTEN_EVERY != 0;
    if !direct {
        return count + poll(worker, sockets, &mut oob);
    }
    let mut count = count;
    while sockets.take_listed().is_some() {}
    let share = share(sockets, sockets.open.len());
    for i in 0..sockets.open.len() {
        if let Some(&token) = sockets.open.get(i) {
            count += receive(worker, sockets, token, share);
        }
    }
    count
}

/// The share of each of `ready` sockets in this call's portion.
fn share(sockets: &TcpWorker<PeerRef>, ready: usize) -> u32 {
    (sockets.portion / ready.max(1) as u32).max(MIN_SHARE)
}

/// [`poll`] at a clock tick, with what this call's portion has left.
#[cold]
#[inline(never)]
pub fn poll_by_clock(
    worker: &Worker,
    sockets: &mut TcpWorker<PeerRef>,
    ports: Option<&mut IbWorker<PeerRef>>,
) -> u32 {
    let count = poll(
        worker,
        sockets,
        &mut IbOob {
            sink: sink::cold(worker),
            ports,
        },
    );
    // There may be no other poll of the sockets before the next tick.
    sockets.portion = PORTION;
    count
}

/// Reads sockets with unhandled messages, and those that epoll reports.
#[cold]
#[inline(never)]
fn poll(
    worker: &Worker,
    sockets: &mut TcpWorker<PeerRef>,
    oob: &mut IbOob<impl Sink<Peer = PeerRef>>,
) -> u32 {
    sockets.unasked += 1;
    if sockets.behind() >= (PORTION / MIN_SHARE) as usize && sockets.unasked < ASK_EVERY {
        return go_on(worker, sockets, MIN_SHARE);
    }
    sockets.unasked = 0;
    let mut events = std::mem::take(&mut sockets.events);
    match sockets.epoll.poll() {
        Some(ready) => events.extend(ready),
        None => events.extend(sockets.everything()),
    }
    let share = share(sockets, sockets.behind() + events.len());
    let mut count = go_on(worker, sockets, share);
    count += on_events(worker, sockets, oob, &events, share);
    events.clear();
    sockets.events = events;
    count
}

/// Reads the connections that earlier calls have listed, each of them once at most.
fn go_on(worker: &Worker, sockets: &mut TcpWorker<PeerRef>, share: u32) -> u32 {
    let mut count = 0;
    for _ in 0..sockets.behind() {
        if sockets.portion == 0 {
            break;
        }
        if let Some(token) = sockets.take_listed() {
            count += receive(worker, sockets, token, share);
        }
    }
    count
}

fn on_events(
    worker: &Worker,
    sockets: &mut TcpWorker<PeerRef>,
    oob: &mut IbOob<impl Sink<Peer = PeerRef>>,
    events: &[SocketEvent],
    share: u32,
) -> u32 {
    let mut count = 0;
    for &event in events {
        // True in a child that was forked in a callback, which does not own the sockets.
        if worker.progress_flags.is_inherited() {
            return count;
        }
        count += 1;
        match event.token {
            LISTENER => {
                accept::accept(sockets);
                continue;
            }
            TIMER => {
                sockets.timer_rang();
                continue;
            }
            _ => {}
        }
        match sockets.get(event.token).map(|c| c.phase) {
            Some(TcpConnPhase::Open) => count += on_open(worker, sockets, event, share),
            Some(_) if connect::on_event(sockets, sink::cold(worker), oob, event) => {
                count += receive(worker, sockets, event.token, share);
            }
            Some(_) | None => {}
        }
    }
    // Relaxed: a thread that queues a connection sets the flag again, under the lock of `connect_tcp`.
    let connecting = worker.peer_lists.connect_tcp.lock();
    let active =
        oob.is_due() || !connecting.is_empty() || !sockets.is_quiet() || listener::is_busy(worker);
    worker.progress_flags.set_networked(active);
    drop(connecting);
    count
}

fn on_open(
    worker: &Worker,
    sockets: &mut TcpWorker<PeerRef>,
    event: SocketEvent,
    share: u32,
) -> u32 {
    let Some(c) = sockets.get(event.token) else {
        return 0;
    };
    if event.write
        && let Some(peer) = c.peer.map(PeerRef::get)
    {
        let mut tx = peer.tx.lock();
        if let Some(Lane::Tcp(sender)) = tx.lane.as_mut() {
            sender.on_room();
        }
    }
    // A listed connection was read in this call, or is read first in the next one.
    if event.read && !sockets.is_listed(event.token) {
        receive(worker, sockets, event.token, share)
    } else {
        0
    }
}

/// Why a connection is not read any more.
enum ReadEnd {
    /// The peer has closed it, or is dead.
    Closed,
    /// The data are malformed.
    Malformed,
}

/// Reads an open connection and handles its messages: at most `share`, and no more than this call's portion has left.
/// The connection is listed if some may be left.
fn receive(worker: &Worker, sockets: &mut TcpWorker<PeerRef>, token: u64, share: u32) -> u32 {
    let limit = share.min(sockets.portion);
    if limit == 0 {
        sockets.list(token);
        return 0;
    }
    // A callback of an earlier connection may have forked: true in the child.
    if worker.progress_flags.is_inherited() {
        return 0;
    }
    worker.receive_limit.set(limit);
    let Some(c) = sockets.get(token) else {
        return 0;
    };
    let Some(peer) = c.peer.map(PeerRef::get) else {
        return 0;
    };
    let mut count = 0;
    let end = read(worker, peer, &mut c.receiver, &mut count);
    sockets.portion -= count.min(sockets.portion);
    let end = match end {
        Ok(Unread::Nothing) => return count,
        Ok(Unread::Something) => {
            sockets.list(token);
            return count;
        }
        Err(end) => end,
    };
    let uid = peer.uid;
    match end {
        ReadEnd::Closed => log::debug!("worker {uid:#x} has closed its connection"),
        ReadEnd::Malformed => {
            log::error!("worker {uid:#x} sent a malformed message: connection closed")
        }
    }
    connect::close(sockets, sink::cold(worker), token);
    count + 1
}

/// What the buffer of a connection contains after it was read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unread {
    /// No complete message.
    Nothing,
    /// Perhaps more messages: the limit was reached.
    Something,
}

fn read(
    worker: &Worker,
    peer: &Peer,
    receiver: &mut TcpReceiver,
    count: &mut u32,
) -> Result<Unread, ReadEnd> {
    let mut left = worker.ctx.tl.tcp.policy.max_poll;
    while left > 0 {
        // `UCX_TCP_MAX_POLL=inf` sets no limit.
        left -= u32::from(left != u32::MAX);
        let here = handle(worker, peer, receiver, count)?;
        if here == Unread::Something || *count >= worker.receive_limit.get() {
            return Ok(here);
        }
        let more = match tcp_rx_bulk::read(worker, peer, receiver) {
            // Payload in its place can have completed a request: the call counts as progress.
            Some(read) => {
                *count += u32::from(read.is_ok());
                read
            }
            None => receiver.read(usize::MAX),
        };
        match more {
            Ok(true) => {}
            Ok(false) => break,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(Unread::Nothing),
            Err(_) => return Err(ReadEnd::Closed),
        }
    }
    handle(worker, peer, receiver, count)
}

/// Handles complete messages in the buffer, until `count` has reached the worker's `receive_limit`.
fn handle(
    worker: &Worker,
    peer: &Peer,
    receiver: &mut TcpReceiver,
    count: &mut u32,
) -> Result<Unread, ReadEnd> {
    while *count < worker.receive_limit.get() {
        match receiver.show().map_err(|_| ReadEnd::Malformed)? {
            Buffered::Starved => return Ok(Unread::Nothing),
            Buffered::Message(m) => {
                // SAFETY: the record is in the buffer until `consume`.
                unsafe { rx_dispatch::message(worker, peer, &m) }
                    .map_err(|_| ReadEnd::Malformed)?;
                receiver.consume();
                peer.stats().received.add(m.len);
                *count += 1;
            }
            Buffered::PartialRecord => {
                let left = receiver.bulk().map_or(0, |b| b.left());
                let here = receiver.buffered().len().min(left);
                // Payload that goes through the buffer is handled in pieces of a size that packing functions expect.
                if here < left.min(PIECE) && !tcp_rx_bulk::is_one_piece(worker, peer, receiver)
                    || here == 0
                {
                    return Ok(Unread::Nothing);
                }
                tcp_rx_bulk::piece(worker, peer, receiver, here.min(PIECE));
                *count += 1;
            }
        }
    }
    Ok(if receiver.is_drained() {
        Unread::Nothing
    } else {
        Unread::Something
    })
}
