//! Which protocol and lane serve which sizes: for `UCX_PROTO_INFO`, `ucp_ep_print_info` and rucp_info.

mod device;
mod table;

use super::lane_info;
use super::select::amo::{self, AmoPath};
use super::select::message::{self, Eager, MAX_EAGER, Protocol};
use super::select::rma::{self, RmaPath};
use super::select::rndv::{self, RndvOffer, RndvScheme, SentData};
use crate::ctypes::*;
use crate::engine::context::Context;
use crate::engine::peer::Peer;
use crate::engine::rkey::AmoExecutor;
use crate::engine::worker::Worker;
use crate::options::LogLevel;
use crate::sys::log;
use crate::tl::contract::{MAX_SHORT, QpTransport};
use crate::tl::lane_info::LaneName;
use crate::wire::stats::{StatLane, StatProtocol};
use std::ptr;

use device::device_tables;

pub use table::{ProtoRange, ProtoTable, draw, size};

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
    let mut names = lane_info::of(peer).map(|lane| lane.name);
    // A peer that has connected to this worker has sent no address.
    let messages = names.next().unwrap_or(LaneName::TCP);
    let copies = names.next().unwrap_or(messages);
    LaneNames { messages, copies }
}

/// Protocol of one size.
struct Served {
    what: &'static str,
    protocol: StatProtocol,
    or: Option<StatProtocol>,
}

impl Served {
    fn by(what: &'static str, protocol: StatProtocol) -> Served {
        Served {
            what,
            protocol,
            or: None,
        }
    }
}

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
    let stream = |len| stream(peer, len);
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
        let (executor, executes) = if peer.has_rings() {
            (AmoExecutor::Adapter, true)
        } else if peer.resolves_keys().is_some() {
            (AmoExecutor::Other, worker.tl.has_provider_atomics())
        } else {
            let is_word = size == size_of::<u64>();
            (AmoExecutor::Other, is_word && by_queue(worker, peer))
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
    if let Some(cuda) = &worker.ctx.cuda {
        tables.extend(device_tables(worker, peer, cuda));
    }
    tables.dedup();
    tables
}

/// Protocol of a message of a size: what `select` selects for its sender, and for a receiver with this worker's
/// options and a contiguous buffer.
fn message(peer: &Peer, len: usize) -> Served {
    let worker = peer.worker();
    let thresh = peer.rndv_thresh(&worker.ctx.policy);
    let limit = message::record_limit(worker, peer, len, true);
    match message::protocol(len, 0, thresh, limit, message::by_threshold(worker, peer)) {
        Protocol::Eager(eager) => Served::by(eager_name(eager), message::counted(len)),
        Protocol::Rendezvous => rendezvous(worker, peer, len, SentData::Contiguous, limit.zcopy),
    }
}

fn eager_name(eager: Eager) -> &'static str {
    match eager {
        Eager::Short => "eager short",
        Eager::Bcopy => "eager copy-in copy-out",
        Eager::Zcopy => "eager zero-copy",
        Eager::Fragments => "eager multi-frag copy-in copy-out",
    }
}

/// Protocol of a rendezvous of a size. `zcopy`: its messages are sent from user memory.
fn rendezvous(worker: &Worker, peer: &Peer, len: usize, data: SentData, zcopy: bool) -> Served {
    let offer = rndv::offer(worker, peer, data);
    let copied = |what| Served::by(what, StatProtocol::RndvCopy);
    let by_messages = |what| Served::by(what, StatProtocol::RndvMessages);
    match rndv::scheme(worker, peer, offer, true, || by_queue(worker, peer)) {
        RndvScheme::Cma if peer.same_process => copied("rendezvous copy from mapped memory"),
        RndvScheme::Cma if rndv::may_race(worker, peer, len) => Served {
            or: Some(StatProtocol::RndvCopy),
            ..by_messages("rendezvous fragmented copy-in copy-out, or zero-copy")
        },
        RndvScheme::Cma if len < rndv::MIN_SPLIT => copied("rendezvous zero-copy read from remote"),
        RndvScheme::Cma => copied("rendezvous zero-copy by both sides"),
        // Before a queue pair of its own leads to the peer, messages carry the data.
        RndvScheme::GetZcopy if offer != RndvOffer::Rkeys || by_queue(worker, peer) => {
            copied("rendezvous zero-copy read from remote")
        }
        RndvScheme::PutZcopy => copied("rendezvous zero-copy write to remote"),
        RndvScheme::DeviceCopy => copied("rendezvous copy by the driver"),
        RndvScheme::GetZcopy | RndvScheme::Messages if zcopy => {
            by_messages("rendezvous zero-copy in parts")
        }
        RndvScheme::GetZcopy | RndvScheme::Messages => {
            by_messages("rendezvous fragmented copy-in copy-out")
        }
    }
}

/// Whether an RC queue pair leads to the peer.
fn by_queue(worker: &Worker, peer: &Peer) -> bool {
    peer.qp_transport() == QpTransport::Own && peer.uid != worker.uid
}

/// Protocol of stream data of a size.
fn stream(peer: &Peer, len: usize) -> Served {
    let limit = message::record_limit(peer.worker(), peer, len, true);
    let what = match message::stream(len, limit.zcopy) {
        Eager::Short => "short",
        Eager::Bcopy => "copy-in copy-out",
        Eager::Zcopy => "zero-copy",
        Eager::Fragments if limit.zcopy => "multi-frag zero-copy",
        Eager::Fragments => "multi-frag copy-in copy-out",
    };
    Served::by(what, StatProtocol::Stream)
}

