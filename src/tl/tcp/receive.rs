//! Receive path of TCP: events of sockets, messages, and long payloads that go to their place.

use super::conn::TcpConnPhase;
use super::receiver::{Buffered, PIECE, TcpReceiver};
use super::stream::ReadError;
use super::worker::{LISTENER, TIMER, TcpWorker};
use super::{accept, bulk, connect};
use crate::ctypes::UCS_ERR_CONNECTION_RESET;
use crate::sys::clock;
use crate::sys::epoll::SocketEvent;
use crate::sys::log;
use crate::tl::Lane;
use crate::tl::oob::OobSink;
use crate::tl::sink::Sink;
use rustix::io::Errno;
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

/// Nanoseconds between two polls of the sockets of a worker whose progress calls do not poll them, because no
/// connection is open: a peer that connects does not wait for the kernel's tick, of up to 10 ms, and an idle worker
/// polls them for less than a hundredth of its time.
const LOOK_NS: u64 = 100_000;
/// One of so many clock reads of such a worker reads the precise clock: a worker that polls without pause makes as many
/// progress calls in 40 us. One that shares its core with many others makes them in a millisecond, and would else spend
/// a tenth of its share of the core here.
const READ_EVERY: u32 = 64;

/// What a poll of the sockets has found.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpPolled {
    /// Number of events.
    pub count: u32,
    /// The epoll set was read to its end: connections may have come or gone.
    pub has_read_events: bool,
}

impl<P: Copy + Eq> TcpWorker<P> {
    /// Whether this progress call polls the sockets. `has_rings`: it polls shared memory, too.
    pub fn is_due(&self, has_rings: bool) -> bool {
        !has_rings || self.begin_poll() % SHARE == 0 || self.behind() != 0
    }

    /// Polls the sockets and handles events and messages. `has_rings`: as for [`is_due`](Self::is_due), which was true.
    pub fn progress<S: Sink<Peer = P>>(
        &mut self,
        sink: S,
        oob: &mut impl OobSink,
        has_rings: bool,
    ) -> TcpPolled {
        self.portion = PORTION;
        let calls = self.begin_poll();
        let turn = if has_rings { calls / SHARE } else { calls };
        let direct = self.unsettled == 0
            && self.open.len() <= DIRECT
            && self.epoll.writing.load(Ordering::Relaxed) == 0
            && turn % LISTEN_EVERY != 0;
        if !direct {
            return poll(self, sink, oob);
        }
        let mut count = 0;
        while self.take_listed().is_some() {}
        let share = share(self, self.open.len());
        for i in 0..self.open.len() {
            if let Some(&token) = self.open.get(i) {
                count += receive(self, sink, token, share);
            }
        }
        TcpPolled {
            count,
            has_read_events: false,
        }
    }

    /// Whether this clock read polls the sockets although the coarse clock has not advanced.
    pub fn is_look_due(&mut self) -> bool {
        self.reads = self.reads.wrapping_add(1);
        self.reads % READ_EVERY == 0 && clock::monotonic_ns() - self.looked_at >= LOOK_NS
    }

    /// Polls the sockets at a clock read, with what this progress call's portion has left.
    #[cold]
    #[inline(never)]
    pub fn tick<S: Sink<Peer = P>>(&mut self, sink: S, oob: &mut impl OobSink) -> TcpPolled {
        let polled = poll(self, sink, oob);
        self.looked_at = clock::monotonic_ns();
        // There may be no other poll of the sockets before the next tick.
        self.portion = PORTION;
        polled
    }
}

/// The share of each of `ready` sockets in this call's portion.
fn share<P>(sockets: &TcpWorker<P>, ready: usize) -> u32 {
    (sockets.portion / ready.max(1) as u32).max(MIN_SHARE)
}

