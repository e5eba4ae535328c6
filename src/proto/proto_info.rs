//! Which protocol and lane serve which sizes: for `UCX_PROTO_INFO`, `ucp_ep_print_info` and rucp_info.

use super::lane_info::{self, LaneName};
use super::rndv;
use super::select::amo::{self, AmoPath};
use super::select::rma::{self, RmaPath};
use super::select::{self, MAX_EAGER, Protocol as Choice};
use super::split_copy;
use crate::ctypes::*;
use crate::engine::peer::{Peer, QpTransport};
use crate::engine::rkey::AmoExecutor;
use crate::engine::worker::Worker;
use crate::options::LogLevel;
use crate::sys::log;
use crate::tl::shm::ring::INLINE;
use crate::wire::stats::{StatLane, StatProtocol};
use std::fmt::Write;
use std::ptr;

/// A range of sizes of one operation with the same protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtoRange {
    /// Bytes.
    pub first: usize,
    /// Bytes; `usize::MAX` for no end.
    pub last: usize,
    pub what: &'static str,
    /// Transport and device, as `posix/memory`.
    pub lane: String,
    /// The statistics entry that counts it.
    pub protocol: StatProtocol,
}

/// One operation to one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtoTable {
    pub operation: &'static str,
    pub ranges: Vec<ProtoRange>,
}

/// The names of the lanes to a peer.
#[derive(Clone, Copy, Debug)]
pub struct LaneNames {
    /// For messages.
    pub messages: LaneName,
    /// For CMA copies; the lane for messages if there is no CMA.
    pub copies: LaneName,
}

/// The lanes to a peer, as far as they are known before it is connected.
pub fn lanes(peer: &Peer) -> LaneNames {
    let lanes = lane_info::of(peer);
    // A peer that has connected to this worker has sent no address.
    let messages = lanes.first().map_or(LaneName::TCP, |lane| lane.name);
    let copies = lanes.get(1).map_or(messages, |lane| lane.name);
    LaneNames { messages, copies }
}

