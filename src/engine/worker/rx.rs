//! What only the progress thread of a worker touches.

use super::interfaces::Interfaces;
use crate::engine::probe_state::ProbeState;
use crate::engine::request::PeerRef;
use crate::engine::yield_policy::{BacklogYield, CasBackoff, IdleYield};
use crate::tl::TlRx;
use crate::tl::shm::inbox::Inbox;
use crate::tl::shm::order::Merge;
use crate::tl::shm::ring::Consumer;

/// Number of incoming rings that each progress call polls; the others are polled in turn.
pub const HOT_RINGS: usize = 8;

/// State of the progress thread: interfaces, incoming rings and idle time.
pub struct Rx {
    /// `None` where shared memory is not used.
    pub inbox: Option<Inbox>,
    pub shm_rings: Vec<Box<ShmRx>>,
    /// What the transports keep here.
    pub tl: TlRx<PeerRef>,
    /// Most messages of a ring that the next progress call handles: 1 after an idle call, at most 16.
    pub budget: u32,
    pub merge: Merge,
    /// Next ring, behind the hot ones, to be polled.
    pub cursor: usize,
    /// Progress calls until the clock is read again.
    pub calls: u32,
    /// Progress calls between the last two clock ticks.
    pub clock_interval: u32,
    /// Coarse milliseconds of the last clock tick.
    pub last_tick: u64,
    /// Coarse milliseconds of the last check of the peers.
    pub last_failure_check: u64,
    pub liveness: ProbeState,
    /// Count of events, without messages of rings on the fast path.
    pub events: u64,
    /// Milliseconds since the last clock tick in which other threads had the core.
    pub yielded_ms: u64,
    pub idle_yield: IdleYield,
    pub backlog_yield: BacklogYield,
    pub contention: CasBackoff,
}

/// An incoming ring.
pub struct ShmRx {
    pub consumer: Consumer,
    pub index: usize,
    pub peer: PeerRef,
}

impl Rx {
    /// The state of a worker that has not received anything.
    pub(super) fn new(interfaces: Interfaces) -> Rx {
        Rx {
            inbox: interfaces.inbox,
            shm_rings: Vec::new(),
            tl: interfaces.tl,
            budget: 1,
            merge: Merge::default(),
            cursor: 0,
            calls: 1,
            clock_interval: 1,
            last_tick: 0,
            last_failure_check: 0,
            liveness: ProbeState::default(),
            events: 0,
            yielded_ms: 0,
            idle_yield: IdleYield::default(),
            backlog_yield: BacklogYield::default(),
            contention: CasBackoff::default(),
        }
    }
}
