//! What a worker remembers between its looks at whether its peers live. The progress thread's.

use super::peer::Peer;
use crate::sys::process_monitor::{ExitState, MonitoredProcess};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Peers by their identities: those of freed peers come from no other worker.
#[derive(Default)]
pub struct ProbeState {
    /// Whose processes are watched.
    watched: HashMap<u64, Arc<MonitoredProcess>>,
    /// Peers that were found dead and have messages in their rings.
    dying: HashSet<u64>,
    /// The last ones that were looked at in turn.
    pub turn: ProbeCursor,
    pub urgent_turn: ProbeCursor,
}

/// Where a round of looks goes on: behind the peer with this identity.
#[derive(Default)]
pub struct ProbeCursor(u64);

impl ProbeCursor {
    /// The next `count` of these, which are in the order of their identities.
    pub fn next<'a>(&mut self, peers: &[&'a Peer], count: usize) -> Vec<&'a Peer> {
        let start = peers.partition_point(|peer| peer.uid <= self.0);
        let round = peers[start..].iter().chain(&peers[..start]);
        let chosen: Vec<_> = round.take(count).copied().collect();
        if let Some(last) = chosen.last() {
            self.0 = last.uid;
        }
        chosen
    }
}

impl ProbeState {
    /// The process of a peer is watched.
    pub fn watch(&mut self, peer: &Peer, process: Arc<MonitoredProcess>) {
        self.watched.insert(peer.uid, process);
    }

    /// What is known of a peer's process; `Lost` if it is not watched.
    pub fn state(&self, peer: &Peer) -> ExitState {
        let watched = self.watched.get(&peer.uid);
        watched.map_or(ExitState::Lost, |watched| watched.state())
    }

    /// A look at a peer found this. One that died is looked at again until it is lost.
    pub fn looked(&mut self, peer: &Peer, is_dead: bool) {
        if is_dead {
            self.dying.insert(peer.uid);
        } else if self.state(peer) == ExitState::Exited
            && let Some(watched) = self.watched.remove(&peer.uid)
        {
            watched.refute();
        }
    }

    /// Whether a peer was found dead before.
    pub fn is_dying(&self, peer: &Peer) -> bool {
        self.dying.contains(&peer.uid)
    }

    /// Watches only those for which this is true.
    pub fn retain(&mut self, is_there: impl Fn(u64) -> bool) {
        self.watched.retain(|&uid, _| is_there(uid));
        self.dying.retain(|&uid| is_there(uid));
    }
}
