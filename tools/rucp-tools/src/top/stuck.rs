//! What has waited for long, for which peer and why: the workers' own rows, and what /proc and the peers' pages show of
//! the other end.

use crate::process::{self, ProcStat, RunState};
use crate::sample::{Sample, WorkerSample};
use std::collections::HashMap;
use std::time::Duration;
use ucp::sys::clock;
use ucp::wire::waits::{WaitCause, WaitOp, WaitRow, WaitSnapshot};

/// Milliseconds after which a worker that has not noted progress makes none: it notes it every 200 ms, and needs a
/// core.
const PROGRESS_MS: u64 = 1500;
/// Time between two looks at a process that show whether it runs.
const BETWEEN: Duration = Duration::from_millis(150);

/// Why an operation waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The process itself is stopped.
    Stopped,
    /// The process itself calls no progress and sleeps elsewhere.
    Blocked,
    PeerStopped,
    PeerGone,
    /// The peer's process calls no progress.
    PeerIdle,
    /// The peer's process has no descriptor for a connection.
    NoDescriptors,
    /// As the worker says.
    Waits(WaitCause),
}

impl Verdict {
    fn of(cause: WaitCause) -> Verdict {
        Verdict::Waits(cause)
    }

    /// The name of the cause.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Stopped => "stopped",
            Verdict::Blocked => "blocked elsewhere",
            Verdict::PeerStopped => "peer stopped",
            Verdict::PeerGone => "peer gone",
            Verdict::PeerIdle => "peer makes no progress",
            Verdict::NoDescriptors => "no descriptors",
            Verdict::Waits(cause) => cause.name(),
        }
    }
}

/// The other end of an operation that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherEnd {
    /// Uid of its worker; 0: not known.
    pub uid: u64,
    /// Its process; 0: not known, or on another host.
    pub pid: u32,
    pub command: String,
    /// Its network address, if that is used.
    pub place: String,
}

/// Something that waits, or operations that do for the same reason.
#[derive(Clone, Debug)]
pub struct StuckFinding {
    pub pid: u32,
    pub command: String,
    pub worker: u64,
    pub verdict: Verdict,
    /// The oldest operation; `None`: the process itself.
    pub operation: Option<WaitRow>,
    /// Operations that wait for the same reason.
    pub count: usize,
    pub seconds: f64,
    pub peer: OtherEnd,
    /// More about the reason, in words.
    pub detail: String,
}

/// All workers of this host, and their processes.
pub struct Host {
    sample: Sample,
    processes: HashMap<u32, (ProcStat, ProcStat)>,
    now: u64,
    threshold: u64,
}

impl Host {
    /// Looks at all workers, and twice at their processes. `threshold`: milliseconds.
    pub fn look(threshold: u64) -> Host {
        let pids = |sample: &Sample| sample.workers.iter().map(|w| w.pid).collect::<Vec<_>>();
        let before = pids(&Sample::take(None));
        let before: HashMap<_, _> = before.into_iter().map(|p| (p, ProcStat::look(p))).collect();
        std::thread::sleep(BETWEEN);
        let sample = Sample::take(None);
        let processes = pids(&sample).into_iter().map(|pid| {
            let now = ProcStat::look(pid);
            (pid, (before.get(&pid).copied().unwrap_or(now), now))
        });
        Host {
            processes: processes.collect(),
            sample,
            now: clock::coarse_ms(),
            threshold,
        }
    }

    /// Whether the process, or any, has a worker whose library says what it waits for.
    pub fn has_workers(&self, pid: Option<u32>) -> bool {
        let mut workers = self.sample.workers.iter();
        workers.any(|w| pid.is_none_or(|pid| w.pid == pid) && w.stats.waits.is_some())
    }

    /// What waits, in all processes or in one.
    pub fn findings(&self, pid: Option<u32>) -> Vec<StuckFinding> {
        let workers = self.sample.workers.iter();
        let workers = workers.filter(|w| pid.is_none_or(|pid| w.pid == pid));
        workers.flat_map(|worker| self.of_worker(worker)).collect()
    }

