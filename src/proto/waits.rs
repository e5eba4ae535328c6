//! What a worker waits for: found by walks over its lists, a few times in some seconds, and published on its statistics
//! page for `rucp_top --stuck`. Called by progress, and when the worker is armed.
//!
//! Nothing is written when an operation begins. A walk marks the requests that it sees with the time, in bits of their
//! flags that a new request has zeroed anyway; so the next walks know since when a request has waited. A request whose
//! data move, and one behind others that are sent, waits since nothing has moved between the two workers.

use crate::ctypes::*;
use crate::engine::cm::{CmEntry, SessionState};
use crate::engine::endpoint::EndpointRef;
use crate::engine::peer::{Peer, PeerTx};
use crate::engine::piece_list::PieceList;
use crate::engine::request::{Op, ReqFlags, Request, TxState};
use crate::engine::waits::FoundWaits;
use crate::engine::worker::{Rx, Worker};
use crate::sys::clock;
use crate::sys::cma::CmaDirection;
use crate::wire::header::{AmImm, Kind};
use crate::wire::waits::{WaitCause, WaitOp, WaitRow};
use std::collections::HashSet;

/// Milliseconds between two walks of a worker that progresses, if it has few peers.
const INTERVAL_MS: u64 = 400;
/// Number of peers for which another interval passes between two walks.
const PEERS_PER_INTERVAL: usize = 512;
/// Maximum number of intervals between two walks.
const MAX_INTERVALS: usize = 8;
/// Milliseconds between two walks of a worker that is armed again and again, if it has more than `FEW` lists' entries.
const ARM_INTERVAL_MS: u64 = 100;
/// Number of peers and waiting requests up to which every arming walks.
const FEW: usize = 16;
/// Most entries that a walk looks at, of the posted receives and of the requests with an id; the next walk goes on
/// behind these.
const MAX_ENTRIES: usize = 16 << 10;
/// Entries of each list of a peer that a walk looks at: the first ones are the oldest.
const PER_PEER: usize = 8;

/// A walk that goes on.
struct Walk<'a> {
    worker: &'a Worker,
    now: u64,
    found: FoundWaits,
    /// Requests in pending queues, which may have ids, too.
    pending: HashSet<*const Request>,
}

/// Called in progress, periodically: notes that the worker progresses, and walks when that is due. `now`: coarse
/// milliseconds.
pub fn progress(worker: &Worker, rx: &mut Rx, now: u64) {
    worker.stats.worker().waits().note_progress(now);
    if now >= rx.waits.next {
        walk(worker, rx, now);
    }
}

/// The worker was armed: it does not progress until an event, so that this is the last occasion to publish what it
/// waits for.
pub fn armed(worker: &Worker, rx: &mut Rx) {
    let now = clock::coarse_ms();
    if now >= rx.waits.last + ARM_INTERVAL_MS || has_few(worker) {
        walk(worker, rx, now);
    }
    worker.stats.worker().waits().note_armed(now);
}

/// Whether a walk of this worker takes about a microsecond.
fn has_few(worker: &Worker) -> bool {
    let entries = worker.matcher.lock().posted_len() + worker.ids.lock().len();
    entries + worker.peers.lock().len() <= FEW
}

fn walk(worker: &Worker, rx: &mut Rx, now: u64) {
    let mut walk = Walk {
        worker,
        now,
        found: FoundWaits::default(),
        pending: HashSet::new(),
    };
    walk.posted(rx);
    let mut peers = walk.peers(rx);
    peers += walk.stub_peers(rx);
    walk.named_requests(rx);
    walk.closing_sessions();
    walk.unexpected(rx);
    let quiet = rx.waits.quiet_since(worker.stats.traffic(), now);
    worker
        .stats
        .worker()
        .waits()
        .publish(&walk.found, quiet, now);
    rx.waits.end_walk();
    let intervals = peers.div_ceil(PEERS_PER_INTERVAL).clamp(1, MAX_INTERVALS);
    (rx.waits.last, rx.waits.next) = (now, now + intervals as u64 * INTERVAL_MS);
}

