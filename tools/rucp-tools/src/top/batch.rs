//! Output for scripts: rows as text or as JSON.

use crate::rows::{LaneRow, PROTOCOLS, PeerRow, Traffic, WorkerRow};
use serde_json::{Value, json};
use std::fmt::Write;

/// The message if there is no worker to show.
pub fn no_worker(pid: Option<u32>) -> String {
    match pid {
        Some(pid) => format!("process {pid} has no worker that you may see"),
        None => "no worker that you may see on this host".to_owned(),
    }
}

/// Rows as text, totals and rates per protocol that was used.
pub fn text(rows: &[WorkerRow]) -> String {
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
                .for_each(|lane| write_lane(&mut out, lane));
        }
    }
    out
}

fn write_lane(out: &mut String, lane: &LaneRow) {
    let name = match lane.lane.as_str() {
        "" => "not sent to",
        name => name,
    };
    let _ = writeln!(out, "    lane {name}");
    let named = PROTOCOLS.iter().zip(&lane.sent);
    let used = named.filter(|(_, flow)| flow.total.messages > 0);
    for (protocol, flow) in used {
        write_flow(out, protocol, flow);
    }
    if let Some(received) = &lane.received {
        write_flow(out, "received", received);
    }
}

fn write_flow(out: &mut String, what: &str, flow: &Traffic) {
    let _ = writeln!(
        out,
        "      {what:<10} {:>14} messages {:>18} bytes {:>14.0} messages/s {:>16.0} bytes/s",
        flow.total.messages, flow.total.bytes, flow.messages_per_s, flow.bytes_per_s,
    );
}

/// The name of a peer.
pub fn peer_name(peer: &PeerRow) -> String {
    match (peer.is_rest, peer.pid) {
        (true, _) => "(all others)".into(),
        (false, 0) => format!("{:#x}", peer.uid),
        (false, pid) => format!("{:#x} pid {pid}", peer.uid),
    }
}

/// Rows as JSON: an array of workers.
pub fn json(rows: &[WorkerRow]) -> Value {
    rows.iter().map(worker_json).collect()
}

fn worker_json(worker: &WorkerRow) -> Value {
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
        "peers": worker.peers.iter().map(peer_json).collect::<Value>(),
    })
}

fn peer_json(peer: &PeerRow) -> Value {
    json!({
        "rest": peer.is_rest,
        "uid": format!("{:#x}", peer.uid),
        "pid": peer.pid,
        "failed": peer.failed,
        "endpoints": peer.endpoints,
        "pending": peer.pending,
        "lanes": peer.lanes.iter().map(lane_json).collect::<Value>(),
    })
}

fn lane_json(lane: &LaneRow) -> Value {
    let sent: serde_json::Map<String, Value> = PROTOCOLS
        .iter()
        .zip(&lane.sent)
        .map(|(name, flow)| ((*name).to_owned(), flow_json(flow)))
        .collect();
    json!({
        "lane": lane.lane,
        "sent": sent,
        "received": lane.received.as_ref().map(flow_json),
    })
}

fn flow_json(flow: &Traffic) -> Value {
    json!({
        "messages": flow.total.messages,
        "bytes": flow.total.bytes,
        "messages_per_s": flow.messages_per_s,
        "bytes_per_s": flow.bytes_per_s,
    })
}
