//! Several trace files as one.

use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

/// The kernel gives no process a number from here on.
const FIRST_FREE_PID: u64 = 1 << 22;

/// What the begin of a file says of its process.
struct Origin {
    host: String,
    /// Nanoseconds from the clock of the events to the time of day.
    offset_ns: i128,
}

/// Numbers of processes, which are unique within a host.
struct ProcessNumbers {
    /// The host that has the number in the result.
    hosts: HashMap<u64, String>,
    replaced: HashMap<(String, u64), u64>,
    next: u64,
}

impl ProcessNumbers {
    fn new() -> Self {
        ProcessNumbers {
            hosts: HashMap::new(),
            replaced: HashMap::new(),
            next: FIRST_FREE_PID,
        }
    }

    /// The number in the result of process `pid` of a host.
    fn of(&mut self, host: &str, pid: u64) -> u64 {
        let owner = self.hosts.entry(pid).or_insert_with(|| host.to_owned());
        if owner == host {
            return pid;
        }
        *self
            .replaced
            .entry((host.to_owned(), pid))
            .or_insert_with(|| {
                self.next += 1;
                self.next - 1
            })
    }
}

/// Writes the events of all files. Returns why files, or their ends, are left out.
///
/// # Errors
/// Those of the output.
pub fn merge(files: &[PathBuf], out: &mut impl Write) -> io::Result<Vec<String>> {
    let mut numbers = ProcessNumbers::new();
    let mut first: Option<Origin> = None;
    let mut left_out = Vec::new();
    let mut before = "[\n";
    for path in files {
        let opened = origin(path).and_then(|origin| Ok((origin, File::open(path)?)));
        let (origin, file) = match opened {
            Ok(opened) => opened,
            Err(e) => {
                left_out.push(format!("{}: {e}", path.display()));
                continue;
            }
        };
        // Processes of one host have one clock, but each has read the time of day at another moment.
        let shift_us = match &first {
            Some(first) if first.host != origin.host => {
                (origin.offset_ns - first.offset_ns) as f64 / 1000.0
            }
            _ => 0.0,
        };
        for line in BufReader::new(file).lines() {
            let line = match line {
                Ok(line) => line,
                Err(e) => {
                    left_out.push(format!("{}: {e}: the rest is left out", path.display()));
                    break;
                }
            };
            let Some(mut event) = event(&line) else {
                continue;
            };
            if let Some(pid) = event["pid"].as_u64() {
                event["pid"] = json!(numbers.of(&origin.host, pid));
            }
            if shift_us != 0.0
                && let Some(at) = event["ts"].as_f64()
            {
                event["ts"] = json!(((at + shift_us) * 1000.0).round() / 1000.0);
            }
            write!(out, "{before}{event}")?;
            before = ",\n";
        }
        first.get_or_insert(origin);
    }
    if before == "[\n" {
        write!(out, "[")?;
    }
    writeln!(out, "\n]")?;
    Ok(left_out)
}

/// An event of a line; `None` for the ends of the array, and for a line that was not written to its end.
fn event(line: &str) -> Option<Value> {
    let event: Value = serde_json::from_str(line.trim_end().trim_end_matches(',')).ok()?;
    event.is_object().then_some(event)
}

/// What the begin of a file says of its process.
fn origin(path: &Path) -> io::Result<Origin> {
    for line in BufReader::new(File::open(path)?).lines() {
        let Some(event) = event(&line?) else {
            continue;
        };
        let args = &event["args"];
        let offset = args["realtime_minus_monotonic_ns"].as_str();
        if let (Some(host), Some(offset)) = (
            args["host"].as_str(),
            offset.and_then(|offset| offset.parse().ok()),
        ) {
            return Ok(Origin {
                host: host.to_owned(),
                offset_ns: offset,
            });
        }
    }
    let why = "no begin of a trace is in it: is it a file of UCX_TRACE_FILE?";
    Err(io::Error::new(io::ErrorKind::InvalidData, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_two_hosts_is_replaced_once() {
        let mut numbers = ProcessNumbers::new();
        assert_eq!(numbers.of("a", 5), 5);
        let other = numbers.of("b", 5);
        assert!(other >= FIRST_FREE_PID);
        assert_eq!((numbers.of("b", 5), numbers.of("a", 5)), (other, 5));
        assert_eq!(numbers.of("b", 6), 6);
        assert_ne!(numbers.of("c", 5), other);
    }

    #[test]
    fn a_line_is_an_event_or_nothing() {
        assert_eq!((event("["), event("]")), (None, None));
        assert_eq!(event(r#"{"ph":"#), None);
        assert_eq!(event("{\"pid\":5},").unwrap()["pid"], 5);
    }
}
