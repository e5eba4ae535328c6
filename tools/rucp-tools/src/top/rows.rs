//! Rows: a sample, and its difference from the one before, per worker, peer and lane.

use crate::sample::{Sample, WorkerSample};
use std::collections::HashMap;
use ucp::wire::stats::{MsgBytes, PeerStats, StatLane, StatProtocol};

/// Names of the protocols for users, in the order of the columns.
pub const PROTOCOLS: [&str; 6] = ["short", "eager", "rendezvous", "rma", "amo", "stream"];

/// Messages and bytes, since the beginning and per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    pub total: MsgBytes,
    /// 0 in a first sample.
    pub messages_per_s: f64,
    pub bytes_per_s: f64,
}

impl Traffic {
    fn add(&mut self, other: Traffic) {
        self.total.messages = self.total.messages.saturating_add(other.total.messages);
        self.total.bytes = self.total.bytes.saturating_add(other.total.bytes);
        self.messages_per_s += other.messages_per_s;
        self.bytes_per_s += other.bytes_per_s;
    }

    /// The difference from `before`. A counter that went backwards belongs to another worker, or is invalid.
    fn between(before: Option<MsgBytes>, now: MsgBytes, seconds: f64) -> Traffic {
        let rate = |from: u64, to: u64| {
            if seconds > 0.0 {
                to.saturating_sub(from) as f64 / seconds
            } else {
                0.0
            }
        };
        let from = before.unwrap_or(now);
        Traffic {
            total: now,
            messages_per_s: rate(from.messages, now.messages),
            bytes_per_s: rate(from.bytes, now.bytes),
        }
    }
}

/// One lane to one peer.
#[derive(Clone, Debug)]
pub struct LaneRow {
    pub lane: String,
    /// In the order of [`PROTOCOLS`].
    pub sent: [Traffic; PROTOCOLS.len()],
    pub all_sent: Traffic,
    /// Received, of any protocol: known for the lane of messages only.
    pub received: Option<Traffic>,
}

/// One peer.
#[derive(Clone, Debug)]
pub struct PeerRow {
    /// Sum of the peers without a row of their own.
    pub is_rest: bool,
    pub uid: u64,
    pub pid: u32,
    pub failed: bool,
    pub endpoints: u32,
    pub pending: u32,
    pub lanes: Vec<LaneRow>,
}

/// One worker.
#[derive(Clone, Debug)]
pub struct WorkerRow {
    pub pid: u32,
    pub command: String,
    pub uid: u64,
    pub name: String,
    pub context: String,
    pub unexpected: u64,
    pub unexpected_total: u64,
    pub requests: u64,
    pub pending: u64,
    pub sent: Traffic,
    pub received: Traffic,
    pub peers: Vec<PeerRow>,
}

/// The order of the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Order {
    Pid,
    Messages,
    Bytes,
    Unexpected,
    Pending,
}

/// The rows of a sample. `before`: the sample before, for the rates.
pub fn rows(before: Option<&Sample>, now: &Sample, order: Order) -> Vec<WorkerRow> {
    let seconds = before.map_or(0.0, |b| now.at.duration_since(b.at).as_secs_f64());
    let old: HashMap<u64, &WorkerSample> = before
        .iter()
        .flat_map(|sample| &sample.workers)
        .map(|worker| (worker.stats.uid, worker))
        .collect();
    let workers = now.workers.iter();
    let mut rows: Vec<WorkerRow> = workers
        .map(|worker| worker_row(old.get(&worker.stats.uid).copied(), worker, seconds))
        .collect();
    let rate = |a: &WorkerRow, b: &WorkerRow, of: fn(&Traffic) -> f64| {
        let sum = |row: &WorkerRow| of(&row.sent) + of(&row.received);
        sum(b).total_cmp(&sum(a))
    };
    // Stable: equal ones stay in the order of their processes.
    match order {
        Order::Pid => {}
        Order::Messages => rows.sort_by(|a, b| rate(a, b, |flow| flow.messages_per_s)),
        Order::Bytes => rows.sort_by(|a, b| rate(a, b, |flow| flow.bytes_per_s)),
        Order::Unexpected => rows.sort_by_key(|row| std::cmp::Reverse(row.unexpected)),
        Order::Pending => rows.sort_by_key(|row| std::cmp::Reverse(row.pending)),
    }
    rows
}

fn worker_row(before: Option<&WorkerSample>, now: &WorkerSample, seconds: f64) -> WorkerRow {
    let old: HashMap<(bool, u64), &PeerStats> = before
        .iter()
        .flat_map(|worker| &worker.stats.peers)
        .map(|peer| ((peer.is_rest, peer.uid), peer))
        .collect();
    let stats = &now.stats;
    let peers: Vec<PeerRow> = stats
        .peers
        .iter()
        .map(|peer| peer_row(old.get(&(peer.is_rest, peer.uid)).copied(), peer, seconds))
        .collect();
    let (mut sent, mut received) = (Traffic::default(), Traffic::default());
    for lane in peers.iter().flat_map(|peer| &peer.lanes) {
        sent.add(lane.all_sent);
        received.add(lane.received.unwrap_or_default());
    }
    WorkerRow {
        pid: now.pid,
        command: now.command.clone(),
        uid: stats.uid,
        name: stats.name.clone(),
        context: stats.context.clone(),
        unexpected: stats.unexpected,
        unexpected_total: stats.unexpected_total,
        requests: stats.requests,
        pending: peers.iter().map(|peer| u64::from(peer.pending)).sum(),
        sent,
        received,
        peers,
    }
}

