//! The report: text, or JSON.

use crate::exchange::{EndReport, PairResult};
use crate::facts::Facts;
use crate::finding::{Finding, Severity};
use serde_json::{Value, json};
use std::fmt::Write;
use ucp::abi::lib_info::RUCP_VERSION;
use ucp::sys::host;

/// What was looked at, and what was found.
#[derive(Default)]
pub struct Report {
    /// Exchange with another process of this host, or with another host.
    pub pair: Option<PairResult>,
    /// The pair is with an instance of the user's, not with a process that was started for it.
    pub remote: bool,
    /// A program and its libraries that are UCXs.
    pub program: Option<(String, Vec<String>)>,
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether something prevents or slows a transport.
    pub fn has_faults(&self) -> bool {
        self.findings
            .iter()
            .any(|finding| finding.severity > Severity::Note)
    }

    /// The worst first, each fault once, and consequences only where their causes were not found.
    pub fn sort(&mut self) {
        let has = |ids: &[&str]| {
            self.findings
                .iter()
                .any(|finding| ids.contains(&&*finding.id))
        };
        let explained = has(&["option-invalid", "no-transport"]);
        self.findings
            .retain(|finding| !explained || finding.id != "no-worker");
        self.findings
            .sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        let mut seen = Vec::new();
        self.findings.retain(|finding| {
            let key = (finding.id.clone(), finding.found.clone());
            let is_new = !seen.contains(&key);
            seen.push(key);
            is_new
        });
    }

    /// As text.
    pub fn text(&self) -> String {
        let mut out = format!("rucp {RUCP_VERSION} on {}\n\n", host::host_name());
        // Writing to a string cannot fail.
        if let Some((program, ucxs)) = &self.program {
            let _ = writeln!(out, "program: {program}");
            for ucx in ucxs {
                let _ = writeln!(out, "  {ucx}");
            }
            out.push('\n');
        }
        if let Some(pair) = &self.pair {
            out += &self.ways(pair);
            out.push('\n');
        }
        for finding in &self.findings {
            let severity = match finding.severity {
                Severity::Note => "note",
                Severity::Slow => "SLOW",
                Severity::Broken => "BROKEN",
            };
            let _ = writeln!(
                out,
                "{severity} {}: {}\n  effect: {}\n  change: {}",
                finding.id, finding.found, finding.effect, finding.change
            );
        }
        if !self.has_faults() {
            out += "No fault was found.\n";
        }
        out
    }

    fn ways(&self, pair: &PairResult) -> String {
        let (here, there) = (&pair.here, &pair.there);
        let mut out = String::new();
        if self.remote {
            let peer = format!("process {} on {}", there.0.pid, there.0.host_name);
            out += &way(&format!("from here to {peer}"), &here.1);
            out += &way(&format!("from {peer} to here"), &there.1);
        } else {
            out += &way("to another process of this host", &here.1);
            let lanes = match pair.between_hosts.as_slice() {
                [] => "none".to_owned(),
                lanes => lanes.join(", "),
            };
            let _ = writeln!(out, "to other hosts: {lanes}");
        }
        out
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let end =
            |(facts, report): &(Facts, EndReport)| json!({"process": facts, "exchange": report});
        json!({
            "version": RUCP_VERSION,
            "host": host::host_name(),
            "program": self.program.as_ref().map(|(path, ucxs)| json!({"path": path, "ucx": ucxs})),
            "pair": self.pair.as_ref().map(|pair| json!({
                "here": end(&pair.here),
                "there": end(&pair.there),
                "between_hosts": pair.between_hosts,
            })),
            "findings": self.findings,
        })
    }
}

/// The lanes and protocols of one direction.
fn way(title: &str, end: &EndReport) -> String {
    let lanes = match end.lanes.as_slice() {
        [] => "none".to_owned(),
        lanes => lanes.join(", "),
    };
    let done = match &end.error {
        None => "messages of 8 B to 4 MiB were exchanged and checked".to_owned(),
        Some(error) => format!("no exchange: {error}"),
    };
    let mut out = format!("{title}: {lanes} ({done})\n");
    for row in &end.used {
        let _ = writeln!(out, "  {row}");
    }
    out
}
