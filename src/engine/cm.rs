//! Sockaddr connection establishment (CM): listeners, connection requests, and the sessions of clients and servers.

use super::endpoint::EndpointRef;
use super::peer::{Peer, PeerSet};
use super::pointers::WorkerRef;
use super::request::Request;
use crate::ctypes::*;
use crate::sys::clock;
use crate::sys::epoll::Epoll;
use crate::sys::epoll_timer::EpollTimer;
use crate::sys::fork::{Lock, Mutex};
use crate::tl::IfaceKind;
use crate::tl::address::WorkerAddress;
use crate::tl::cm_conn::{CmConn, CmListener, CmTransport};
use crate::wire::cm_msg::{Hello, NUMBER_BITS};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Token of the timer in the epoll set; no entry has it.
const TIMER: u64 = 0;

/// Callback that a listener calls for a client.
#[derive(Clone, Copy)]
pub enum ConnHandler {
    /// Gets a connection request, which the user accepts or rejects later.
    Request(ucp_listener_conn_handler_t),
    /// Gets an endpoint, accepted at once.
    Accepted(ucp_listener_accept_handler_t),
}

/// Handed out as `ucp_listener_h`.
pub struct Listener {
    pub worker: WorkerRef,
    /// Token of the listener in the worker's [`CmState`].
    pub token: u64,
    /// Address on which it listens.
    pub address: SocketAddr,
}

/// A client that waits for its server to accept or reject it: behind the number that is handed out as
/// `ucp_conn_request_h`.
pub struct ConnRequest {
    /// Uid of the worker of the listener that accepted the connection.
    pub worker_uid: u64,
    pub contact: CmConn,
    pub hello: Hello,
    /// The client's worker.
    pub address: WorkerAddress,
    /// The client's end of the connection.
    pub remote: SocketAddr,
}

/// The requests that the program holds, and the last number given out: a request is queried without naming a worker,
/// and accepted by any worker of its context.
static REQUESTS: Mutex<(usize, BTreeMap<usize, ConnRequest>)> = Mutex::new((0, BTreeMap::new()));

/// One end of a connection between a client and a server.
pub struct CmSession {
    /// `None` after its endpoint was closed.
    pub ep: Option<EndpointRef>,
    /// The flushing close of the endpoint, until it completes.
    pub closing: Option<FlushClose>,
    pub state: SessionState,
    /// The connection; `None` after it has ended, when its addresses can still be queried.
    pub contact: Option<CmConn>,
    /// Transports that a client has not tried yet, best first.
    pub transports: Vec<CmTransport>,
    /// Source address that a client's user chose.
    pub from: Option<SocketAddr>,
    pub local: Option<SocketAddr>,
    pub remote: SocketAddr,
    /// The memory of the endpoint may be in use for another one.
    pub freed: bool,
    /// Number of the client's endpoint.
    pub number: u32,
    /// Secret by which the client recognises messages of the server that arrive before the server's answer.
    pub secret: u64,
    /// How a client's endpoint handles errors.
    pub err_mode: u8,
    /// Id of a client's worker that is sent to the server; 0: none is sent.
    pub client_id: u64,
    /// Bytes of an answer that has not arrived completely.
    pub buffer: Vec<u8>,
    /// Stub peer of the client's endpoint until the server is known.
    pub stub: Option<Arc<Peer>>,
}

/// A flushing close of a session's endpoint. It completes when what was sent before is flushed and the peer has
/// answered the disconnect.
pub struct FlushClose {
    /// The user's request; in no other list.
    pub request: *mut Request,
    /// Uid of the peer's worker, and its process if it is on this host, else 0: not a pointer, which would have to be
    /// counted.
    pub peer_uid: u64,
    pub peer_pid: u32,
    pub flushed: bool,
    /// `None` until the peer has answered.
    pub answer: Option<ucs_status_t>,
}

/// State of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// The client connects.
    Connecting,
    /// The client has sent its request and waits for the answer.
    Asked,
    /// Established: both sides know each other's worker address.
    Open,
    /// The peer has disconnected, and this end has not answered.
    Left,
    /// This end has sent a disconnect behind a flush, and waits for the answer.
    FlushClose,
    /// The session has ended.
    Ended,
}