/// Protocol of one size.
type Served = (&'static str, StatProtocol);

/// The tables of all operations of the program's features.
pub fn tables(worker: &Worker, peer: &Peer) -> Vec<ProtoTable> {
    let lanes = &lanes(peer);
    let mut tables = Vec::new();
    let mut add = |feature: ucp_feature, operation, served: &dyn Fn(usize) -> Served| {
        if worker.ctx.has(feature) {
            let ranges = ranges(peer, lanes, served);
            tables.push(ProtoTable { operation, ranges });
        }
    };
    let message = |len| message(peer, len);
    // The address is not printed.
    let local = |mapped: bool| mapped.then(ptr::null_mut);
    let same_process = local(peer.same_process);
    // Memory allocated by UCP is mapped here, if shared memory reaches the peer.
    let mappable = local(peer.inbox.is_some()).or(same_process);
    let mapped = |what| {
        let what = match peer.inbox {
            Some(_) => what,
            None => "load and store",
        };
        move |len| rma_served(access(worker, peer, mappable, len), what)
    };
    let other = |len| rma_served(access(worker, peer, same_process, len), "load and store");
    // The key decides whether an adapter executes them: that of a word of 8 bytes, or of any word.
    let amo = |size, mapped| {
        let (executor, executes) = match peer.has_rings() {
            true => (AmoExecutor::Adapter, true),
            false => (
                AmoExecutor::Other,
                size == size_of::<u64>() && by_queue(worker, peer),
            ),
        };
        let rma = access(worker, peer, mapped, size);
        amo_served(amo::path(executor, rma, false, |_| executes, || true))
    };
    add(UCP_FEATURE_TAG, "tagged message by ucp_tag_send*", &message);
    add(UCP_FEATURE_AM, "active message by ucp_am_send*", &message);
    add(UCP_FEATURE_STREAM, "stream by ucp_stream_send*", &stream);
    add(
        UCP_FEATURE_RMA,
        "write by ucp_put* to memory that UCP allocated",
        &mapped("store"),
    );
    add(UCP_FEATURE_RMA, "write by ucp_put* to other memory", &other);
    add(
        UCP_FEATURE_RMA,
        "read by ucp_get* from memory that UCP allocated",
        &mapped("load"),
    );
    add(
        UCP_FEATURE_RMA,
        "read by ucp_get* from other memory",
        &other,
    );
    for (feature, size) in [(UCP_FEATURE_AMO32, 4), (UCP_FEATURE_AMO64, 8)] {
        if size == 8 && by_queue(worker, peer) {
            add(feature, "ucp_atomic_op* of 8 bytes", &|_| amo(size, None));
            continue;
        }
        add(
            feature,
            "ucp_atomic_op* on memory that UCP allocated",
            &|_| amo(size, mappable),
        );
        add(feature, "ucp_atomic_op* on other memory", &|_| {
            amo(size, same_process)
        });
    }
    tables.dedup();
    tables
}

/// Protocol of a message of a size: the choice of `select`, and what the receiver can do then.
fn message(peer: &Peer, len: usize) -> Served {
    let worker = peer.worker();
    let thresh = peer.rndv_thresh(worker);
    let socket = peer.has_socket();
    let longest = select::longest(worker, peer, len, true);
    let in_place = socket && len >= worker.ctx.policy.zcopy_thresh;
    let copied = peer.cma_usable() && !worker.ctx.policy.rndv_by_messages;
    let written = by_queue(worker, peer) && !worker.ctx.policy.rndv_by_messages;
    match select::protocol(len, 0, thresh, longest, select::by_threshold(worker, peer)) {
        Choice::Eager if in_place => (
            "eager zero-copy",
            if len <= INLINE {
                StatProtocol::Short
            } else {
                StatProtocol::Eager
            },
        ),
        Choice::Eager if len <= INLINE => ("eager short", StatProtocol::Short),
        Choice::Eager => ("eager copy-in copy-out", StatProtocol::Eager),
        Choice::Fragments => ("eager multi-frag copy-in copy-out", StatProtocol::Eager),
        Choice::Rendezvous if copied && peer.same_process => {
            ("rendezvous copy from mapped memory", StatProtocol::RndvCopy)
        }
        Choice::Rendezvous if rndv::may_race(worker, peer, len) => (
            "rendezvous fragmented copy-in copy-out, or zero-copy",
            StatProtocol::RndvMessages,
        ),
        Choice::Rendezvous if copied => {
            let what = match len {
                ..split_copy::MIN => "rendezvous zero-copy read from remote",
                _ => "rendezvous zero-copy by both sides",
            };
            (what, StatProtocol::RndvCopy)
        }
        Choice::Rendezvous if written && worker.ctx.policy.rndv_reads => (
            "rendezvous zero-copy read from remote",
            StatProtocol::RndvCopy,
        ),
        Choice::Rendezvous if written => (
            "rendezvous zero-copy write to remote",
            StatProtocol::RndvCopy,
        ),
        Choice::Rendezvous if in_place => {
            ("rendezvous zero-copy in parts", StatProtocol::RndvMessages)
        }
        Choice::Rendezvous => (
            "rendezvous fragmented copy-in copy-out",
            StatProtocol::RndvMessages,
        ),
    }
}

/// Whether an RC queue pair leads to the peer.
fn by_queue(worker: &Worker, peer: &Peer) -> bool {
    peer.qp_transport() == QpTransport::Own && peer.uid != worker.uid
}

/// Protocol of stream data of a size.
fn stream(len: usize) -> Served {
    let what = match len {
        0..=INLINE => "short",
        _ if len <= MAX_EAGER => "copy-in copy-out",
        _ => "multi-frag copy-in copy-out",
    };
    (what, StatProtocol::Stream)
}

/// Path of RMA of a size, to memory that is mapped here at an address (`mapped`) or not mapped.
fn access(worker: &Worker, peer: &Peer, mapped: Option<*mut u8>, len: usize) -> RmaPath {
    // Before the first message it is not known whether a queue pair of its own will lead to the peer: the options say
    // whether one is to be expected.
    let keyed = || {
        rma::ib_reaches(worker, peer, len)
            && match peer.qp_transport() {
                QpTransport::Unknown => worker.ctx.policy.ib.as_ref().is_some_and(|ib| ib.by_queue),
                _ => true,
            }
    };
    let adapter = rma::adapter(keyed, || peer.has_rings());
    rma::path(mapped, adapter, || peer.cma_usable())
}

/// Name of a path of RMA; `mapped`: of loads, of stores, or of both.
fn rma_served(path: RmaPath, mapped: &'static str) -> Served {
    let what = match path {
        RmaPath::Mapped(_) => mapped,
        RmaPath::Cma => "zero-copy",
        RmaPath::Ib | RmaPath::Tofu => "by the device",
        RmaPath::Message => "executed by the peer",
    };
    (what, path.counted())
}

/// Name of a path of atomic operations.
fn amo_served(path: AmoPath) -> Served {
    let what = match path {
        AmoPath::Mapped(_) => "the processor's atomics",
        AmoPath::Ib | AmoPath::Tofu => "by the device or by the peer",
        AmoPath::Message => "executed by the peer",
    };
    (what, path.counted())
}

/// Computes the protocol at every size at which it can change, and joins equal neighbours.
fn ranges(peer: &Peer, lanes: &LaneNames, served: &dyn Fn(usize) -> Served) -> Vec<ProtoRange> {
    let policy = &peer.worker().ctx.policy;
    let last_of_its_kind = [
        INLINE,
        MAX_EAGER,
        split_copy::MIN - 1,
        rndv::MAX_ASKED,
        policy.rndv_thresh.wrapping_sub(1),
        policy.rndv_thresh_inter.wrapping_sub(1),
        policy.zcopy_thresh - 1,
        policy
            .ib
            .as_ref()
            .map_or(0, |ib| ib.in_place.wrapping_sub(1)),
        select::longest_by_socket(policy, false),
        select::longest_by_socket(policy, true),
    ];
    let mut firsts: Vec<usize> = last_of_its_kind
        .iter()
        .filter_map(|last| last.checked_add(1))
        // "inf" means that there is no such size.
        .filter(|&first| first < usize::MAX)
        .collect();
    firsts.push(0);
    firsts.sort_unstable();
    firsts.dedup();
    let mut ranges: Vec<ProtoRange> = Vec::new();
    for first in firsts {
        let (what, protocol) = served(first);
        match ranges.last_mut() {
            Some(range) if range.what == what => continue,
            Some(range) => range.last = first - 1,
            None => {}
        }
        let lane = match protocol.carrier() {
            StatLane::Messages => lanes.messages.to_string(),
            StatLane::Copy => lanes.copies.to_string(),
            StatLane::Mapped => "mapped memory".to_owned(),
        };
        ranges.push(ProtoRange {
            first,
            last: usize::MAX,
            what,
            lane,
            protocol,
        });
    }
    ranges
}

/// A table as text, with a line above and below.
pub fn draw(title: &str, table: &ProtoTable) -> String {
    let rows: Vec<[String; 3]> = table
        .ranges
        .iter()
        .map(|r| [span(r.first, r.last), r.what.into(), r.lane.clone()])
        .collect();
    let heads = ["Range", "Description", "Config"];
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].len());
        cells.max().unwrap_or(0).max(heads[column].len())
    };
    let mut widths = [width(0), width(1), width(2)];
    // The lines above the columns must fit, too.
    let inner = title.len().max(table.operation.len());
    widths[1] += inner.saturating_sub(widths.iter().sum::<usize>() + 6);
    let [a, b, c] = widths;
    let all = a + b + c + 6;
    let rule = format!("+-{:-<a$}-+-{:-<b$}-+-{:-<c$}-+\n", "", "", "");
    let mut out = rule.clone();
    for text in [title, table.operation] {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "| {text:<all$} |");
    }
    out += &rule;
    let _ = writeln!(
        out,
        "| {:^a$} | {:^b$} | {:^c$} |",
        heads[0], heads[1], heads[2]
    );
    out += &rule;
    for [range, what, lane] in rows {
        let _ = writeln!(out, "| {range:>a$} | {what:<b$} | {lane:<c$} |");
    }
    out + &rule
}

