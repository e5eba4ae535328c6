//! A real exchange of messages between two processes, each checked byte for byte.

use crate::control::ControlConn;
use crate::facts::{CopyAccess, Facts};
use crate::library_log::LibraryLog;
use rucp_tools::party::{Features, Party, PartyEndpoint, from_hex, to_hex};
use serde::{Deserialize, Serialize};
use std::ffi::c_void;
use std::mem::zeroed;
use std::time::{Duration, Instant};
use ucp::abi::{request, tag, worker};
use ucp::ctypes::*;

/// Lengths of the messages, bytes: short, copied, by rendezvous.
const LENGTHS: [usize; 4] = [8, 4 << 10, 256 << 10, 4 << 20];
/// Longest time for all messages.
const MAX_EXCHANGE: Duration = Duration::from_secs(15);
/// Longest time for an answer on the control connection.
const MAX_ANSWER: Duration = Duration::from_secs(30);

/// Which end of the pair this process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairEnd {
    /// It has connected, and sends the first message.
    First,
    /// It was waiting.
    Second,
}

/// The first line of each end.
#[derive(Serialize, Deserialize)]
struct Hello {
    facts: Facts,
    /// Addresses of the worker, with all transports and with those between hosts, or why there is no worker.
    worker: Result<Addresses, String>,
}

#[derive(Serialize, Deserialize)]
struct Addresses {
    all: String,
    network: String,
}

/// The second line: whether an endpoint could be made.
#[derive(Serialize, Deserialize)]
struct Connected {
    error: Option<String>,
}

/// What one end has seen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EndReport {
    /// Why the exchange has failed; None: all messages were received and were right.
    pub error: Option<String>,
    pub stage: Stage,
    /// Lanes of the endpoint, as `posix/memory`; that for short messages is the first.
    pub lanes: Vec<String>,
    /// Protocols that messages have used: range of bytes, protocol, lane.
    pub used: Vec<String>,
    pub copy: CopyAccess,
    /// The library's messages.
    pub log: Vec<String>,
}

/// How far the exchange went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Stage {
    /// One end has no worker.
    NoWorker,
    /// One end has no endpoint: no transport leads to the other.
    NoEndpoint,
    /// Messages did not arrive, or not as they were sent.
    NoMessages,
    Complete,
}

/// Both ends.
pub struct PairResult {
    pub here: (Facts, EndReport),
    pub there: (Facts, EndReport),
    /// Lanes of an endpoint to a worker on another host with the other end's devices.
    pub between_hosts: Vec<String>,
}

/// Exchanges with the other end of the control connection. `resources`: those of this process.
///
/// # Errors
/// The control connection failed.
pub fn run(
    end: PairEnd,
    control: &mut ControlConn,
    resources: Vec<String>,
    log: &mut LibraryLog,
) -> Result<PairResult, String> {
    let party = Features::parse("t").and_then(|t| Party::new(&t, c"rucp_doctor"));
    let facts = Facts::here(resources);
    let addresses = match &party {
        Ok(party) => addresses(party),
        Err(error) => Err(error.clone()),
    };
    control.send(&Hello {
        facts: facts.clone(),
        worker: addresses,
    })?;
    let hello: Hello = control.receive(Instant::now() + MAX_ANSWER, None)?;
    let mut report = EndReport {
        error: None,
        stage: Stage::NoWorker,
        lanes: Vec::new(),
        used: Vec::new(),
        copy: hello.facts.try_copy(),
        log: Vec::new(),
    };
    let mut between_hosts = Vec::new();
    let messages = match (&party, &hello.worker) {
        (Ok(party), Ok(addresses)) => {
            between_hosts = lanes_between_hosts(addresses);
            with_workers(end, control, party, addresses, &mut report)
        }
        (Err(error), _) => Err(format!("here: {error}")),
        (_, Err(error)) => Err(format!("at the other end: {error}")),
    };
    report.error = messages.err();
    report.log = log.lines();
    control.send(&report)?;
    let worker = party.as_ref().ok().map(Party::worker);
    let progress = move || {
        if let Some(worker) = worker {
            // SAFETY: the party lives until the end of this function.
            unsafe { worker::ucp_worker_progress(worker) };
        }
    };
    let theirs = control.receive(Instant::now() + MAX_ANSWER, Some(&progress))?;
    Ok(PairResult {
        here: (facts, report),
        there: (hello.facts, theirs),
        between_hosts,
    })
}

fn addresses(party: &Party) -> Result<Addresses, String> {
    Ok(Addresses {
        all: to_hex(&party.address(0)?),
        network: to_hex(&party.network_address()?),
    })
}

/// What an endpoint would use if the other worker were on another host. By a worker of its own: one that knows the
/// other by an address keeps its transport.
fn lanes_between_hosts(addresses: &Addresses) -> Vec<String> {
    let network = from_hex(&addresses.network).unwrap_or_default();
    let party = Features::parse("t").and_then(|t| Party::new(&t, c"rucp_doctor"));
    let lanes = party.and_then(|party| Ok(party.connect(&network)?.lanes()));
    lanes.unwrap_or_default()
}

