//! What a transport calls in the layer above: the upward half of the contract. docs/TRANSPORTS.md explains both halves.

use super::payload::{PartialRecord, PayloadMem, PayloadPlace};
use super::rail_event::RailEvent;
use super::tcp::TcpTarget;
use super::{CmaPeer, IfaceKind, InboxLocator, Lane, LaneTarget, Message, Token};
use crate::ctypes::ucs_status_t;
use crate::wire::header::Kind;
use std::fmt;

/// What the layer above knows of a peer.
#[derive(Clone, Copy, Debug)]
pub struct PeerState {
    /// An endpoint watches for the peer's death.
    pub watches_death: bool,
    /// An endpoint to the peer is open.
    pub has_endpoint: bool,
    pub has_lane: bool,
    /// Messages to it go by shared memory.
    pub uses_inbox: bool,
    /// A lane is requested, and not up yet.
    pub is_connecting: bool,
    /// An endpoint, a call or a request that waits for room needs the peer.
    pub is_wanted: bool,
    /// Requests wait for room, which may never come if the peer has ended.
    pub has_pending: bool,
}

impl PeerState {
    /// Whether there is a lane, or will be one.
    pub fn is_connected(self) -> bool {
        self.has_lane || self.is_connecting
    }

    /// Whether the peer of an open connection is probed at the end of a keepalive interval: if an endpoint watches for
    /// its death, if there is no endpoint that would notice it, or if requests waited for room at the end of the last
    /// interval, too, because then nothing is sent that would fail. `has_waited`: whether they did; updated.
    pub fn is_probed(self, has_waited: &mut bool) -> bool {
        let is_stalled = std::mem::replace(has_waited, self.has_pending) && self.has_pending;
        self.watches_death || !self.has_endpoint || is_stalled
    }
}

/// How a transport connects to a peer.
#[derive(Clone, Debug)]
pub struct PeerContact {
    pub uid: u64,
    /// Earlier peers with this uid that have failed.
    pub losses: u32,
    pub target: Option<LaneTarget>,
    /// Where its TCP connections are accepted if they carry its messages in place of another transport.
    pub fallback: Option<TcpTarget>,
    /// The connection has to outlive the failure of a port.
    pub fails_over: bool,
}

impl PeerContact {
    /// Where the peer accepts the TCP connection that is to carry its messages, if one is.
    pub fn socket_target(self) -> Option<TcpTarget> {
        match self.target {
            Some(LaneTarget::Tcp(target)) => Some(target),
            _ => self.fallback,
        }
    }
}

/// A part of a transfer that a device has not moved before it failed.
#[derive(Clone, Copy, Debug)]
pub struct LostPart {
    pub token: Token,
    /// The part's first byte in the memory of this process.
    pub addr: u64,
    /// Bytes.
    pub len: usize,
}

/// Operations of a lane that have completed, until [`finish`](Self::finish) reports them.
pub trait Completions: Default {
    /// Adds one, under the lock of the peer whose lane it is.
    ///
    /// The token came with an operation that the lane has not reported yet, and that was not taken back.
    fn add(&mut self, token: Token);

    /// Reports them to the layer above, without a lock.
    fn finish(self);
}

/// The layer above, as a transport's progress sees it: one value for all peers of a worker. It is implemented once, and
/// every function of a transport that calls it is generic over it: nothing is called through a table.
///
/// The thread that progresses the worker calls these functions, with no lock of a peer and no lock of the transport.
/// Callbacks of the user run in [`deliver_short`](Self::deliver_short), [`deliver`](Self::deliver),
/// [`placed`](Self::placed), [`deliver_part`](Self::deliver_part), [`completed`](Self::completed) and
/// [`flushed`](Self::flushed) alone. A callback may fork: in the child the transport touches its device no more
/// ([`is_inherited`](Self::is_inherited)).
pub trait Sink: Copy {
    /// Names a peer. The layer above frees no peer that a connection or an incoming ring of the transport has, and none
    /// while the transport's progress runs.
    type Peer: Copy + Eq;
    /// Collects operations that complete while a lane is locked.
    type Completions: Completions;
    /// The same for code off the hot path, of which one copy is enough.
    type Cold: Sink<Peer = Self::Peer>;