/// A number of bytes, as `16K`.
pub fn size(bytes: usize) -> String {
    match bytes {
        usize::MAX => "inf".to_owned(),
        n if n >= 1 << 20 && n % (1 << 20) == 0 => format!("{}M", n >> 20),
        n if n >= 1 << 10 && n % (1 << 10) == 0 => format!("{}K", n >> 10),
        n => n.to_string(),
    }
}

/// `113..16K`
fn span(first: usize, last: usize) -> String {
    format!("{}..{}", size(first), size(last))
}

/// The operations whose tables `UCX_PROTO_INFO` selects for printing when the first endpoint of their kind connects.
enum PrintedTables<'a> {
    None,
    All,
    /// Those with a name that matches the pattern.
    Matching(&'a str),
}

impl PrintedTables<'_> {
    fn of(worker: &Worker) -> PrintedTables<'_> {
        match worker.ctx.options.proto_info.as_str() {
            "y" | "yes" | "on" | "1" => PrintedTables::All,
            "n" | "no" | "off" | "0" | "used" => PrintedTables::None,
            "auto" if log::enabled(LogLevel::Debug) => PrintedTables::All,
            "auto" => PrintedTables::None,
            pattern => PrintedTables::Matching(pattern),
        }
    }

    fn has(&self, table: &ProtoTable) -> bool {
        match self {
            PrintedTables::None => false,
            PrintedTables::All => true,
            PrintedTables::Matching(pattern) => crate::options::glob(pattern, table.operation),
        }
    }
}