/// Both ends have workers.
fn with_workers(
    end: PairEnd,
    control: &mut ControlConn,
    party: &Party,
    addresses: &Addresses,
    report: &mut EndReport,
) -> Result<(), String> {
    report.stage = Stage::NoEndpoint;
    let address = from_hex(&addresses.all).ok_or("the other end's address is no address")?;
    let endpoint = party.connect(&address);
    control.send(&Connected {
        error: endpoint.as_ref().err().cloned(),
    })?;
    // SAFETY: a live worker.
    let progress = || unsafe {
        worker::ucp_worker_progress(party.worker());
    };
    let other: Connected = control.receive(Instant::now() + MAX_ANSWER, Some(&progress))?;
    let endpoint = endpoint.map_err(|error| format!("here: {error}"))?;
    if let Some(error) = other.error {
        return Err(format!("at the other end: {error}"));
    }
    report.stage = Stage::NoMessages;
    let exchanged = exchange(end, party, &endpoint, Instant::now() + MAX_EXCHANGE);
    report.lanes = endpoint.lanes();
    report.used = used(&endpoint);
    exchanged?;
    report.stage = Stage::Complete;
    Ok(())
}

/// Rows of the table that the messages have used: they are tagged and of the host's memory, whose table is the first.
/// Those of memory of GPUs, where there are some, count by the same statistics.
fn used(endpoint: &PartyEndpoint) -> Vec<String> {
    let table = endpoint.used_tables().into_iter().next();
    let rows = table.into_iter().flat_map(|table| table.ranges);
    rows.map(|row| {
        let last = match row.last {
            usize::MAX => "inf".to_owned(),
            last => last.to_string(),
        };
        format!("{}..{last}: {}, {}", row.first, row.what, row.lane)
    })
    .collect()
}

/// Each end sends a message of each length, and checks the other's.
fn exchange(
    end: PairEnd,
    party: &Party,
    endpoint: &PartyEndpoint,
    deadline: Instant,
) -> Result<(), String> {
    for (turn, len) in LENGTHS.into_iter().enumerate() {
        let turn = turn as u64;
        let (ping, pong) = (pattern(turn * 2, len), pattern(turn * 2 + 1, len));
        match end {
            PairEnd::First => {
                send(party, endpoint, ping, turn * 2, deadline)?;
                receive(party, &pong, turn * 2 + 1, deadline)?;
            }
            PairEnd::Second => {
                receive(party, &ping, turn * 2, deadline)?;
                send(party, endpoint, pong, turn * 2 + 1, deadline)?;
            }
        }
    }
    Ok(())
}

/// The bytes of a message.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    // xorshift64*, from a seed that is not 0.
    let mut state = (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    };
    let words = std::iter::repeat_with(|| next().to_le_bytes());
    words.flatten().take(len).collect()
}

fn send(
    party: &Party,
    endpoint: &PartyEndpoint,
    data: Vec<u8>,
    tag: ucp_tag_t,
    deadline: Instant,
) -> Result<(), String> {
    let len = data.len();
    // SAFETY: an all-zero structure says: contiguous bytes, no callback.
    let param: ucp_request_param_t = unsafe { zeroed() };
    let buffer = data.as_ptr().cast::<c_void>();
    // SAFETY: a live endpoint; `wait` keeps the buffer until the request is complete, or for ever.
    let sent = unsafe { tag::ucp_tag_send_nbx(endpoint.handle(), buffer, len, tag, &param) };
    let done = wait(party, sent, data, deadline);
    done.map(drop)
        .map_err(|error| format!("a message of {len} bytes was not sent: {error}"))
}

fn receive(
    party: &Party,
    expected: &[u8],
    tag: ucp_tag_t,
    deadline: Instant,
) -> Result<(), String> {
    let len = expected.len();
    let mut data = vec![0; len];
    // SAFETY: an all-zero structure says: contiguous bytes, no callback.
    let param: ucp_request_param_t = unsafe { zeroed() };
    let buffer = data.as_mut_ptr().cast::<c_void>();
    // SAFETY: a live worker; `wait` keeps the buffer until the request is complete, or for ever.
    let posted =
        unsafe { tag::ucp_tag_recv_nbx(party.worker(), buffer, len, tag, u64::MAX, &param) };
    let data = wait(party, posted, data, deadline)
        .map_err(|error| format!("a message of {len} bytes was not received: {error}"))?;
    if data == expected {
        Ok(())
    } else {
        Err(format!(
            "a message of {len} bytes was received with other bytes than were sent"
        ))
    }
}

/// Progresses until an operation is complete, and returns its buffer. After an error the buffer is kept for ever, as
/// the operation may still use it.
fn wait(
    party: &Party,
    operation: ucs_status_ptr_t,
    buffer: Vec<u8>,
    deadline: Instant,
) -> Result<Vec<u8>, String> {
    let failed = |what: String, buffer: Vec<u8>| {
        std::mem::forget(buffer);
        Err(what)
    };
    if !UCS_PTR_IS_PTR(operation) {
        return match UCS_PTR_STATUS(operation) {
            UCS_OK => Ok(buffer),
            status => failed(format!("{status:?}"), buffer),
        };
    }
    loop {
        // SAFETY: a live worker, and a request that is not freed.
        let status = unsafe {
            worker::ucp_worker_progress(party.worker());
            request::ucp_request_check_status(operation)
        };
        let late = Instant::now() > deadline;
        if status == UCS_INPROGRESS && !late {
            continue;
        }
        if status == UCS_INPROGRESS {
            return failed(
                format!("nothing for {} seconds", MAX_EXCHANGE.as_secs()),
                buffer,
            );
        }
        // SAFETY: a request of the library that is complete, freed once.
        unsafe { request::ucp_request_free(operation) };
        return match status {
            UCS_OK => Ok(buffer),
            status => failed(format!("{status:?}"), buffer),
        };
    }
}
