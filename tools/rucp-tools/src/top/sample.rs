//! A sample: the statistics pages of all workers that this user may read, at one moment.

use std::collections::HashSet;
use std::path::Path;
use std::time::Instant;
use std::{fs, io};
use ucp::sys::ro_memfd;
use ucp::wire::stats::{self, WorkerStats};
use ucp::wire::waits;

/// Most attempts to copy a page between two writes.
const ATTEMPTS: usize = 5;

/// A worker and its process.
#[derive(Clone, Debug)]
pub struct WorkerSample {
    /// Its id in this process's namespace.
    pub pid: u32,
    pub command: String,
    pub stats: WorkerStats,
}

/// All workers, in the order of their processes.
#[derive(Clone, Debug)]
pub struct Sample {
    pub at: Instant,
    pub workers: Vec<WorkerSample>,
}

impl Sample {
    /// Reads the pages of one process, or of all. Processes that end meanwhile and invalid pages
    /// are left out.
    pub fn take(only: Option<u32>) -> Sample {
        let mut pids = only.map_or_else(all_pids, |pid| vec![pid]);
        pids.sort_unstable();
        let mut seen = HashSet::new();
        let workers = pids.into_iter().flat_map(workers_of);
        Sample {
            // A forked child has its parent's descriptors; the same identity is accepted once.
            workers: workers.filter(|w| seen.insert(w.stats.uid)).collect(),
            at: Instant::now(),
        }
    }
}

fn all_pids() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).collect()
}

fn workers_of(pid: u32) -> Vec<WorkerSample> {
    let pages = ro_memfd::of_process(pid);
    if pages.is_empty() {
        return Vec::new();
    }
    let Some(inner) = inner_pid(pid) else {
        return Vec::new();
    };
    let copies = pages.iter().filter_map(|page| settled_copy(page).ok());
    copies
        .filter_map(|copy| stats::decode(&copy).ok())
        .filter(|stats| stats.pid == inner)
        .map(|stats| WorkerSample {
            pid,
            command: command_of(pid),
            stats,
        })
        .collect()
}

/// A copy of a page whose rows of waiting operations were not written meanwhile; after several attempts any copy.
fn settled_copy(page: &Path) -> io::Result<Vec<u8>> {
    let mut copy = ro_memfd::read(page, stats::PAGE_LEN)?;
    for _ in 0..ATTEMPTS {
        let again = ro_memfd::read(page, stats::HEADER_LEN)?;
        if !waits::was_written(&copy, &again) {
            break;
        }
        copy = ro_memfd::read(page, stats::PAGE_LEN)?;
    }
    Ok(copy)
}

/// The process's id in its own PID namespace.
fn inner_pid(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    line?.split_whitespace().last()?.parse().ok()
}

/// The name of a program, which can be any bytes.
fn command_of(pid: u32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let shown = |c: char| if c.is_control() { '?' } else { c };
    let name = String::from_utf8_lossy(&name);
    name.trim_end_matches('\n').chars().map(shown).collect()
}
