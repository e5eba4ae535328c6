//! What only the progress thread of a worker touches.

use crate::engine::pointers::PeerRef;
use crate::engine::probe_state::ProbeState;
use crate::engine::progress_trace::ProgressTrace;
use crate::engine::waits::WaitBook;
use crate::engine::yield_policy::{BacklogYield, CasBackoff, IdleYield};
use crate::sys::{clock, trace};
use crate::tl::TlRx;

/// Rings to peers that are given back because they are not used.
pub struct UnusedRings {
    /// Coarse milliseconds when they were last looked for.
    pub last_round: u64,
    /// Peers may agree to close some.
    pub has_offers: bool,
}

/// State of the progress thread: interfaces and idle time. What each call of progress reads comes first.
#[repr(C)]
pub struct Rx {
    /// Progress calls until the clock is read again.
    pub calls: u32,
    /// Progress calls between the last two clock ticks.
    pub clock_interval: u32,
    /// What the transports keep here.
    pub tl: TlRx<PeerRef>,
    /// Coarse milliseconds of the last clock tick.
    pub last_tick: u64,
    /// Coarse milliseconds when finished rings were last freed, and peers released.
    pub last_failure_check: u64,
    pub unused_rings: UnusedRings,
    pub liveness: ProbeState,
    pub waits: Box<WaitBook>,
    /// Count of events, without messages of rings on the fast path.
    pub events: u64,
    /// Milliseconds since the last clock tick in which other threads had the core.
    pub yielded_ms: u64,
    pub idle_yield: IdleYield,
    pub backlog_yield: BacklogYield,
    pub contention: CasBackoff,
    /// What the timeline needs of the last call of progress, where it is recorded.
    pub trace: Option<Box<ProgressTrace>>,
}

impl Rx {
    /// The next read of the clock checks all peers.
    pub fn check_peers_now(&mut self) {
        self.last_failure_check = 0;
        self.liveness.next_round = 0;
    }

    /// The state of a worker that has not received anything.
    pub(super) fn new(tl: TlRx<PeerRef>) -> Rx {
        Rx {
            tl,
            calls: 1,
            clock_interval: 1,
            last_tick: 0,
            last_failure_check: 0,
            unused_rings: UnusedRings {
                last_round: clock::coarse_ms(),
                has_offers: false,
            },
            liveness: ProbeState::default(),
            waits: Box::default(),
            events: 0,
            yielded_ms: 0,
            idle_yield: IdleYield::default(),
            backlog_yield: BacklogYield::default(),
            contention: CasBackoff::default(),
            trace: trace::is_on().then(Box::default),
        }
    }
}