impl Walk<'_> {
    /// Receives that the matcher has.
    fn posted(&mut self, rx: &mut Rx) {
        let matcher = self.worker.matcher.lock();
        let (mt, now, found) = (self.worker.mt, self.now, &mut self.found);
        let from = rx.waits.next_bucket;
        rx.waits.next_bucket = matcher.walk_posted(from, MAX_ENTRIES, |posting, tag| {
            let req = Request::of_posting(posting);
            // SAFETY: a posted receive lives, and stays posted while the matcher's lock is held. These fields were
            // written before it was posted; no reference is made to those that were not.
            let (flags, data) = unsafe { (&(*req).flags, &(*req).data) };
            found.add(flags.first_seen(mt, now), || WaitRow {
                tag,
                bytes: data.len() as u64,
                ..row(WaitOp::TagRecv, WaitCause::Unmatched)
            });
        });
    }

    /// The queues of all peers but stub peers to which something may be on the way; those of others are empty. Receives
    /// of streams wait for peers to which nothing was sent, too. Returns the number of peers that were looked at.
    fn peers(&mut self, rx: &mut Rx) -> usize {
        let unflushed = self.worker.peer_lists.unflushed.lock().handles();
        unflushed.iter().for_each(|peer| self.queues(rx, peer));
        if !self.worker.ctx.has(UCP_FEATURE_STREAM) {
            return unflushed.len();
        }
        let (mut peers, mut eps) = (0, Vec::new());
        self.worker.each_settled_peer(|peer| {
            peers += 1;
            eps.extend_from_slice(peer.eps.lock().all());
        });
        eps.into_iter().for_each(|ep| self.stream(rx, ep));
        peers
    }

    /// The queues of the stub peers, whose servers are not known yet. Returns their number.
    fn stub_peers(&mut self, rx: &mut Rx) -> usize {
        let cm = self.worker.cm.lock();
        let Some(cm) = cm.as_ref() else { return 0 };
        let mut peers = 0;
        for entry in cm.entries.values() {
            if let CmEntry::CmSession(session) = entry
                && let Some(stub) = &session.stub
            {
                peers += 1;
                let before = self.found.total;
                self.queues(rx, stub);
                if self.found.total > before {
                    let place = session.remote.to_string();
                    let rows = self.found.rows.iter_mut();
                    let of_stub = rows.filter(|row| {
                        row.cause == WaitCause::Unconnected && row.peer == 0 && row.place.is_empty()
                    });
                    of_stub.for_each(|row| row.place.clone_from(&place));
                }
            }
        }
        peers
    }

    /// The pending queue of a peer, and its flushes.
    fn queues(&mut self, rx: &mut Rx, peer: &Peer) {
        let tx = peer.tx.lock();
        let device = tx.lane.as_ref();
        if tx.pending.is_empty() && tx.flushes.is_empty() && device.is_none() {
            return;
        }
        if !tx.pending.is_empty() {
            self.pending(rx, peer, &tx);
        }
        let mut flushes: Vec<_> = (tx.flushes.iter().map(|flush| flush.req))
            .take(PER_PEER)
            .collect();
        if let Some(lane) = device {
            lane.for_each_token(|token| {
                let req = Request::by_token(token);
                // SAFETY: requests in lanes are not freed, and stay there as long as the peer's lock is held.
                if unsafe { (*req).sent } == TxState::FlushMarker && flushes.len() < PER_PEER {
                    flushes.push(req);
                }
            });
        }
        for req in flushes {
            // SAFETY: requests in lists are not freed, and stay there as long as the list's lock is held.
            let r = unsafe { &*req };
            let since = r.flags.first_seen(self.worker.mt, self.now);
            self.found
                .add(since, || row_of(r, WaitCause::Unanswered).to(peer));
        }
    }

    fn pending(&mut self, rx: &mut Rx, peer: &Peer, tx: &PeerTx) {
        let cause = match tx.lane {
            Some(_) => WaitCause::NoRoom,
            None if tx.connecting || peer.is_stub() => WaitCause::Unconnected,
            // No ring could be had in the peer's inbox.
            None => WaitCause::NoRoom,
        };
        // SAFETY: requests in lists are not freed, and stay there as long as the list's lock is held.
        let offset = tx.pending.front().map_or(0, |&r| unsafe { (*r).offset });
        let quiet = self.quiet_since(rx, peer, offset);
        self.found.total += tx.pending.len().saturating_sub(PER_PEER) as u64;
        self.pending
            .extend(tx.pending.iter().map(|&req| req.cast_const()));
        for &req in tx.pending.iter().take(PER_PEER) {
            // SAFETY: requests in lists are not freed, and stay there as long as the list's lock is held.
            let r = unsafe { &*req };
            let since = r.flags.first_seen(self.worker.mt, self.now).max(quiet);
            self.found.add(since, || row_of(r, cause).to(peer));
        }
    }

    /// Since when nothing has moved between the worker and a peer, and `offset` bytes of the request that is being sent
    /// have been.
    fn quiet_since(&self, rx: &mut Rx, peer: &Peer, offset: u64) -> u64 {
        let count = peer.stats().traffic().wrapping_add(offset);
        rx.waits
            .peer_quiet_since(std::ptr::from_ref(peer).addr() as u64, count, self.now)
    }

    /// The posted receives of an endpoint's stream.
    fn stream(&mut self, rx: &mut Rx, ep: EndpointRef) {
        let e = ep.get();
        let streams = self.worker.streams.lock();
        // SAFETY: an endpoint of this worker; progress, which calls this, frees endpoints, and others leave it to it.
        let Some(req) = (unsafe { streams.first_posted(e) }) else {
            return;
        };
        // SAFETY: requests in lists are not freed, and stay there as long as the list's lock is held.
        let r = unsafe { &*req };
        let since = r.flags.first_seen(self.worker.mt, self.now);
        let peer = e.peer();
        let since = match r.offset {
            0 => since,
            offset => since.max(self.quiet_since(rx, peer, offset)),
        };
        self.found.add(since, || {
            let row = row(WaitOp::StreamRecv, WaitCause::Unmatched);
            WaitRow {
                bytes: r.data.len() as u64,
                ..row.to(peer)
            }
        });
    }

    /// Requests that the peers name: they wait for a reply or for data.
    fn named_requests(&mut self, rx: &mut Rx) {
        let ids = self.worker.ids.lock();
        let from = rx.waits.next_id;
        let mut seen = 0;
        for (_, req) in ids.iter_from(from).take(MAX_ENTRIES) {
            seen += 1;
            if self.pending.contains(&req.cast_const()) {
                continue;
            }
            // SAFETY: requests in lists are not freed, and stay there as long as the list's lock is held.
            let r = unsafe { &*req };
            let Some(peer) = r.peer else { continue };
            let peer = peer.get();
            let cause = cause_of_named(r);
            let since = r.flags.first_seen(self.worker.mt, self.now);
            let since = match cause {
                WaitCause::NoData => since.max(self.quiet_since(rx, peer, 0)),
                _ => since,
            };
            self.found.add(since, || row_of(r, cause).to(peer));
        }
        rx.waits.next_id = match seen {
            MAX_ENTRIES => from + MAX_ENTRIES,
            _ => 0,
        };
    }

    /// Flushing closes of clients' and servers' endpoints, which the peers have not answered.
    fn closing_sessions(&mut self) {
        let cm = self.worker.cm.lock();
        let Some(cm) = cm.as_ref() else { return };
        for entry in cm.entries.values() {
            let CmEntry::CmSession(session) = entry else {
                continue;
            };
            let remote = session.remote.to_string();
            if let Some(closing) = &session.closing
                && session.state != SessionState::Ended
            {
                // SAFETY: the session has the request until the close completes; the lock of the CM is held.
                let flags = unsafe { &(*closing.request).flags };
                let since = flags.first_seen(self.worker.mt, self.now);
                self.found.add(since, || WaitRow {
                    place: remote,
                    peer: closing.peer_uid,
                    pid: closing.peer_pid,
                    ..row(WaitOp::Close, WaitCause::Closing)
                });
            }
        }
    }

    /// The oldest message that no receive matches.
    fn unexpected(&mut self, rx: &mut Rx) {
        let matcher = self.worker.matcher.lock();
        let tag = matcher.first_unexpected();
        let matched = (self.worker.stats.worker().unexpected_total())
            .wrapping_sub(matcher.unexpected_len() as u64);
        let since = rx.waits.unexpected_since(tag.map(|_| matched), self.now);
        self.found.unexpected = tag.zip(since);
    }
}