    /// The same, without [`deliver_short`](Self::deliver_short).
    fn cold(self) -> Self::Cold;

    /// Holds memory for payload ([`PayloadMem`]).
    type Hold;

    /// Handles a message of one of the frequent kinds. False: it is of another kind, and nothing was done.
    fn deliver_short(self, peer: Self::Peer, m: Message) -> bool;

    /// Handles a message. False: it was malformed, for which the peer has failed.
    ///
    /// # Safety
    /// The record of `m` is readable during the call.
    unsafe fn deliver(self, peer: Self::Peer, m: &Message) -> bool;

    /// Handles the immediate of a write of `len` bytes by the peer's device.
    fn deliver_imm(self, peer: Self::Peer, imm: u32, len: usize);
    /// How the payload of a long record is received that has not arrived yet. Memory in the answer is given back before
    /// the transport calls another function.
    fn place(self, peer: Self::Peer, record: &PartialRecord) -> PayloadPlace<Self::Hold>;

    /// Payload has arrived: the first `len` bytes of `memory` were written. Memory that is dropped without this call
    /// has received nothing.
    fn placed(self, memory: PayloadMem<Self::Hold>, len: usize);

    /// Handles the next bytes of the payload of a long record.
    fn deliver_part(self, peer: Self::Peer, record: &mut PartialRecord, bytes: &[u8]);

    /// All payload of a long record has arrived: [`placed`](Self::placed) or [`deliver_part`](Self::deliver_part) was
    /// called for its last bytes.
    fn delivered(self, peer: Self::Peer, record: &PartialRecord);

    /// The peer has sent malformed data: it fails.
    fn malformed(self, peer: Self::Peer, what: &str);

    /// An operation of this token has completed; `well`: without an error. An error is that of the operation: the
    /// peer does not fail for it.
    ///
    /// # Safety
    /// A lane got the token with an operation that it has not reported yet, and that was not taken back.
    unsafe fn completed(self, token: Token, well: bool);

    /// The flush with this token has nothing left to wait for in the transport.
    ///
    /// # Safety
    /// As for [`completed`](Self::completed); the token was that of a flush.
    unsafe fn flushed(self, token: Token);

    /// [`completed`](Self::completed) without an error, of the only operation of its request.
    ///
    /// # Safety
    /// As for [`completed`](Self::completed); single-thread mode.
    unsafe fn completed_alone(self, token: Token);

    /// Whether peers wait for a connection by the interface of this kind, or rails for work.
    fn has_connects(self, kind: IfaceKind) -> bool;

    /// Takes the peers to which the interface of this kind is to connect.
    fn take_connects(self, kind: IfaceKind) -> impl Iterator<Item = Self::Peer>;

    /// Takes the work for rails to peers. Called after [`take_connects`](Self::take_connects).
    fn take_rail_events(self) -> impl Iterator<Item = (Self::Peer, RailEvent)>;

    /// Has progress poll the interface of this kind in each call, or, if `polled` is false, only when there is
    /// something to connect, or the clock has advanced.
    fn set_polled(self, kind: IfaceKind, polled: bool);

    /// Queues the parts that `lost` returns before all requests that wait for the lane. It is called under the peer's
    /// lock.
    fn repost(self, peer: Self::Peer, lost: impl FnOnce(&mut Lane) -> Vec<LostPart>);

    /// Sends a control message before the requests that wait for the lane.
    fn send_control(self, peer: Self::Peer, kind: Kind, imm: u64, body: &[u8]);

    /// The lane to a peer has room again. Whether requests wait for it: the layer above posts them.
    fn pending_room(self, peer: Self::Peer) -> bool;

    /// The peer with this uid, made if it is new, which is at `target`. `None`: it is known to be another process.
    fn peer(self, uid: u64, target: LaneTarget) -> Option<Self::Peer>;

    /// The peer with this uid, made if it is new, which has this inbox. `None`: it is known to be another process.
    fn local_peer(self, uid: u64, inbox: InboxLocator) -> Option<Self::Peer>;

    /// The peer with this uid, made if it is new, of which a connection is all that is known.
    fn incoming_peer(self, uid: u64) -> Self::Peer;

