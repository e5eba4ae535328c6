//! Listeners, clients that ask, and the connections by which clients and servers know each other.

use super::endpoint::Endpoint;
use super::epoll_timer::EpollTimer;
use super::peer::Peer;
use super::request::Request;
use super::worker::Worker;
use crate::ctypes::*;
use crate::sys::clock;
use crate::sys::fork::{Lock, Mutex};
use crate::tl::cm_conn::{CmConn, CmListener, CmTransport};
use crate::tl::tcp::epoll::Epoll;
use crate::wire::address::WorkerAddress;
use crate::wire::cm_msg::{Hello, NUMBER_BITS};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// What the epoll set calls the timer: no token of an entry.
const TIMER: u64 = 0;

/// Whom to tell of a client.
#[derive(Clone, Copy)]
pub enum ConnHandler {
    /// The request, to be answered some time.
    Request(ucp_listener_conn_handler_t),
    /// An endpoint, accepted at once.
    Accepted(ucp_listener_accept_handler_t),
}

/// Handed out as `ucp_listener_h`.
pub struct Listener {
    pub worker: *const Worker,
    /// What the worker's exchange calls it.
    pub token: u64,
    /// Where it listens.
    pub address: SocketAddr,
}

/// A client that waits for an answer: behind the number that is handed out as `ucp_conn_request_h`.
pub struct ConnRequest {
    /// Whose listener it came to.
    pub worker: *const Worker,
    pub contact: CmConn,
    pub hello: Hello,
    /// The client's worker.
    pub address: WorkerAddress,
    /// The client's end of the connection.
    pub remote: SocketAddr,
}

/// The requests that the program holds, and the last number given out: a request is asked about without naming a
/// worker, and answered by any worker of its context.
static REQUESTS: Mutex<(usize, BTreeMap<usize, ConnRequest>)> = Mutex::new((0, BTreeMap::new()));

/// A connection between a client and a server, at either end.
pub struct CmSession {
    /// Null after its endpoint was closed.
    pub ep: *mut Endpoint,
    /// The endpoint's close in order, while it has not ended.
    pub closing: Option<FlushClose>,
    pub state: SessionState,
    /// None when it has ended; the addresses are still asked for.
    pub contact: Option<CmConn>,
    /// A client's ways that were not tried yet, best first.
    pub ways: Vec<CmTransport>,
    /// Where a client wants to come from.
    pub from: Option<SocketAddr>,
    pub local: Option<SocketAddr>,
    pub remote: SocketAddr,
    /// Its endpoint's memory is another's by now.
    pub freed: bool,
    /// Of the client's endpoint.
    pub number: u32,
    /// By which the client knows messages of the server's before the answer has come.
    pub secret: u64,
    /// How a client's endpoint handles errors.
    pub err_mode: u8,
    /// The number of a client's worker as the server hears of it, 0 if it is not to.
    pub client_id: u64,
    /// What an incomplete answer has so far.
    pub buffer: Vec<u8>,
    /// What the client's endpoint leads to until the server is known.
    pub stub: Option<Arc<Peer>>,
}

/// A flushing close of a session's endpoint. It ends when what was sent before is flushed and the other end has
/// answered.
pub struct FlushClose {
    /// The user's; in no other list.
    pub request: *mut Request,
    pub flushed: bool,
    /// `None` as long as the other end has not answered.
    pub answer: Option<ucs_status_t>,
}

/// How far a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// The client connects.
    Dialing,
    /// The client has asked and waits.
    Asked,
    /// Both sides know each other.
    Open,
    /// The other end has said farewell, and this end has not answered.
    Left,
    /// This end has said farewell in order, and waits for the answer.
    FlushClose,
    /// It is over.
    Ended,
}

/// Something that a worker's exchange watches.
pub enum CmEntry {
    Listener {
        door: CmListener,
        handler: ConnHandler,
    },
    /// Somebody who has connected to a listener and not said everything yet.
    HalfOpen(HalfOpen),
    CmSession(Box<CmSession>),
}

/// Somebody of whom only a part of what he has to say is known.
pub struct HalfOpen {
    pub contact: CmConn,
    /// The listener's token.
    pub listener: u64,
    /// Until when he may speak, coarse milliseconds.
    pub until: u64,
    pub buffer: Vec<u8>,
}

/// A client whose listener's handler is due.
pub struct PendingAccept {
    pub listener: u64,
    pub request: ConnRequest,
}

/// Everything of a worker that has to do with clients and servers. Made by the first of them.
pub struct CmState {
    pub epoll: Epoll,
    pub entries: HashMap<u64, CmEntry>,
    last: u64,
    /// Guests, oldest first.
    pub half_open: VecDeque<u64>,
    pub due: VecDeque<PendingAccept>,
    /// Clients' attempts that others may follow, by the time when they do (coarse milliseconds), soonest first.
    pub attempts: VecDeque<(u64, u64)>,
    /// A descriptor was found ready when the worker wanted to sleep.
    pub urgent: bool,
    /// Sessions that wait for the other end: they are not open yet, or close.
    pub pending_closes: usize,
    /// Of the next endpoint.
    next_number: u32,
    /// Placeholders that are not needed any more, by their session's token: who sends through the endpoint, or closes
    /// it, may have read in another thread that it leads there.
    replaced: HashMap<u64, Arc<Peer>>,
    /// Those of endpoints that are gone; requests or lists may still name them.
    deferred: Vec<Arc<Peer>>,
    /// How often servers that have not answered are probed, and when that was last, milliseconds.
    keepalive: u64,
    probed: u64,
    /// Wakes a sleeping worker when somebody's time is up; made when that matters first.
    alarm: EpollTimer,
}