/// What a request that a peer names waits for.
fn cause_of_named(r: &Request) -> WaitCause {
    if let Op::RndvRecv(_) = r.op {
        return WaitCause::NoData;
    }
    match r.msg.kind() {
        Some(Kind::TagRts | Kind::AmRts | Kind::TagSync) => WaitCause::NotReceived,
        _ => WaitCause::Unanswered,
    }
}

/// A row of an operation of which nothing else is known.
fn row(op: WaitOp, cause: WaitCause) -> WaitRow {
    WaitRow {
        since: 0,
        op,
        cause,
        tag: 0,
        bytes: 0,
        peer: 0,
        pid: 0,
        place: String::new(),
    }
}

impl WaitRow {
    /// The row with the peer that is waited for.
    fn to(self, peer: &Peer) -> WaitRow {
        let address = peer.socket_target().and_then(|target| target.address());
        WaitRow {
            peer: peer.uid,
            pid: peer.inbox.map_or(0, |inbox| inbox.id.pid),
            place: address.map_or_else(String::new, |address| address.to_string()),
            ..self
        }
    }
}

/// The row of a request that has a peer.
fn row_of(r: &Request, cause: WaitCause) -> WaitRow {
    let op = op_of(r);
    let tag = match op {
        WaitOp::TagSend | WaitOp::TagRecv => r.msg.imm,
        WaitOp::AmSend => AmImm::from_u64(r.msg.imm).id.into(),
        _ => 0,
    };
    WaitRow {
        tag,
        bytes: r.piece_list().map_or(r.data.len(), PieceList::bytes) as u64,
        ..row(op, cause)
    }
}

