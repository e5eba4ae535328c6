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
    pid: u64,
    /// When the file begins, nanoseconds of the time of day.
    began_ns: i128,
}

impl Origin {
    /// Nanoseconds of the time of day of an event of the file.
    fn time_of(&self, event: &Value) -> Option<i128> {
        let ns = event["ts"].as_f64()? * 1000.0;
        Some(ns as i128 + self.offset_ns)
    }
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
        if let Some(why) = earlier_run(path, &origin, files) {
            left_out.push(format!("{}: {why}", path.display()));
            continue;
        }
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

/// Why a file is of an earlier run than the others, if it is. A process that finds the name in use by another process
/// adds its number; the file of that name is replaced by the next run, and those with a number are not. So a file
/// `NAME.PID` that ends before the file `NAME` begins is left from a run before.
fn earlier_run(path: &Path, origin: &Origin, files: &[PathBuf]) -> Option<String> {
    let number = path.extension()?.to_str()?.parse::<u64>().ok()?;
    let name = path.with_extension("");
    if number != origin.pid || !files.contains(&name) {
        return None;
    }
    let began_ns = self::origin(&name).ok()?.began_ns;
    let lines = BufReader::new(File::open(path).ok()?).lines();
    let times = lines
        .map_while(Result::ok)
        .filter_map(|line| origin.time_of(&event(&line)?));
    let ended_ns = times.max()?;
    (ended_ns < began_ns).then(|| {
        let seconds = (began_ns - ended_ns) as f64 / 1e9;
        let name = name.display();
        format!("of an earlier run: it ends {seconds:.1} s before {name} begins")
    })
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
            let mut origin = Origin {
                host: host.to_owned(),
                offset_ns: offset,
                pid: event["pid"].as_u64().unwrap_or(0),
                began_ns: offset,
            };
            origin.began_ns = origin.time_of(&event).unwrap_or(offset);
            return Ok(origin);
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

    /// A file of a process whose clock began at `offset` seconds, with events at so many seconds of it.
    fn write_file(path: &Path, pid: u64, offset: u64, times: &[u64]) {
        let args = json!({"host": "a", "realtime_minus_monotonic_ns": (offset * 1_000_000_000).to_string()});
        let events = times
            .iter()
            .map(|s| json!({"ph": "i", "pid": pid, "ts": s * 1_000_000, "args": args}).to_string());
        let events: Vec<String> = events.collect();
        std::fs::write(path, format!("[\n{}\n]\n", events.join(",\n"))).unwrap();
    }

    #[test]
    fn a_numbered_file_of_an_earlier_run_is_left_out() {
        let directory = std::env::temp_dir().join(format!("rucp-merge-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = |name: &str| directory.join(name);
        // One run from 1010 s to 1020 s; two processes before it, one of which ended while it ran.
        write_file(&path("t"), 5, 1000, &[10, 20]);
        write_file(&path("t.6"), 6, 1000, &[5, 9]);
        write_file(&path("t.7"), 7, 1000, &[5, 11]);
        // Before a restart of the host: by its own clock it would be later. And one that only looks like these.
        write_file(&path("t.8"), 8, 100, &[90, 95]);
        write_file(&path("t.9"), 8, 1000, &[5, 9]);
        let files = ["t", "t.6", "t.7", "t.8", "t.9"].map(path);
        let mut out = Vec::new();
        let left_out = merge(&files, &mut out).unwrap();
        // Without the file whose name they have it is not known.
        let alone = merge(&files[1..2], &mut Vec::new()).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!((left_out.len(), alone.len()), (2, 0), "{left_out:?}");
        assert!(left_out[0].contains("t.6: of an earlier run: it ends 1.0 s before"));
        assert!(left_out[1].contains("t.8: of an earlier run: it ends 815.0 s before"));
        let merged: Vec<Value> = serde_json::from_slice(&out).unwrap();
        let mut pids: Vec<u64> = merged.iter().map(|e| e["pid"].as_u64().unwrap()).collect();
        pids.dedup();
        assert_eq!(pids, [5, 7, 8]);
    }

    #[test]
    fn a_line_is_an_event_or_nothing() {
        assert_eq!((event("["), event("]")), (None, None));
        assert_eq!(event(r#"{"ph":"#), None);
        assert_eq!(event("{\"pid\":5},").unwrap()["pid"], 5);
    }
}