    fn of_worker(&self, worker: &WorkerSample) -> Vec<StuckFinding> {
        let Some(waits) = &worker.stats.waits else {
            return Vec::new();
        };
        let silent = self.now.saturating_sub(waits.progressed);
        let own = |verdict, detail| {
            let finding = StuckFinding {
                pid: worker.pid,
                command: worker.command.clone(),
                worker: worker.stats.uid,
                verdict,
                operation: None,
                count: 1,
                seconds: silent as f64 / 1e3,
                peer: OtherEnd::default(),
                detail,
            };
            vec![finding]
        };
        match self.state(worker.pid) {
            Some(RunState::Stopped) if silent >= self.threshold => {
                let detail = format!(
                    "its process is stopped by a signal or a debugger (kill -CONT {})",
                    worker.pid
                );
                own(Verdict::Stopped, detail)
            }
            Some(RunState::Stopped) => Vec::new(),
            _ if !self.is_silent(waits) => self.of_rows(worker, waits),
            // It may compute: its own requests wait for its next call.
            _ if self.runs(worker.pid) => Vec::new(),
            _ if waits.rows.is_empty() && worker.stats.requests == 0 => Vec::new(),
            _ => own(
                Verdict::Blocked,
                format!("it calls no progress: {}", self.activity(worker.pid)),
            ),
        }
    }

    /// Whether a worker should have progressed since it did: it calls no progress, and is not armed.
    fn is_silent(&self, waits: &WaitSnapshot) -> bool {
        let silent = self.now.saturating_sub(waits.progressed);
        waits.armed.is_none() && silent >= self.threshold.max(PROGRESS_MS)
    }

    fn state(&self, pid: u32) -> Option<RunState> {
        self.processes.get(&pid).map(|(_, now)| now.state)
    }

    /// Whether a process has a core.
    fn runs(&self, pid: u32) -> bool {
        let seen = self.processes.get(&pid);
        seen.is_some_and(|(before, now)| {
            now.state == RunState::Running || before.ticks != now.ticks
        })
    }

    fn activity(&self, pid: u32) -> String {
        if self.runs(pid) {
            return "it runs on a core".into();
        }
        match process::sleeps_in(pid) {
            Some(name) => format!("it sleeps in {name}"),
            None => "it sleeps".into(),
        }
    }

    fn of_rows(&self, worker: &WorkerSample, waits: &WaitSnapshot) -> Vec<StuckFinding> {
        // The rows are true at the time of their walk, and until now if the worker was armed with it.
        let until = match waits.armed {
            Some(armed) if armed == waits.walked => self.now,
            _ => waits.walked,
        };
        let is_quiet = until.saturating_sub(waits.quiet) >= self.threshold;
        let mut found: Vec<StuckFinding> = Vec::new();
        for row in &waits.rows {
            let waited = until.saturating_sub(row.since);
            let is_unmatched = row.cause == WaitCause::Unmatched;
            // A receive is often posted long before its message is due: that is a wait where nothing else happens.
            if waited < self.threshold || is_unmatched && !is_quiet {
                continue;
            }
            let finding = self.of_row(worker, waits, row, waited);
            let same = found.iter_mut().find(|other| {
                other.verdict == finding.verdict
                    && other.peer == finding.peer
                    && other.operation.as_ref().map(|row| row.op) == Some(row.op)
            });
            match same {
                Some(other) => other.count += 1,
                None => found.push(finding),
            }
        }
        found
    }

    fn of_row(
        &self,
        worker: &WorkerSample,
        waits: &WaitSnapshot,
        row: &WaitRow,
        waited: u64,
    ) -> StuckFinding {
        let (verdict, peer, detail) =
            if row.cause == WaitCause::Unmatched && row.op != WaitOp::StreamRecv {
                self.of_unmatched(worker, waits)
            } else {
                self.of_peer(worker, row)
            };
        StuckFinding {
            pid: worker.pid,
            command: worker.command.clone(),
            worker: worker.stats.uid,
            verdict,
            operation: Some(row.clone()),
            count: 1,
            seconds: waited as f64 / 1e3,
            peer,
            detail,
        }
    }

    /// An operation whose peer is known.
    fn of_peer(&self, worker: &WorkerSample, row: &WaitRow) -> (Verdict, OtherEnd, String) {
        let there = self.worker(row.peer);
        let pid = there.map_or(row.pid, |there| there.pid);
        let peer = OtherEnd {
            uid: row.peer,
            pid,
            command: there.map_or_else(String::new, |there| there.command.clone()),
            place: row.place.clone(),
        };
        if let Some((verdict, detail)) = self.failing(row.peer, row.pid) {
            return (verdict, peer, detail);
        }
        if row.cause == WaitCause::Unconnected {
            let lacking = [pid, worker.pid]
                .into_iter()
                .find(|&pid| pid != 0 && process::lacks_descriptors(pid));
            if let Some(pid) = lacking {
                let detail =
                    format!("process {pid} has no descriptor left for a connection (ulimit -n)");
                return (Verdict::NoDescriptors, peer, detail);
            }
        }
        (Verdict::of(row.cause), peer, detail_of(row).into())
    }