/// An object in the epoll set of a worker's [`CmState`].
pub enum CmEntry {
    Listener {
        listener: CmListener,
        handler: ConnHandler,
    },
    /// A connection accepted by a listener whose request has not arrived completely.
    HalfOpen(HalfOpen),
    CmSession(Box<CmSession>),
}

/// State of an accepted connection whose request has not arrived completely.
pub struct HalfOpen {
    pub contact: CmConn,
    /// The listener's token.
    pub listener: u64,
    /// When the connection is closed unless the request is complete, coarse milliseconds.
    pub until: u64,
    pub buffer: Vec<u8>,
}

/// A client for which the listener's handler is to be called.
pub struct PendingAccept {
    pub listener: u64,
    pub request: ConnRequest,
}

/// A connection attempt of a client, which the next one follows.
pub struct AttemptTimer {
    /// When the next attempt starts, coarse milliseconds.
    pub until: u64,
    /// The client's session.
    pub token: u64,
}

/// A worker's state of sockaddr connection establishment. Made for the first listener or client.
pub struct CmState {
    pub epoll: Epoll,
    pub entries: HashMap<u64, CmEntry>,
    last: u64,
    /// Half-open connections, oldest first.
    pub half_open: VecDeque<u64>,
    pub due: VecDeque<PendingAccept>,
    /// Connection attempts of clients, the one that expires first in front.
    pub attempts: VecDeque<AttemptTimer>,
    /// A descriptor was ready when the worker was about to sleep.
    urgent: bool,
    /// Sessions that wait for the peer: those that are not open yet, and those that close.
    waiting: usize,
    /// Number of the next client endpoint.
    next_number: u32,
    /// Replaced stub peers, by the token of their session: another thread that sends through the endpoint or closes it
    /// may have read this peer before it was replaced.
    replaced: HashMap<u64, Arc<Peer>>,
    /// Stub peers of endpoints that are freed; requests or lists may still name them.
    deferred: Vec<Arc<Peer>>,
    /// Interval at which servers that have not answered are probed, and time of the last probe, milliseconds.
    keepalive: u64,
    probed: u64,
    /// Wakes a sleeping worker when a timeout expires; made when the first one is set.
    alarm: EpollTimer,
}

impl CmState {
    /// Connection establishment is progressed whenever this interface is to be polled.
    pub const IFACE: IfaceKind = IfaceKind::SOCKETS;

    /// An empty one. `keepalive`: interval of the probes of a server's host, milliseconds.
    ///
    /// # Errors
    /// `EMFILE` and the like.
    pub fn new(keepalive: u64) -> io::Result<Self> {
        Ok(Self {
            epoll: Epoll::new()?,
            entries: HashMap::new(),
            last: 0,
            half_open: VecDeque::new(),
            due: VecDeque::new(),
            attempts: VecDeque::new(),
            urgent: false,
            waiting: 0,
            next_number: 0,
            replaced: HashMap::new(),
            deferred: Vec::new(),
            keepalive,
            probed: clock::coarse_ms(),
            alarm: EpollTimer::new(TIMER),
        })
    }

