//! Samples as metrics for Prometheus: in its text format, served by HTTP or written to a file.

use crate::rows::{self, LaneRow, Order, PROTOCOLS, Traffic, WorkerRow};
use crate::sample::Sample;
use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use tiny_http::{Header, Method, Response, Server};

/// Where the metrics go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Answers requests for `/metrics` at this address.
    Address(SocketAddr),
    /// A file that is replaced as a whole, such as those that node_exporter's textfile collector reads.
    File(PathBuf),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(address) => Ok(Self::Address(address)),
            Err(_) if text.ends_with(".prom") => Ok(Self::File(text.into())),
            Err(_) => Err("neither ADDRESS:PORT nor a file FILE.prom".into()),
        }
    }
}

impl Target {
    /// Exports samples of all workers, or of those of one process, until the program is ended; with `once` one of them.
    /// Files are written every `delay`.
    ///
    /// # Errors
    /// The address cannot be listened at, the file not be written.
    pub fn export(&self, pid: Option<u32>, delay: Duration, once: bool) -> io::Result<()> {
        match self {
            Self::Address(address) => {
                serve(*address, pid, once).map_err(|e| named(&address.to_string(), e))
            }
            Self::File(file) => loop {
                replace(file, &sampled(pid)?).map_err(|e| named(&file.display().to_string(), e))?;
                if once {
                    return Ok(());
                }
                std::thread::sleep(delay);
            },
        }
    }
}

/// The error with the name of the file or the address that it is about.
fn named(what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// The metrics of a new sample.
fn sampled(pid: Option<u32>) -> io::Result<String> {
    text(&rows::rows(None, &Sample::take(pid), Order::Pid)).map_err(io::Error::other)
}

/// Replaces the file by a rename: a reader sees all of the old text or all of the new.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    // Collectors do not read files with another ending.
    let new = file.with_extension(format!("prom.{}", std::process::id()));
    let done = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, file));
    if done.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    done
}

fn serve(address: SocketAddr, pid: Option<u32>, once: bool) -> io::Result<()> {
    let server = Server::http(address).map_err(io::Error::other)?;
    eprintln!("rucp_top: http://{}/metrics", server.server_addr());
    loop {
        let request = server.recv()?;
        let is_get = matches!(request.method(), Method::Get | Method::Head);
        let path = request.url().split('?').next();
        // A client that has gone does not end the server.
        let _ = match (is_get, path) {
            (true, Some("/metrics")) => {
                let kind = "Content-Type: text/plain; version=0.0.4; charset=utf-8".parse();
                let kind: Header = kind.map_err(|()| io::Error::other("a header"))?;
                request.respond(Response::from_string(sampled(pid)?).with_header(kind))
            }
            (true, _) => request.respond(Response::empty(404)),
            (false, _) => request.respond(Response::empty(405)),
        };
        if once {
            return Ok(());
        }
    }
}

/// The labels of a worker; of what its lanes carry also the lane, and of what was sent the protocol.
const WORKER: [&str; 3] = ["pid", "command", "worker"];
const LANE: [&str; 4] = ["pid", "command", "worker", "lane"];
const SENT: [&str; 5] = ["pid", "command", "worker", "lane", "protocol"];

/// The metrics of workers, in Prometheus's text format. Peers are summed up: a job of 10,000 processes has as many
/// metrics of a worker as one of two.
///
/// # Errors
/// Those of the encoder: a name that the format does not allow.
pub fn text(workers: &[WorkerRow]) -> prometheus::Result<String> {
    let metrics = Metrics::new()?;
    workers.iter().for_each(|worker| metrics.add(worker));
    TextEncoder::new().encode_to_string(&metrics.registry.gather())
}

struct Metrics {
    registry: Registry,
    sent_messages: IntCounterVec,
    sent_bytes: IntCounterVec,
    received_messages: IntCounterVec,
    received_bytes: IntCounterVec,
    unexpected_total: IntCounterVec,
    unexpected: IntGaugeVec,
    requests: IntGaugeVec,
    pending: IntGaugeVec,
    endpoints: IntGaugeVec,
    failed_peers: IntGaugeVec,
}