impl CmState {
    /// An empty one. `keepalive`: milliseconds between two looks whether a server's host is still there.
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
            pending_closes: 0,
            next_number: 0,
            replaced: HashMap::new(),
            deferred: Vec::new(),
            keepalive,
            probed: clock::coarse_ms(),
            alarm: EpollTimer::new(TIMER),
        })
    }

    /// A token that was never used. Never 0: that is an endpoint without session.
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

    /// The worker goes to sleep: it is woken when somebody's time is up. False if that is due, or cannot be.
    pub fn sleep_until_due(&mut self) -> bool {
        let at = self.sleep_limit();
        self.alarm.wake(&self.epoll, at)
    }

    /// The timer has run out: the epoll set is quiet again.
    pub fn timer_rang(&self) {
        self.alarm.drain();
    }

    /// When the time is up of the first who has not said who he is, or of an attempt, by the coarse clock.
    fn sleep_limit(&self) -> Option<u64> {
        let guest = match self
            .half_open
            .front()
            .and_then(|guest| self.entries.get(guest))
        {
            Some(CmEntry::HalfOpen(guest)) => Some(guest.until),
            _ => None,
        };
        let attempt = self.attempts.front().map(|&(until, _)| until);
        let probe = (self.pending_closes > 0).then(|| self.probed.saturating_add(self.keepalive));
        let times = guest.into_iter().chain(attempt);
        times.chain(probe.filter(|&at| at != u64::MAX)).min()
    }

    /// Probes the other ends that sessions wait for, if it is time. What connects the two afterwards is looked after by
    /// itself.
    pub fn probe(&mut self) {
        if self.pending_closes == 0 {
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

    /// Whether something is under way that should not wait for the next look at the clock.
    pub fn is_busy(&self) -> bool {
        self.urgent || self.pending_closes > 0 || !self.half_open.is_empty() || !self.due.is_empty()
    }

    /// Takes a session's placeholder, which is not needed any more.
    pub fn retire(&mut self, token: u64, peer: Arc<Peer>) {
        if self.session(token).is_some_and(|s| s.freed) {
            self.deferred.push(peer);
        } else {
            self.replaced.insert(token, peer);
        }
    }

    /// The endpoint of a session is gone. Frees the placeholders that nothing names.
    pub fn endpoint_freed(&mut self, token: u64, lost: &[*const Peer]) {
        if let Some(session) = self.session(token) {
            session.freed = true;
        }
        self.deferred.extend(self.replaced.remove(&token));
        let named = |p: &Peer| {
            let tx = p.tx.lock();
            tx.in_pending_list || !tx.pending.is_empty() || lost.iter().any(|&l| std::ptr::eq(l, p))
        };
        self.deferred
            .retain(|p| named(p) || !p.eps.lock().all().is_empty());
    }

    /// The placeholders that there are.
    pub fn stub_peers(&self) -> impl Iterator<Item = &Arc<Peer>> {
        let waiting = self.entries.values().filter_map(|entry| match entry {
            CmEntry::CmSession(session) => session.stub.as_ref(),
            _ => None,
        });
        waiting.chain(self.replaced.values()).chain(&self.deferred)
    }
}

impl ConnRequest {
    /// What a fork waits for.
    pub fn lock_to_watch() -> &'static Lock {
        REQUESTS.lock_to_watch()
    }

    /// Keeps a request until it is answered; the number is its handle.
    pub fn keep(self) -> usize {
        let (last, requests) = &mut *REQUESTS.lock();
        *last += 1;
        requests.insert(*last, self);
        *last
    }

    /// Takes a request out, unless it was answered before.
    pub fn take(handle: usize) -> Option<ConnRequest> {
        REQUESTS.lock().1.remove(&handle)
    }

    /// Looks at a request.
    pub fn with<R>(handle: usize, look: impl FnOnce(&ConnRequest) -> R) -> Option<R> {
        REQUESTS.lock().1.get(&handle).map(look)
    }

    /// Takes out all that came to a worker's listeners.
    pub fn take_all(worker: *const Worker) -> Vec<ConnRequest> {
        let requests = &mut REQUESTS.lock().1;
        let came_to = |r: &ConnRequest| std::ptr::eq(r.worker, worker);
        let handles: Vec<usize> = (requests.iter())
            .filter(|(_, request)| came_to(request))
            .map(|(&handle, _)| handle)
            .collect();
        let all = handles.iter().filter_map(|handle| requests.remove(handle));
        all.collect()
    }
}

// SAFETY: the pointer to the worker is only compared; everything else may move between threads.
unsafe impl Send for ConnRequest {}