/// Reads sockets with unhandled messages, and those that epoll reports.
#[cold]
#[inline(never)]
fn poll<S: Sink>(sockets: &mut TcpWorker<S::Peer>, sink: S, oob: &mut impl OobSink) -> TcpPolled {
    sockets.unasked += 1;
    if sockets.behind() >= (PORTION / MIN_SHARE) as usize && sockets.unasked < ASK_EVERY {
        return TcpPolled {
            count: go_on(sockets, sink, MIN_SHARE),
            has_read_events: false,
        };
    }
    sockets.unasked = 0;
    let mut events = std::mem::take(&mut sockets.events);
    match sockets.epoll.poll() {
        Some(ready) => events.extend(ready),
        None => events.extend(sockets.everything()),
    }
    let share = share(sockets, sockets.behind() + events.len());
    let mut count = go_on(sockets, sink, share);
    let mut has_read_events = true;
    for &event in &events {
        // True in a child that was forked in a callback, which does not own the sockets.
        if sink.is_inherited() {
            has_read_events = false;
            break;
        }
        count += 1 + on_event(sockets, sink, oob, event, share);
    }
    events.clear();
    sockets.events = events;
    TcpPolled {
        count,
        has_read_events,
    }
}

/// Reads the connections that earlier calls have listed, each of them once at most.
fn go_on<S: Sink>(sockets: &mut TcpWorker<S::Peer>, sink: S, share: u32) -> u32 {
    let mut count = 0;
    for _ in 0..sockets.behind() {
        if sockets.portion == 0 {
            break;
        }
        if let Some(token) = sockets.take_listed() {
            count += receive(sockets, sink, token, share);
        }
    }
    count
}

/// Handles an event. Returns the number of messages.
fn on_event<S: Sink>(
    sockets: &mut TcpWorker<S::Peer>,
    sink: S,
    oob: &mut impl OobSink,
    event: SocketEvent,
    share: u32,
) -> u32 {
    match event.token {
        LISTENER => accept::accept(sockets),
        TIMER => sockets.timer_rang(),
        token => match sockets
            .get(token)
            .map(|c| matches!(c.phase, TcpConnPhase::Open))
        {
            Some(true) => return on_open(sockets, sink, event, share),
            Some(false) if connect::on_event(sockets, sink, oob, event) => {
                return receive(sockets, sink, token, share);
            }
            Some(false) | None => {}
        },
    }
    0
}

fn on_open<S: Sink>(
    sockets: &mut TcpWorker<S::Peer>,
    sink: S,
    event: SocketEvent,
    share: u32,
) -> u32 {
    let Some(c) = sockets.get(event.token) else {
        return 0;
    };
    if event.write
        && let Some(peer) = c.peer
    {
        sink.with_lane(peer, |lane| {
            if let Lane::Tcp(sender) = lane {
                sender.on_room();
            }
        });
    }
    // A listed connection was read in this call, or is read first in the next one.
    if event.read && !sockets.is_listed(event.token) {
        receive(sockets, sink, event.token, share)
    } else {
        0
    }
}

/// Why a connection is not read any more.
enum ReadEnd {
    /// The peer has closed it, or is dead.
    Closed,
    /// Memory of the user, where data belong, cannot be written.
    Unwritable,
    /// The data are no sequence of frames.
    Malformed,
    /// A message was malformed, for which the peer has failed.
    Refused,
}

/// Reads an open connection and handles its messages: at most `share`, and no more than this call's portion has left.
/// The connection is listed if some may be left.
fn receive<S: Sink>(sockets: &mut TcpWorker<S::Peer>, sink: S, token: u64, share: u32) -> u32 {
    let limit = share.min(sockets.portion);
    if limit == 0 {
        sockets.list(token);
        return 0;
    }
    // A callback of an earlier connection may have forked: true in the child.
    if sink.is_inherited() {
        return 0;
    }
    let reads = sockets.max_poll;
    let Some(c) = sockets.get(token) else {
        return 0;
    };
    let Some(peer) = c.peer else {
        return 0;
    };
    let mut batch = Batch {
        sink,
        peer,
        limit,
        count: 0,
    };
    let end = batch.read(&mut c.receiver, reads);
    let count = batch.count;
    sockets.portion -= count.min(sockets.portion);
    let end = match end {
        Ok(Unread::Nothing) => return count,
        Ok(Unread::Something) => {
            sockets.list(token);
            return count;
        }
        Err(end) => end,
    };
    match end {
        ReadEnd::Closed => closed(sink, peer),
        ReadEnd::Unwritable => {
            let reason = format_args!("memory of a receive or a get cannot be written");
            sink.lane_lost(peer, reason, UCS_ERR_CONNECTION_RESET);
        }
        ReadEnd::Malformed => sink.malformed(peer, "a malformed frame"),
        ReadEnd::Refused => {}
    }
    connect::close(sockets, sink, token);
    count + 1
}

