//! Which way two processes take, and why not a faster one.

use crate::copies;
use crate::exchange::{EndReport, PairResult, Stage};
use crate::facts::Facts;
use crate::finding::Finding;
use crate::library_log::complaints;
use crate::system;
use indexmap::IndexSet;

/// Transports through shared memory.
const SHARED: [&str; 2] = ["posix", "sysv"];
/// Transports by adapters.
const ADAPTERS: [&str; 8] = [
    "tofu", "rc_verbs", "ud_verbs", "ofi", "cxi", "efa", "opx", "psm3",
];

impl PairResult {
    /// Whether messages have gone through shared memory, in both directions.
    fn is_shared(&self) -> bool {
        let shared = |end: &EndReport| {
            let first = end.lanes.first();
            first.is_some_and(|lane| SHARED.iter().any(|tl| lane.starts_with(tl)))
        };
        shared(&self.here.1) && shared(&self.there.1)
    }

    fn same_host(&self) -> bool {
        self.here.0.same_host(&self.there.0)
    }
}

/// All findings on a pair.
pub fn check(pair: &PairResult) -> Vec<Finding> {
    let mut findings: Vec<Finding> = failure(pair).into_iter().collect();
    findings.extend(same_processor(pair));
    findings.extend(settings(pair));
    if pair.same_host() && pair.here.1.stage >= Stage::NoEndpoint {
        if pair.is_shared() {
            findings.extend(copies::check(pair));
        } else {
            findings.extend(without_shared_memory(pair));
        }
    }
    if !pair.same_host() && pair.here.1.stage == Stage::Complete {
        findings.extend(without_adapters(pair));
    }
    findings
}

/// Why there was no exchange.
fn failure(pair: &PairResult) -> Option<Finding> {
    let (here, there) = (&pair.here.1, &pair.there.1);
    let error = here.error.as_ref().or(there.error.as_ref())?;
    let said = all_complaints(pair);
    let found = if said.is_empty() {
        error.clone()
    } else {
        format!("{error}; the library says: {}", said.join("; "))
    };
    Some(match here.stage.min(there.stage) {
        Stage::NoWorker => Finding::broken(
            "no-worker",
            found,
            "a program fails at ucp_init or ucp_worker_create",
            "see the other findings, and those at the other end",
        ),
        Stage::NoEndpoint => Finding::broken(
            "pair-unreachable",
            format!(
                "{found}. Here: {}. There: {}",
                pair.here.0.resources.join(" "),
                pair.there.0.resources.join(" ")
            ),
            "ucp_ep_create fails with UCS_ERR_UNREACHABLE: no transport leads from one end to the other",
            "allow a common transport at both ends: UCX_TLS, UCX_NET_DEVICES",
        ),
        Stage::NoMessages | Stage::Complete => Finding::broken(
            "pair-no-exchange",
            found,
            "a connection is not made: a job waits, or fails after a time-out",
            "name in UCX_NET_DEVICES, at both ends, the interfaces by which the hosts reach each other; let a firewall \
             pass the ports of UCX_TCP_PORT_RANGE",
        ),
    })
}

/// Both ends may run on one and the same processor only.
fn same_processor(pair: &PairResult) -> Option<Finding> {
    let (here, there) = (&pair.here.0.processors, &pair.there.0.processors);
    let shared =
        pair.same_host() && here.len() == 1 && here == there && system::online_processors() > 1;
    shared.then(|| {
        Finding::slow(
            "pair-one-processor",
            format!("both processes may run on processor {} only", here[0]),
            "they take turns: a message waits until the receiver runs",
            "bind each process to a processor of its own (mpirun --bind-to core)",
        )
    })
}

/// Variables that differ.
fn settings(pair: &PairResult) -> Option<Finding> {
    let only = |a: &Facts, b: &Facts| -> Vec<String> {
        let others = a.variables.iter().filter(|v| !b.variables.contains(v));
        others.cloned().collect()
    };
    let here = only(&pair.here.0, &pair.there.0);
    let there = only(&pair.there.0, &pair.here.0);
    (!here.is_empty() || !there.is_empty()).then(|| {
        Finding::note(
            "pair-settings",
            format!("only here: {}; only there: {}", list(&here), list(&there)),
            "the two ends select transports and thresholds by different rules",
            "export the variables to all processes (mpirun -x NAME, -genv NAME VALUE)",
        )
    })
}