    /// Why a peer does not answer, if its process shows it.
    fn failing(&self, uid: u64, pid: u32) -> Option<(Verdict, String)> {
        if let Some(there) = self.worker(uid) {
            let pid = there.pid;
            return match self.state(pid)? {
                RunState::Stopped => Some(stopped(pid)),
                RunState::Gone => Some((Verdict::PeerGone, format!("process {pid} has ended"))),
                _ if there
                    .stats
                    .waits
                    .as_ref()
                    .is_some_and(|waits| self.is_silent(waits)) =>
                {
                    let silent = there
                        .stats
                        .waits
                        .as_ref()
                        .map_or(0, |w| self.now.saturating_sub(w.progressed));
                    let does = self.activity(pid);
                    let detail = format!(
                        "process {pid} has called no progress for {:.0} s: {does}",
                        silent as f64 / 1e3
                    );
                    Some((Verdict::PeerIdle, detail))
                }
                _ => None,
            };
        }
        // Its page is not visible: it is another user's, in another namespace, or was destroyed.
        match ProcStat::look(pid).state {
            _ if pid == 0 => None,
            RunState::Stopped => Some(stopped(pid)),
            RunState::Gone => Some((Verdict::PeerGone, format!("process {pid} has ended"))),
            _ => None,
        }
    }

    /// A receive that no message has matched: it names no peer, so that all are looked at.
    fn of_unmatched(
        &self,
        worker: &WorkerSample,
        waits: &WaitSnapshot,
    ) -> (Verdict, OtherEnd, String) {
        let others = worker.stats.peers.iter();
        let others = others.filter(|peer| !peer.is_rest && peer.uid != worker.stats.uid);
        let mut all = 0;
        let mut idle = None;
        let mut idle_count = 0;
        for other in others {
            all += 1;
            let failing = match other.failed {
                true => Some((
                    Verdict::PeerGone,
                    "the connection to it has failed".to_owned(),
                )),
                false => self.failing(other.uid, other.pid),
            };
            let Some((verdict, detail)) = failing else {
                continue;
            };
            let there = self.worker(other.uid);
            let end = OtherEnd {
                uid: other.uid,
                pid: there.map_or(other.pid, |there| there.pid),
                command: there.map_or_else(String::new, |there| there.command.clone()),
                place: String::new(),
            };
            match verdict {
                Verdict::PeerIdle => {
                    idle_count += 1;
                    idle.get_or_insert((verdict, end, detail));
                }
                _ => return (verdict, end, detail),
            }
        }
        if let Some(idle) = idle.filter(|_| idle_count == all) {
            return idle;
        }
        let mut detail = String::from("no message has come that it matches");
        if let Some((tag, since)) = waits.unexpected
            && self.now.saturating_sub(since) >= self.threshold
        {
            detail += &format!(
                "; {} that no receive matches wait, the first with tag {tag:#x}",
                worker.stats.unexpected
            );
        }
        (
            Verdict::of(WaitCause::Unmatched),
            OtherEnd::default(),
            detail,
        )
    }

    /// The worker with this uid, if its page is visible.
    fn worker(&self, uid: u64) -> Option<&WorkerSample> {
        let mut workers = self.sample.workers.iter();
        workers.find(|worker| uid != 0 && worker.stats.uid == uid)
    }
}

fn stopped(pid: u32) -> (Verdict, String) {
    let detail = format!("process {pid} is stopped by a signal or a debugger (kill -CONT {pid})");
    (Verdict::PeerStopped, detail)
}

/// What a row's cause means, where the peer's process shows nothing.
fn detail_of(row: &WaitRow) -> &'static str {
    match (row.cause, row.op) {
        (WaitCause::Unmatched, _) => "the peer has sent no data",
        (WaitCause::NoRoom, _) => "the peer does not take messages from its full ring or socket",
        (WaitCause::Unconnected, _) => {
            "no answer to the connect request: is the peer alive, and its network reachable?"
        }
        (WaitCause::NotReceived, WaitOp::AmSend) => {
            "the peer has not fetched the data of the active message"
        }
        (WaitCause::NotReceived, _) => "no receive at the peer matches",
        (WaitCause::Unanswered, _) => "the peer has not replied",
        (WaitCause::NoData, _) => "the sender's data do not come",
        (WaitCause::Closing, _) => "the peer has not closed its end",
    }
}