/// The operation of a request that has a peer.
fn op_of(r: &Request) -> WaitOp {
    let access = |direction: CmaDirection| match direction {
        CmaDirection::Read => WaitOp::Get,
        CmaDirection::Write => WaitOp::Put,
    };
    match (&r.op, r.sent) {
        (Op::RndvRecv(_), _) if r.flags.has(ReqFlags::TAG_RECV) => return WaitOp::TagRecv,
        (Op::RndvRecv(_), _) => return WaitOp::AmRecv,
        (Op::CloseFlush { .. } | Op::EpClose(_), _) => return WaitOp::Close,
        (Op::FlushChild { .. }, _) => return WaitOp::Flush,
        (_, TxState::FlushMarker) => return WaitOp::Flush,
        (Op::Rma(rma), _) => return access(rma.direction),
        (Op::RmaList(list), _) => return access(list.direction),
        (Op::Cma { direction, .. }, _) => return access(*direction),
        (Op::Amo { .. }, _) => return WaitOp::Atomic,
        _ => {}
    }
    match r.msg.kind() {
        Some(Kind::TagEager | Kind::TagSync | Kind::TagRts | Kind::TagFragment) => WaitOp::TagSend,
        Some(Kind::AmEager | Kind::AmRts | Kind::AmFragment) => WaitOp::AmSend,
        Some(Kind::StreamData) => WaitOp::StreamSend,
        Some(Kind::Data | Kind::Atp) => WaitOp::RndvSend,
        Some(Kind::PutReq | Kind::Signal | Kind::Note) => WaitOp::Put,
        Some(Kind::GetReq) => WaitOp::Get,
        Some(Kind::AmoReq) => WaitOp::Atomic,
        _ => WaitOp::Control,
    }
}
