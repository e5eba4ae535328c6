//! State of a worker's liveness checks of its peers. The progress thread's.

use crate::sys::process_monitor::{ExitState, MonitoredProcess};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Peers by uid; the uid of a freed peer is not used by another worker.
#[derive(Default)]
pub struct ProbeState {
    /// Peers whose processes are watched.
    watched: HashMap<u64, Arc<MonitoredProcess>>,
    /// Peers that were found dead and have messages in their rings.
    dying: HashSet<u64>,
    /// Coarse milliseconds at which the next round is due.
    pub next_round: u64,
    /// The last peers that were checked in turn.
    pub turn: ProbeCursor,
    pub urgent_turn: ProbeCursor,
}

/// Where the next round of checks begins: behind the peer with this uid.
#[derive(Default)]
pub struct ProbeCursor(u64);

impl ProbeCursor {
    /// The next `count` of these peers, which are in order.
    pub fn next(&mut self, peers: &[u64], count: usize) -> Vec<u64> {
        let start = peers.partition_point(|&uid| uid <= self.0);
        let round = peers[start..].iter().chain(&peers[..start]);
        let chosen: Vec<_> = round.take(count).copied().collect();
        if let Some(&last) = chosen.last() {
            self.0 = last;
        }
        chosen
    }
}

impl ProbeState {
    /// Stores the process of a peer, which is watched now.
    pub fn watch(&mut self, uid: u64, process: Arc<MonitoredProcess>) {
        self.watched.insert(uid, process);
    }

    /// The state of a peer's process; `Lost` if it is not watched.
    pub fn state(&self, uid: u64) -> ExitState {
        if self.watched.is_empty() {
            return ExitState::Lost;
        }
        let watched = self.watched.get(&uid);
        watched.map_or(ExitState::Lost, |watched| watched.state())
    }

    /// Records the result of a check. A dead peer is checked again until it has failed.
    pub fn looked(&mut self, uid: u64, is_dead: bool) {
        if is_dead {
            self.dying.insert(uid);
        } else if self.state(uid) == ExitState::Exited
            && let Some(watched) = self.watched.remove(&uid)
        {
            watched.refute();
        }
    }

    /// Whether a peer was found dead before.
    pub fn is_dying(&self, uid: u64) -> bool {
        !self.dying.is_empty() && self.dying.contains(&uid)
    }

    /// Keeps the processes of peers for which the function returns true.
    pub fn retain(&mut self, is_there: impl Fn(u64) -> bool) {
        self.watched.retain(|&uid, _| is_there(uid));
        self.dying.retain(|&uid| is_there(uid));
    }
}