    /// A token that was never used. Never 0, which denotes an endpoint without session.
    pub fn token(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// A number for a client's endpoint.
    pub fn number(&mut self) -> u32 {
        let number = self.next_number;
        self.next_number = (number + 1) % (1 << NUMBER_BITS);
        number
    }

    /// The worker is about to sleep: sets the timer for the next timeout. False if that has expired, or the timer
    /// cannot be set.
    pub fn sleep_until_due(&mut self) -> bool {
        let at = self.sleep_limit();
        self.alarm.wake(&self.epoll, at)
    }

    /// A descriptor is ready, and the worker is about to sleep: progress polls before the next clock tick.
    pub fn set_urgent(&mut self) {
        self.urgent = true;
    }

    /// Progress polls the epoll set. Clears the expired timer, so that the set is not readable because of it.
    pub fn begin_progress(&mut self) {
        self.urgent = false;
        self.alarm.drain();
    }

    /// One more session waits for its peer.
    pub fn add_waiting(&mut self) {
        self.waiting += 1;
    }

    /// A session does not wait for its peer any more.
    pub fn end_waiting(&mut self) {
        self.waiting -= 1;
    }

    /// When the next half-open connection, connection attempt or probe is due, coarse milliseconds.
    fn sleep_limit(&self) -> Option<u64> {
        let half_open_until = match self
            .half_open
            .front()
            .and_then(|token| self.entries.get(token))
        {
            Some(CmEntry::HalfOpen(half_open)) => Some(half_open.until),
            _ => None,
        };
        let attempt = self.attempts.front().map(|attempt| attempt.until);
        let probe = (self.waiting > 0).then(|| self.probed.saturating_add(self.keepalive));
        let times = half_open_until.into_iter().chain(attempt);
        times.chain(probe.filter(|&at| at != u64::MAX)).min()
    }

    /// Probes the peers of sessions that wait for an answer, if the keepalive interval has passed. Established sessions
    /// are probed by the keepalive of their transport.
    pub fn probe(&mut self) {
        if self.waiting == 0 {
            return;
        }
        let now = clock::coarse_ms();
        if now < self.probed.saturating_add(self.keepalive) {
            return;
        }
        self.probed = now;
        for entry in self.entries.values_mut() {
            if let CmEntry::CmSession(session) = entry
                && matches!(
                    session.state,
                    SessionState::Asked | SessionState::FlushClose
                )
                && let Some(contact) = &mut session.contact
            {
                contact.probe();
            }
        }
    }

    /// The session with this token.
    pub fn session(&mut self, token: u64) -> Option<&mut CmSession> {
        match self.entries.get_mut(&token) {
            Some(CmEntry::CmSession(session)) => Some(session),
            _ => None,
        }
    }

    /// Whether there is work that should not wait for the next clock tick.
    pub fn is_busy(&self) -> bool {
        self.urgent || self.waiting > 0 || !self.half_open.is_empty() || !self.due.is_empty()
    }

    /// Keeps the replaced stub peer of a session until nothing names it.
    pub fn retire(&mut self, token: u64, peer: Arc<Peer>) {
        if self.session(token).is_some_and(|s| s.freed) {
            self.deferred.push(peer);
        } else {
            self.replaced.insert(token, peer);
        }
    }

    /// The endpoint of a session is freed. Frees the stub peers that nothing names.
    pub fn endpoint_freed(&mut self, token: u64, lost: &PeerSet) {
        if let Some(session) = self.session(token) {
            session.freed = true;
        }
        self.deferred.extend(self.replaced.remove(&token));
        let named = |p: &Peer| {
            let tx = p.tx.lock();
            tx.in_pending_list || !tx.pending.is_empty() || lost.contains(p)
        };
        self.deferred
            .retain(|p| named(p) || !p.eps.lock().all().is_empty());
    }

    /// All stub peers.
    pub fn stub_peers(&self) -> impl Iterator<Item = &Arc<Peer>> {
        let waiting = self.entries.values().filter_map(|entry| match entry {
            CmEntry::CmSession(session) => session.stub.as_ref(),
            _ => None,
        });
        waiting.chain(self.replaced.values()).chain(&self.deferred)
    }
}

impl ConnRequest {
    /// Lock of the table of requests, which a fork acquires.
    pub fn lock_to_watch() -> &'static Lock {
        REQUESTS.lock_to_watch()
    }

    /// Stores a request until it is accepted or rejected; returns its handle.
    pub fn keep(self) -> usize {
        let (last, requests) = &mut *REQUESTS.lock();
        *last += 1;
        requests.insert(*last, self);
        *last
    }

    /// Removes a request; `None` if it was accepted or rejected before.
    pub fn take(handle: usize) -> Option<ConnRequest> {
        REQUESTS.lock().1.remove(&handle)
    }

    /// Calls `look` with a stored request.
    pub fn with<R>(handle: usize, look: impl FnOnce(&ConnRequest) -> R) -> Option<R> {
        REQUESTS.lock().1.get(&handle).map(look)
    }

    /// Removes all requests of the listeners of the worker with this uid.
    pub fn take_all(worker_uid: u64) -> Vec<ConnRequest> {
        let requests = &mut REQUESTS.lock().1;
        let led_to = |r: &ConnRequest| r.worker_uid == worker_uid;
        let handles: Vec<usize> = (requests.iter())
            .filter(|(_, request)| led_to(request))
            .map(|(&handle, _)| handle)
            .collect();
        let all = handles.iter().filter_map(|handle| requests.remove(handle));
        all.collect()
    }
}