/// Prints a connected peer's tables if `UCX_PROTO_INFO` selects them, each once per worker.
#[cold]
pub fn print_connected(worker: &Worker, peer: &Peer) {
    let printed = PrintedTables::of(worker);
    if matches!(printed, PrintedTables::None) {
        return;
    }
    for table in tables(worker, peer)
        .iter()
        .filter(|table| printed.has(table))
    {
        let title = format!("{} {}", worker.ctx.name, kind(worker, peer));
        let text = draw(&title, table);
        let mut texts = worker.printed_tables.lock();
        if !texts.contains(&text) {
            log::asked(&text);
            texts.push(text);
        }
    }
}

/// Prints what each peer's endpoints have used, if `UCX_PROTO_INFO=used`, when the worker is destroyed.
#[cold]
pub fn print_all_used(worker: &Worker) {
    for peer in worker.all_peers() {
        print_used(worker, &peer);
    }
}

/// Prints what a peer's endpoints have used, if `UCX_PROTO_INFO=used`, when the peer is freed or the worker destroyed.
#[cold]
pub fn print_used(worker: &Worker, peer: &Peer) {
    if worker.ctx.options.proto_info != "used" {
        return;
    }
    for mut table in tables(worker, peer) {
        let count = |range: &ProtoRange| peer.stats().of(range.protocol).messages();
        table.ranges.retain(|range| count(range) > 0);
        if !table.ranges.is_empty() {
            let (name, kind) = (&worker.ctx.name, kind(worker, peer));
            let title = format!("{name} {kind}, used with worker {:#x}", peer.uid);
            log::asked(&draw(&title, &table));
        }
    }
}

/// Location of a peer, in one word.
pub fn kind(worker: &Worker, peer: &Peer) -> &'static str {
    if peer.uid == worker.uid {
        "self"
    } else if peer.inbox.is_some() {
        "intra-node"
    } else {
        "inter-node"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        assert_eq!(span(0, 112), "0..112");
        assert_eq!(span(113, 16 << 10), "113..16K");
        assert_eq!(span(1 << 20, usize::MAX), "1M..inf");
    }

    #[test]
    fn a_table_is_a_rectangle() {
        let range = |first, last, what, lane: &str| ProtoRange {
            first,
            last,
            what,
            lane: lane.into(),
            protocol: StatProtocol::Short,
        };
        let table = ProtoTable {
            operation: "an operation with a name that is longer than everything else here",
            ranges: vec![range(0, 1, "short", "a"), range(2, 3, "long", "bcdef")],
        };
        let text = draw("title", &table);
        let lengths: Vec<usize> = text.lines().map(str::len).collect();
        assert!(lengths.iter().all(|&n| n == lengths[0]), "{text}");
        assert_eq!(lengths.len(), 9);
    }
}