/// Path of RMA of a size, to memory that is mapped here at an address (`mapped`) or not mapped.
fn access(worker: &Worker, peer: &Peer, mapped: Option<*mut u8>, len: usize) -> RmaPath {
    // Before the first message it is not known whether a queue pair of its own will lead to the peer: the options say
    // whether one is to be expected.
    let keyed = || {
        rma::ib_reaches(worker, peer, len)
            && match peer.qp_transport() {
                QpTransport::Unknown => worker.ctx.tl.ib.by_queue(),
                _ => true,
            }
    };
    let adapter = rma::adapter(keyed, || peer.resolves_keys());
    rma::path(mapped, adapter, || peer.cma().is_usable())
}

/// Name of a path of RMA; `mapped`: of loads, of stores, or of both.
fn rma_served(path: RmaPath, mapped: &'static str) -> Served {
    let what = match path {
        RmaPath::Mapped(_) => mapped,
        RmaPath::Cma => "zero-copy",
        RmaPath::Adapter(_) => "by the device",
        RmaPath::Message => "executed by the peer",
    };
    Served::by(what, path.counted())
}

/// Name of a path of atomic operations.
fn amo_served(path: AmoPath) -> Served {
    let what = match path {
        AmoPath::Mapped(_) => "the processor's atomics",
        AmoPath::Adapter(_) => "by the device or by the peer",
        AmoPath::Message => "executed by the peer",
    };
    Served::by(what, path.counted())
}

/// Computes the protocol at every size at which it can change, and joins equal neighbours.
fn ranges(peer: &Peer, lanes: &LaneNames, served: &dyn Fn(usize) -> Served) -> Vec<ProtoRange> {
    let ctx = peer.worker().ctx;
    let (policy, ib) = (&ctx.policy, &ctx.tl.ib.policy);
    let by_socket = &ctx.tl.tcp.policy.am_limits;
    let last_of_its_kind = [
        MAX_SHORT,
        MAX_EAGER,
        rndv::MIN_SPLIT - 1,
        rndv::MAX_RACE,
        policy.rndv_thresh.wrapping_sub(1),
        policy.rndv_thresh_inter.wrapping_sub(1),
        policy.zcopy_thresh - 1,
        (ib.as_ref()).map_or(0, |ib| ib.in_place.wrapping_sub(1)),
        message::longest_by_socket(by_socket, false),
        message::longest_by_socket(by_socket, true),
    ];
    let of_devices = (ctx.cuda.as_ref()).map(|_| device::last_sizes(peer.worker(), peer));
    let mut firsts: Vec<usize> = last_of_its_kind
        .iter()
        .chain(of_devices.iter().flatten())
        .filter_map(|last| last.checked_add(1))
        // "inf" means that there is no such size.
        .filter(|&first| first < usize::MAX)
        .collect();
    firsts.push(0);
    firsts.sort_unstable();
    firsts.dedup();
    let mut ranges: Vec<ProtoRange> = Vec::new();
    for first in firsts {
        let Served { what, protocol, or } = served(first);
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
            or,
        });
    }
    ranges
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
            "auto" if log::prints(LogLevel::Debug) => PrintedTables::All,
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
    if let (PrintedTables::All, Some(cuda)) = (&printed, &worker.ctx.cuda) {
        let devices = cuda.describe().filter(|text| worker.is_first_print(text));
        devices.iter().for_each(|text| log::asked(text));
    }
    for table in tables(worker, peer)
        .iter()
        .filter(|table| printed.has(table))
    {
        let title = format!("{} {}", worker.ctx.name, kind(worker, peer));
        let text = draw(&title, table);
        if worker.is_first_print(&text) {
            log::asked(&text);
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

/// Prints what copies by the driver of GPUs have reached, if `UCX_PROTO_INFO=used`, when the context is destroyed.
#[cold]
pub fn print_copies(ctx: &Context) {
    let cuda = ctx
        .cuda
        .as_ref()
        .filter(|_| ctx.options.proto_info == "used");
    let copies = cuda.and_then(|cuda| cuda.describe_copies());
    copies.iter().for_each(|text| log::asked(text));
}

/// Prints what a peer's endpoints have used, if `UCX_PROTO_INFO=used`, when the peer is freed or the worker destroyed.
#[cold]
pub fn print_used(worker: &Worker, peer: &Peer) {
    if worker.ctx.options.proto_info != "used" {
        return;
    }
    for table in used_tables(worker, peer) {
        let (name, kind) = (&worker.ctx.name, kind(worker, peer));
        let title = format!("{name} {kind}, used with worker {:#x}", peer.uid);
        log::asked(&draw(&title, &table));
    }
}

/// The tables of the operations that the peer's endpoints have used, with the rows that have been used.
pub fn used_tables(worker: &Worker, peer: &Peer) -> Vec<ProtoTable> {
    let mut tables = tables(worker, peer);
    for table in &mut tables {
        let messages = |protocol| peer.stats().of(protocol).messages();
        table.ranges.retain(|range| range.is_used(messages));
    }
    tables.retain(|table| !table.ranges.is_empty());
    tables
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
