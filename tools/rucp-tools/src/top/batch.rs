//! Output for scripts: rows as text or as JSON.

use crate::rows::{LaneRow, PROTOCOLS, PeerRow, Traffic, WorkerRow};
use crate::stuck::{OtherEnd, StuckFinding};
use serde_json::{Value, json};
use std::fmt::Write;

/// The message if there is no worker to show.
pub fn no_worker(pid: Option<u32>) -> String {
    match pid {
        Some(pid) => format!("process {pid} has no worker that you may see"),
        None => "no worker that you may see on this host".to_owned(),
    }
}

/// Rows as text, totals per protocol that was used, and their rates if `rates`.
pub fn text(rows: &[WorkerRow], rates: bool) -> String {
    let mut out = String::new();
    for worker in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "worker {:#x} pid {} ({}) context {:?}: {} requests, {} pending, {} unexpected now, {} ever",
            worker.uid,
            worker.pid,
            worker.command,
            worker.context,
            worker.requests,
            worker.pending,
            worker.unexpected,
            worker.unexpected_total,
        );
        for peer in &worker.peers {
            let _ = writeln!(
                out,
                "  peer {}: {} endpoints, {} pending{}",
                peer_name(peer),
                peer.endpoints,
                peer.pending,
                if peer.failed { ", failed" } else { "" },
            );
            peer.lanes
                .iter()
                .for_each(|lane| write_lane(&mut out, lane, rates));
        }
    }
    out
}

fn write_lane(out: &mut String, lane: &LaneRow, rates: bool) {
    let name = match lane.lane.as_str() {
        "" => "not sent to",
        name => name,
    };
    let _ = writeln!(out, "    lane {name}");
    let named = PROTOCOLS.iter().zip(&lane.sent);
    let used = named.filter(|(_, flow)| flow.total.messages > 0);
    for (protocol, flow) in used {
        write_flow(out, protocol, flow, rates);
    }
    if let Some(received) = &lane.received {
        write_flow(out, "received", received, rates);
    }
}

fn write_flow(out: &mut String, what: &str, flow: &Traffic, rates: bool) {
    let _ = write!(
        out,
        "      {what:<10} {:>14} messages {:>18} bytes",
        flow.total.messages, flow.total.bytes,
    );
    if rates {
        let _ = write!(
            out,
            " {:>14.0} messages/s {:>16.0} bytes/s",
            flow.messages_per_s, flow.bytes_per_s,
        );
    }
    out.push('\n');
}

/// The name of a peer.
pub fn peer_name(peer: &PeerRow) -> String {
    match (peer.is_rest, peer.pid) {
        (true, _) => "(all others)".into(),
        (false, 0) => format!("{:#x}", peer.uid),
        (false, pid) => format!("{:#x} pid {pid}", peer.uid),
    }
}

/// Rows as JSON: an array of workers. Rates are null unless `rates`.
pub fn json(rows: &[WorkerRow], rates: bool) -> Value {
    rows.iter().map(|row| worker_json(row, rates)).collect()
}

fn worker_json(worker: &WorkerRow, rates: bool) -> Value {
    json!({
        "pid": worker.pid,
        "command": worker.command,
        "uid": format!("{:#x}", worker.uid),
        "name": worker.name,
        "context": worker.context,
        "requests": worker.requests,
        "pending": worker.pending,
        "unexpected": worker.unexpected,
        "unexpected_total": worker.unexpected_total,
        "peers": worker.peers.iter().map(|peer| peer_json(peer, rates)).collect::<Value>(),
    })
}

fn peer_json(peer: &PeerRow, rates: bool) -> Value {
    json!({
        "rest": peer.is_rest,
        "uid": format!("{:#x}", peer.uid),
        "pid": peer.pid,
        "failed": peer.failed,
        "endpoints": peer.endpoints,
        "pending": peer.pending,
        "lanes": peer.lanes.iter().map(|lane| lane_json(lane, rates)).collect::<Value>(),
    })
}

fn lane_json(lane: &LaneRow, rates: bool) -> Value {
    let sent: serde_json::Map<String, Value> = PROTOCOLS
        .iter()
        .zip(&lane.sent)
        .map(|(name, flow)| ((*name).to_owned(), flow_json(flow, rates)))
        .collect();
    json!({
        "lane": lane.lane,
        "sent": sent,
        "received": lane.received.as_ref().map(|flow| flow_json(flow, rates)),
    })
}

fn flow_json(flow: &Traffic, rates: bool) -> Value {
    json!({
        "messages": flow.total.messages,
        "bytes": flow.total.bytes,
        "messages_per_s": rates.then_some(flow.messages_per_s),
        "bytes_per_s": rates.then_some(flow.bytes_per_s),
    })
}

/// What waits, as text: one line for each process and reason.
pub fn stuck_text(found: &[StuckFinding]) -> String {
    let mut out = String::new();
    for finding in found {
        let StuckFinding {
            pid,
            command,
            seconds,
            detail,
            ..
        } = finding;
        // Writing to a string cannot fail.
        let _ = write!(out, "pid {pid} ({command}): ");
        if let Some(row) = &finding.operation {
            let _ = write!(out, "{} of {} bytes", row.op.name(), row.bytes);
            if row.tag != 0 {
                let _ = write!(out, ", tag {:#x}", row.tag);
            }
            if finding.count > 1 {
                let _ = write!(out, " and {} more", finding.count - 1);
            }
            if let Some(name) = end_name(&finding.peer) {
                let _ = write!(out, ", peer {name}");
            }
            out.push_str(": ");
        }
        let _ = writeln!(out, "{seconds:.1} s: {}: {detail}", finding.verdict.name());
    }
    out
}

/// The name of an other end, if anything is known of it.
fn end_name(end: &OtherEnd) -> Option<String> {
    match (end.pid, end.uid, end.place.as_str()) {
        (0, 0, "") => None,
        (0, 0, place) => Some(place.to_owned()),
        (0, uid, "") => Some(format!("{uid:#x}")),
        (0, uid, place) => Some(format!("{uid:#x} at {place}")),
        (pid, ..) if end.command.is_empty() => Some(format!("pid {pid}")),
        (pid, ..) => Some(format!("pid {pid} ({})", end.command)),
    }
}

/// What waits, as JSON: an array.
pub fn stuck_json(found: &[StuckFinding]) -> Value {
    found.iter().map(finding_json).collect()
}

fn finding_json(finding: &StuckFinding) -> Value {
    let row = finding.operation.as_ref();
    json!({
        "pid": finding.pid,
        "command": finding.command,
        "worker": format!("{:#x}", finding.worker),
        "cause": finding.verdict.name(),
        "detail": finding.detail,
        "seconds": finding.seconds,
        "operation": row.map(|row| row.op.name()),
        "tag": row.map(|row| row.tag),
        "bytes": row.map(|row| row.bytes),
        "count": finding.count,
        "peer": {
            "uid": format!("{:#x}", finding.peer.uid),
            "pid": finding.peer.pid,
            "command": finding.peer.command,
            "address": finding.peer.place,
        },
    })
}