impl Metrics {
    fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let counter = |name: &str, help: &str, labels: &[&str]| {
            let counter =
                IntCounterVec::new(Opts::new(format!("rucp_{name}_total"), help), labels)?;
            registry
                .register(Box::new(counter.clone()))
                .map(|()| counter)
        };
        let gauge = |name: &str, help: &str| {
            let gauge = IntGaugeVec::new(Opts::new(format!("rucp_{name}"), help), &WORKER)?;
            registry.register(Box::new(gauge.clone())).map(|()| gauge)
        };
        Ok(Self {
            sent_messages: counter(
                "sent_messages",
                "Messages and accesses that were sent.",
                &SENT,
            )?,
            sent_bytes: counter("sent_bytes", "Bytes of these.", &SENT)?,
            received_messages: counter("received_messages", "Messages that arrived.", &LANE)?,
            received_bytes: counter("received_bytes", "Bytes of these.", &LANE)?,
            unexpected_total: counter(
                "unexpected_messages",
                "Messages that arrived before their receive was posted.",
                &WORKER,
            )?,
            unexpected: gauge("unexpected_messages", "Messages that wait for a receive.")?,
            requests: gauge("requests", "Requests that are not released.")?,
            pending: gauge(
                "pending_operations",
                "Operations that wait for room or for an answer.",
            )?,
            endpoints: gauge("endpoints", "Endpoints.")?,
            failed_peers: gauge("failed_peers", "Peers whose connection has failed.")?,
            registry,
        })
    }

    fn add(&self, worker: &WorkerRow) {
        let (pid, uid) = (worker.pid.to_string(), format!("{:#x}", worker.uid));
        let labels = [&pid, &worker.command, &uid].map(String::as_str);
        self.unexpected_total
            .with_label_values(&labels)
            .inc_by(worker.unexpected_total);
        let set = |gauge: &IntGaugeVec, value: u64| {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            gauge.with_label_values(&labels).set(value);
        };
        set(&self.unexpected, worker.unexpected);
        set(&self.requests, worker.requests);
        set(&self.pending, worker.pending);
        let endpoints = worker.peers.iter().map(|peer| u64::from(peer.endpoints));
        set(&self.endpoints, endpoints.sum());
        let failed = worker.peers.iter().filter(|peer| peer.failed);
        set(&self.failed_peers, failed.count() as u64);
        for lane in worker.peers.iter().flat_map(|peer| &peer.lanes) {
            self.add_lane(labels, lane);
        }
    }

    fn add_lane(&self, [pid, command, uid]: [&str; 3], lane: &LaneRow) {
        // A peer that nothing was sent to has no lane yet.
        let name = match lane.lane.as_str() {
            "" => "none",
            name => name,
        };
        let add = |counter: &IntCounterVec, labels: &[&str], more: u64| {
            // A hostile page may have any numbers: their sum stays below the limit of a counter.
            let counter = counter.with_label_values(labels);
            counter.inc_by(more.min(u64::MAX - counter.get()));
        };
        for (protocol, flow) in PROTOCOLS.iter().zip(&lane.sent) {
            let labels = [pid, command, uid, name, protocol];
            if *flow != Traffic::default() {
                add(&self.sent_messages, &labels, flow.total.messages);
                add(&self.sent_bytes, &labels, flow.total.bytes);
            }
        }
        if let Some(received) = &lane.received {
            let labels = [pid, command, uid, name];
            add(&self.received_messages, &labels, received.total.messages);
            add(&self.received_bytes, &labels, received.total.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_served_and_a_file_has_the_collectors_ending() {
        let served = Target::Address("127.0.0.1:9500".parse().unwrap());
        assert_eq!("127.0.0.1:9500".parse(), Ok(served));
        assert_eq!(
            "/x/rucp.prom".parse(),
            Ok(Target::File("/x/rucp.prom".into()))
        );
        assert!("9500".parse::<Target>().is_err() && "rucp.txt".parse::<Target>().is_err());
    }

    #[test]
    fn sums_of_hostile_numbers_do_not_wrap() {
        let metrics = Metrics::new().unwrap();
        let flow = Traffic {
            total: ucp::wire::stats::MsgBytes {
                messages: u64::MAX,
                bytes: 1,
            },
            ..Traffic::default()
        };
        let mut lane = LaneRow {
            lane: "tcp/eth0".into(),
            sent: [Traffic::default(); PROTOCOLS.len()],
            all_sent: flow,
            received: Some(flow),
        };
        lane.sent[1] = flow;
        metrics.add_lane(["1", "x", "0x2"], &lane);
        metrics.add_lane(["1", "x", "0x2"], &lane);
        let text = TextEncoder::new()
            .encode_to_string(&metrics.registry.gather())
            .unwrap();
        let labels = r#"command="x",lane="tcp/eth0",pid="1""#;
        let sent =
            format!("rucp_sent_messages_total{{{labels},protocol=\"eager\",worker=\"0x2\"}}");
        // Prometheus's numbers are floating-point numbers.
        let sum = u64::MAX as f64;
        assert!(text.contains(&format!("{sent} {sum}\n")), "{text}");
        assert!(text.contains(&format!(
            "rucp_received_bytes_total{{{labels},worker=\"0x2\"}} 2\n"
        )));
        assert!(!text.contains("protocol=\"short\""));
    }
}
