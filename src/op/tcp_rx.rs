//! What comes through sockets: connections, messages, and long payloads on their way to their place.

use super::{listener, rx_dispatch, tcp_rx_bulk};
use crate::engine::ib_worker::IbWorker;
use crate::engine::peer::Peer;
use crate::engine::tcp_worker::{LISTENER, TIMER, TcpConnPhase, TcpWorker};
use crate::engine::worker::{Rx, Worker};
use crate::proto::{ib_wireup_tcp, tcp_wireup, tx};
use crate::sys::log;
use crate::tl::Lane;
use crate::tl::tcp::epoll::SocketEvent;
use crate::tl::tcp::receiver::{Buffered, PIECE, TcpReceiver};
use std::io::ErrorKind;
use std::sync::atomic::Ordering;

/// So many open connections are read without asking first which of them are ready.
const DIRECT: usize = 2;
/// Progress calls between two looks at the listening socket while connections are polled directly.
const LISTEN_EVERY: u32 = 64;
/// Where there are rings too, sockets get one progress call in so many, unless something of theirs was left: a look at
/// a socket is a system call.
const SHARE: u32 = 8;
/// Messages, and pieces of long ones, that one progress call takes in from all sockets together: a program that looks
/// between two calls at what there is sees a backlog in portions.
const PORTION: u32 = 128;
/// Messages that a connection gets of it at least. Where more connections are ready than that is enough for, some get
/// their turn in the next calls: to go from one to another costs more than to handle a short message.
const MIN_SHARE: u32 = 16;
/// While the connections that are listed are enough for a whole portion, one look at the sockets in so many asks the
/// epoll set: it reports each of them again, for some 100 ns.
const ASK_EVERY: u32 = 8;