/// A connection has ended, perhaps because this process has ended it.
#[cold]
fn closed<S: Sink>(sink: S, peer: S::Peer) {
    let is_unreadable = |lane: &mut Lane| match lane {
        Lane::Tcp(sender) => sender.has_unreadable(),
        _ => false,
    };
    if sink.with_lane(peer, is_unreadable) == Some(true) {
        let reason = format_args!("memory of a message cannot be read");
        sink.lane_lost(peer, reason, UCS_ERR_CONNECTION_RESET);
    } else {
        let uid = sink.uid(peer);
        log::debug!("worker {uid:#x} has closed its connection");
    }
}

/// What the buffer of a connection contains after it was read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unread {
    /// No complete message.
    Nothing,
    /// Perhaps more messages: the limit was reached.
    Something,
}

/// The messages that one progress call handles from one connection.
struct Batch<S: Sink> {
    sink: S,
    peer: S::Peer,
    /// Maximum number of them, and of pieces of long ones.
    limit: u32,
    /// Those that were handled.
    count: u32,
}

impl<S: Sink> Batch<S> {
    /// Whether no more messages are handled. A progress call in whose callback the process has forked ends, in the
    /// child, with the message that called it.
    fn is_full(&self) -> bool {
        self.count >= self.limit || self.sink.is_inherited()
    }

    /// Reads the socket at most `reads` times, and handles the messages.
    fn read(&mut self, receiver: &mut TcpReceiver, reads: u32) -> Result<Unread, ReadEnd> {
        let mut left = reads;
        while left > 0 {
            // `UCX_TCP_MAX_POLL=inf` sets no limit.
            left -= u32::from(left != u32::MAX);
            let here = self.handle(receiver)?;
            if here == Unread::Something || self.is_full() {
                return Ok(here);
            }
            let more = match bulk::read(self.sink, self.peer, receiver) {
                // Payload in its place can have completed a request: the call counts as progress.
                Some(read) => {
                    self.count += u32::from(read.is_ok());
                    read
                }
                None => receiver.read(usize::MAX),
            };
            match more {
                Ok(true) => {}
                Ok(false) => break,
                Err(ReadError::WouldBlock) => return Ok(Unread::Nothing),
                Err(ReadError::Failed(Errno::FAULT)) => return Err(ReadEnd::Unwritable),
                Err(_) => return Err(ReadEnd::Closed),
            }
        }
        self.handle(receiver)
    }

    /// Handles complete messages in the buffer, until the batch is full.
    fn handle(&mut self, receiver: &mut TcpReceiver) -> Result<Unread, ReadEnd> {
        while !self.is_full() {
            match receiver.show().map_err(|_| ReadEnd::Malformed)? {
                Buffered::Starved => return Ok(Unread::Nothing),
                Buffered::Message(m) => {
                    // SAFETY: the record is in the buffer until `consume`.
                    if !unsafe { self.sink.deliver(self.peer, &m) } {
                        return Err(ReadEnd::Refused);
                    }
                    receiver.consume();
                }
                Buffered::PartialRecord => {
                    let left = receiver.bulk().map_or(0, |b| b.left());
                    let here = receiver.buffered().len().min(left);
                    // Payload that goes through the buffer is handled in pieces of a size that packing functions
                    // expect.
                    if here == 0
                        || here < left.min(PIECE)
                            && bulk::is_in_pieces(self.sink, self.peer, receiver)
                    {
                        return Ok(Unread::Nothing);
                    }
                    bulk::piece(self.sink, self.peer, receiver, here.min(PIECE));
                }
            }
            self.count += 1;
        }
        Ok(if receiver.is_drained() {
            Unread::Nothing
        } else {
            Unread::Something
        })
    }
}