/// What the libraries at both ends say, each message once.
fn all_complaints(pair: &PairResult) -> Vec<String> {
    let (here, there) = (&pair.here.1.log, &pair.there.1.log);
    let all: IndexSet<&str> = complaints(here).chain(complaints(there)).collect();
    all.into_iter().map(str::to_owned).collect()
}

fn list(items: &[String]) -> String {
    if items.is_empty() {
        "none".to_owned()
    } else {
        items.join("; ")
    }
}

/// Why two processes of one host do not share memory.
fn without_shared_memory(pair: &PairResult) -> Option<Finding> {
    let (here, there) = (&pair.here.0, &pair.there.0);
    let effect = "processes of one host use a network transport, or fail without one";
    if !here.has(&SHARED) && !there.has(&SHARED) {
        // Reported with the variables.
        return None;
    }
    if let Some(end) = [("here", here), ("there", there)]
        .into_iter()
        .find(|(_, end)| !end.has(&SHARED))
    {
        return Some(Finding::slow(
            "pair-shm-excluded",
            format!("shared memory is not among the transports {}", end.0),
            effect,
            "add sm to UCX_TLS at both ends",
        ));
    }
    if here.user != there.user {
        return Some(Finding::slow(
            "pair-user",
            format!("the users differ: {} here, {} there", here.user, there.user),
            effect,
            "run both processes as one user",
        ));
    }
    if here.ipc_ns != there.ipc_ns {
        return Some(Finding::slow(
            "pair-ipc-namespace",
            format!(
                "the IPC namespaces differ: {} here, {} there",
                here.ipc_ns, there.ipc_ns
            ),
            effect,
            "docker run --ipc=host, or --ipc=container:NAME; or share /dev/shm and set UCX_POSIX_USE_PROC_LINK=n at \
             both ends",
        ));
    }
    if here.pid_ns != there.pid_ns {
        return Some(Finding::slow(
            "pair-pid-namespace",
            format!(
                "the PID namespaces differ: {} here, {} there",
                here.pid_ns, there.pid_ns
            ),
            effect,
            "docker run --pid=host, or --pid=container:NAME",
        ));
    }
    Some(Finding::slow(
        "pair-shm-unused",
        format!(
            "both processes are on one host, and shared memory is not used: {}",
            list(&all_complaints(pair))
        ),
        effect,
        "see the findings on limits and shared memory at both ends",
    ))
}

/// Why two hosts use TCP, though one or both have an adapter.
fn without_adapters(pair: &PairResult) -> Option<Finding> {
    let (here, there) = (&pair.here.0, &pair.there.0);
    if !pair
        .here
        .1
        .lanes
        .iter()
        .any(|lane| lane.starts_with("tcp/"))
    {
        return None;
    }
    let of = |facts: &Facts| facts.devices(&ADAPTERS).join(" ");
    match (here.has(&ADAPTERS), there.has(&ADAPTERS)) {
        (false, false) => None,
        (true, true) => Some(Finding::slow(
            "pair-adapters-unused",
            format!(
                "both hosts have adapters ({} here, {} there), and tcp is used: {}",
                of(here),
                of(there),
                list(&all_complaints(pair))
            ),
            "messages take the slower transport",
            "both must have a transport in common whose ports are in one fabric or subnet: UCX_TLS, UCX_NET_DEVICES",
        )),
        (is_here, _) => {
            let (with, without, facts) = if is_here {
                ("here", "there", here)
            } else {
                ("there", "here", there)
            };
            Some(Finding::slow(
                "pair-adapter-at-one-end",
                format!(
                    "adapters can be used {with} ({}), and none {without}",
                    of(facts)
                ),
                "the hosts communicate by tcp",
                "run rucp_doctor at the end without: it says why its adapter is not used",
            ))
        }
    }
}