    /// The uid of a peer.
    fn uid(self, peer: Self::Peer) -> u64;

    /// How to connect to a peer.
    fn contact(self, peer: Self::Peer) -> PeerContact;

    /// Prefetches what [`local_peer`](Self::local_peer) and the connection of a ring read of a peer that may be known.
    fn prefetch_peer(self, uid: u64);

    /// What is known of a peer. Takes its locks: for rare events.
    fn state(self, peer: Self::Peer) -> PeerState;

    /// Whether an endpoint watches for the peer's death.
    fn watches_death(self, peer: Self::Peer) -> bool;

    /// Whether a peer on this host is dead: its process or its worker has ended. Costs system calls.
    fn is_dead(self, peer: Self::Peer) -> bool;

    /// Whether the worker of a peer on this host, which has closed its ring, was destroyed. Costs no system call where
    /// there is a lane to it.
    fn was_destroyed(self, peer: Self::Peer) -> bool;

    /// Whether a peer has failed.
    fn has_failed(self, peer: Self::Peer) -> bool;

    /// Bytes of the longest record that the layer above sends.
    fn longest_record(self) -> usize;

    /// The lane to a peer goes through the transport's device with this index from now on.
    fn note_device(self, peer: Self::Peer, index: usize);

    /// The connection to a peer outlives the failure of a port.
    fn note_failover(self, peer: Self::Peer);

    /// The lane to a peer is up, through the transport's device with this index.
    ///
    /// # Errors
    /// The lane: there is one already, or messages to the peer go by shared memory.
    fn lane_up(self, peer: Self::Peer, lane: Lane, device: Option<usize>) -> Result<(), Lane>;

    /// A peer cannot be reached any more, or has closed: it fails, unless it has failed before.
    fn lane_down(self, peer: Self::Peer, status: ucs_status_t);

    /// [`lane_down`](Self::lane_down) for a cause that the user may remove. `reason`: for the user, with what to do.
    fn lane_lost(self, peer: Self::Peer, reason: fmt::Arguments<'_>, status: ucs_status_t);

    /// No connection to a peer can be made: it fails, unless it has failed before. `reason`: for the user, with what to
    /// do.
    fn unreachable(self, peer: Self::Peer, reason: fmt::Arguments<'_>);

    /// The network of a peer's target cannot connect to it: sockets do, if they lead there. `reason`: why the network
    /// cannot. False: they do not. No lane was up.
    fn fall_back(self, peer: Self::Peer, reason: &str) -> bool;

    /// The interface can receive nothing any more: all peers fail for which `reaches` is true of their target.
    fn iface_down(self, reaches: fn(&LaneTarget) -> bool, status: ucs_status_t);

    /// A peer can send to this worker from now on.
    fn incoming_up(self, peer: Self::Peer);

    /// A peer cannot send to this worker, or does not any more: it is freed if nothing else needs it.
    fn incoming_refused(self, peer: Self::Peer);

    /// Calls `act` with what copies from and to memory of the peer need.
    fn with_cma<R>(self, peer: Self::Peer, act: impl FnOnce(CmaPeer<'_>) -> R) -> R;

    /// Memory through which this process and the peer share a copy is about to be freed: nothing in it is used any
    /// more.
    fn drop_split_writes(self, peer: Self::Peer);

    /// Calls `act` with the lane to a peer, under its lock. `None`: there is no lane.
    fn with_lane<R>(self, peer: Self::Peer, act: impl FnOnce(&mut Lane) -> R) -> Option<R>;

    /// [`with_lane`](Self::with_lane) without the lock.
    ///
    /// # Safety
    /// Single-thread mode, and no caller up the stack borrows the lane.
    unsafe fn with_lane_alone<R>(
        self,
        peer: Self::Peer,
        act: impl FnOnce(&mut Lane) -> R,
    ) -> Option<R>;

    /// Takes the lane to a peer if `which` is true of it. The caller drops it, without the peer's lock.
    fn take_lane(self, peer: Self::Peer, which: impl FnOnce(&Lane) -> bool) -> Option<Lane>;

    /// Whether the worker is that of a parent process: this is a forked child.
    fn is_inherited(self) -> bool;
}