/// Moves connections and messages on, and what waits to be sent. Called only while there are connections, or some are
/// wanted.
#[inline(never)]
pub fn progress(worker: &Worker, rx: &mut Rx) -> u32 {
    let mut count = look(worker, rx);
    // What users have collected, and what callbacks have just answered, does not wait for another call.
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
    tcp_wireup::start(worker, sockets);
    let mut ports = rx.ib.as_deref_mut();
    if let Some(ports) = ports.as_deref_mut()
        && !ports.calls.is_empty()
    {
        ib_wireup_tcp::start(worker, sockets, ports);
    }
    let turn = if rings { calls / SHARE } else { calls };
    let direct = sockets.unsettled == 0
        && sockets.open.len() <= DIRECT
        && sockets.epoll.writing.load(Ordering::Relaxed) == 0
        && turn % LISTEN_EVERY != 0;
    if !direct {
        return count + poll(worker, sockets, ports);
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

/// What each of so many sockets gets of this call's portion.
fn share(sockets: &TcpWorker, ready: usize) -> u32 {
    (sockets.portion / ready.max(1) as u32).max(MIN_SHARE)
}

/// As [`poll`], when progress looks at the clock: takes in what this call's portion has left.
#[cold]
#[inline(never)]
pub fn poll_by_clock(
    worker: &Worker,
    sockets: &mut TcpWorker,
    ports: Option<&mut IbWorker>,
) -> u32 {
    let count = poll(worker, sockets, ports);
    // The next look at the clock may be the next one at the sockets.
    sockets.portion = PORTION;
    count
}

/// Goes on with sockets of which an earlier call has left something, and asks the epoll set what is ready.
#[cold]
#[inline(never)]
fn poll(worker: &Worker, sockets: &mut TcpWorker, ports: Option<&mut IbWorker>) -> u32 {
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
    count += on_events(worker, sockets, ports, &events, share);
    events.clear();
    sockets.events = events;
    count
}

/// Goes on with connections of which earlier calls have left something, each of them once at most.
fn go_on(worker: &Worker, sockets: &mut TcpWorker, share: u32) -> u32 {
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
    sockets: &mut TcpWorker,
    mut ports: Option<&mut IbWorker>,
    events: &[SocketEvent],
    share: u32,
) -> u32 {
    let mut count = 0;
    for &event in events {
        // A callback has forked, and this is the child: its sockets are none.
        if worker.progress_flags.is_inherited() {
            return count;
        }
        count += 1;
        match event.token {
            LISTENER => {
                tcp_wireup::accept(sockets);
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
            Some(TcpConnPhase::Calling { .. } | TcpConnPhase::Letters { .. }) => {
                ib_wireup_tcp::on_event(worker, sockets, ports.as_deref_mut(), event.token);
            }
            Some(_) if tcp_wireup::on_event(worker, sockets, event) => {
                count += receive(worker, sockets, event.token, share);
            }
            // A guest may have come with a letter.
            Some(_) => ib_wireup_tcp::take(worker, sockets, ports.as_deref_mut(), event.token),
            None => {}
        }
    }
    // Relaxed: set again by whoever wants a connection, under the lock of `dials`.
    let dials = worker.connect_tcp.lock();
    let calls = ports.is_some_and(|ports| !ports.calls.is_empty());
    let active = calls || !dials.is_empty() || !sockets.is_quiet() || listener::is_busy(worker);
    worker.progress_flags.set_networked(active);
    drop(dials);
    count
}

fn on_open(worker: &Worker, sockets: &mut TcpWorker, event: SocketEvent, share: u32) -> u32 {
    let Some(c) = sockets.get(event.token) else {
        return 0;
    };
    if event.write {
        // SAFETY: peers that lists of progress name are not freed; an open connection has one.
        let mut tx = unsafe { &*c.peer }.tx.lock();
        if let Some(Lane::Tcp(sender)) = tx.lane.as_mut() {
            sender.on_room();
        }
    }
    // What is in the list has had its turn in this call, or comes first in the next one.
    if event.read && !sockets.is_listed(event.token) {
        receive(worker, sockets, event.token, share)
    } else {
        0
    }
}

/// Why a connection is not read any more.
enum ReadEnd {
    /// The peer has closed it, or is gone.
    Closed,
    /// What came makes no sense.
    Malformed,
}

/// Reads what has come through an open connection and handles it: `share` messages at most, and no more than what this
/// call's portion has left. A connection of which something may be left is listed.
fn receive(worker: &Worker, sockets: &mut TcpWorker, token: u64, share: u32) -> u32 {
    let limit = share.min(sockets.portion);
    if limit == 0 {
        sockets.list(token);
        return 0;
    }
    // A callback of an earlier one's has forked, and this is the child.
    if worker.progress_flags.is_inherited() {
        return 0;
    }
    worker.receive_limit.set(limit);
    let Some(c) = sockets.get(token) else {
        return 0;
    };
    let mut count = 0;
    let peer = c.peer;
    let end = read(worker, c.peer, &mut c.receiver, &mut count);
    sockets.portion -= count.min(sockets.portion);
    let end = match end {
        Ok(Unread::Nothing) => return count,
        Ok(Unread::Something) => {
            sockets.list(token);
            return count;
        }
        Err(end) => end,
    };
    // SAFETY: peers that lists of progress name are not freed.
    let uid = unsafe { &*peer }.uid;
    match end {
        ReadEnd::Closed => log::debug!("worker {uid:#x} has closed its connection"),
        ReadEnd::Malformed => {
            log::error!("worker {uid:#x} sent what is no message: connection closed")
        }
    }
    tcp_wireup::close(sockets, token);
    count + 1
}

/// What a connection has in its buffer after a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unread {
    /// Nothing that could be handled.
    Nothing,
    /// Perhaps more messages: the turn has ended by its limit.
    Something,
}

fn read(
    worker: &Worker,
    peer: *const Peer,
    receiver: &mut TcpReceiver,
    count: &mut u32,
) -> Result<Unread, ReadEnd> {
    // SAFETY: peers that lists of progress name are not freed.
    let peer = unsafe { &*peer };
    let mut left = worker.ctx.policy.connecting.max_poll;
    while left > 0 {
        // There is no end for who asked for none.
        left -= u32::from(left != u32::MAX);
        let here = handle(worker, peer, receiver, count)?;
        if here == Unread::Something || *count >= worker.receive_limit.get() {
            return Ok(here);
        }
        let more = match tcp_rx_bulk::read(worker, peer, receiver) {
            // What is in its place can have ended a request: callers look when progress says so.
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

/// Handles what is complete in the buffer, until `count` has come to the worker's `receive_limit`.
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
                // What goes through the buffer goes in pieces of a size that packing functions know.
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
    Ok(match receiver.is_drained() {
        true => Unread::Nothing,
        false => Unread::Something,
    })
}