fn peer_row(before: Option<&PeerStats>, now: &PeerStats, seconds: f64) -> PeerRow {
    let carriers = [StatLane::Messages, StatLane::Copy, StatLane::Mapped];
    let mut lanes: Vec<LaneRow> = Vec::new();
    for carrier in carriers {
        let row = lane_row(before, now, carrier, seconds);
        let used = row.all_sent.total != MsgBytes::default();
        match lanes.iter_mut().find(|other| other.lane == row.lane) {
            // The lane of messages copies, too, where no other lane can.
            Some(other) => merge(other, &row),
            None if used || carrier == StatLane::Messages => lanes.push(row),
            None => {}
        }
    }
    PeerRow {
        is_rest: now.is_rest,
        uid: now.uid,
        pid: now.pid,
        failed: now.failed,
        endpoints: now.endpoints,
        pending: now.pending,
        lanes,
    }
}

fn lane_row(
    before: Option<&PeerStats>,
    now: &PeerStats,
    carrier: StatLane,
    seconds: f64,
) -> LaneRow {
    let mut sent = [Traffic::default(); PROTOCOLS.len()];
    let mut all_sent = Traffic::default();
    for protocol in StatProtocol::ALL
        .into_iter()
        .filter(|p| p.carrier() == carrier)
    {
        let place = protocol as usize;
        let flow = Traffic::between(before.map(|b| b.sent[place]), now.sent[place], seconds);
        if let Some(column) = PROTOCOLS.iter().position(|name| *name == protocol.name()) {
            sent[column].add(flow);
        }
        all_sent.add(flow);
    }
    LaneRow {
        lane: now.lane(carrier).to_owned(),
        sent,
        all_sent,
        received: (carrier == StatLane::Messages)
            .then(|| Traffic::between(before.map(|b| b.received), now.received, seconds)),
    }
}

fn merge(into: &mut LaneRow, other: &LaneRow) {
    for (flow, more) in into.sent.iter_mut().zip(other.sent) {
        flow.add(more);
    }
    into.all_sent.add(other.all_sent);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};
    use ucp::wire::stats::WorkerStats;

    fn sample(at: Instant, short: MsgBytes, copied: MsgBytes) -> Sample {
        let mut sent = [MsgBytes::default(); StatProtocol::ALL.len()];
        sent[StatProtocol::Short as usize] = short;
        sent[StatProtocol::RndvCopy as usize] = copied;
        let peer = PeerStats {
            is_rest: false,
            failed: false,
            pid: 2,
            uid: 22,
            endpoints: 1,
            pending: 3,
            lanes: ["posix/memory".into(), "cma/memory".into()],
            received: MsgBytes {
                messages: short.messages,
                bytes: 1,
            },
            sent,
        };
        let stats = WorkerStats {
            pid: 1,
            uid: 11,
            name: String::new(),
            context: String::new(),
            thread_mode: 0,
            unexpected: 0,
            unexpected_total: 0,
            requests: 0,
            waits: None,
            peers: vec![peer],
        };
        let worker = WorkerSample {
            pid: 1,
            command: "x".into(),
            stats,
        };
        Sample {
            at,
            workers: vec![worker],
        }
    }

    fn tally(messages: u64, bytes: u64) -> MsgBytes {
        MsgBytes { messages, bytes }
    }

    #[test]
    fn rates_are_differences_over_time() {
        let start = Instant::now();
        let first = sample(start, tally(10, 80), MsgBytes::default());
        let second = sample(
            start + Duration::from_secs(2),
            tally(30, 240),
            tally(1, 1 << 20),
        );
        let rows = rows(Some(&first), &second, Order::Pid);
        let lanes = &rows[0].peers[0].lanes;
        assert_eq!(lanes.len(), 2, "a lane for messages, one for copies");
        assert_eq!(lanes[0].sent[0].messages_per_s, 10.0);
        assert_eq!(lanes[0].sent[0].bytes_per_s, 80.0);
        assert_eq!(lanes[1].lane, "cma/memory");
        assert_eq!(lanes[1].sent[2].bytes_per_s, (1 << 19) as f64);
        assert_eq!(rows[0].sent.total, tally(31, 240 + (1 << 20)));
        assert_eq!(rows[0].received.messages_per_s, 10.0);
        assert_eq!(rows[0].pending, 3);
    }

    #[test]
    fn counters_that_go_back_and_wrap_do_no_harm() {
        let start = Instant::now();
        let first = sample(start, tally(10, 80), tally(u64::MAX, u64::MAX));
        let second = sample(start, tally(u64::MAX, u64::MAX), tally(u64::MAX, 7));
        let again = rows(Some(&first), &second, Order::Bytes);
        assert_eq!(again[0].sent.total.messages, u64::MAX);
        assert_eq!(again[0].sent.messages_per_s, 0.0, "no time between");
        assert_eq!(rows(None, &second, Order::Messages).len(), 1);
    }
}
