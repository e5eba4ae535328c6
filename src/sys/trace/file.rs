//! The trace file: an array of JSON whose last line is valid at any time, as readers accept it without its end.

use super::event::{EventArg, EventPhase, TraceEvent, write_value};
use crate::sys::descriptor::OwnedDescriptor;
use crate::sys::log;
use rustix::fs::{FlockOperation, flock};
use rustix::time::{ClockId, clock_gettime};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// A trace file that this process writes. The lock on it ends with the descriptor; a forked child has none of both.
pub struct TraceFile {
    file: OwnedDescriptor<File>,
    path: String,
    /// Bytes of whole events, behind which the end of the array is written.
    len: u64,
    /// Events could not be written: nothing more is tried.
    has_failed: bool,
}

/// Ends the array. Overwritten where the recording continues.
const END: &[u8] = b"\n]\n";

impl TraceFile {
    /// Opens the file of this name, and empties it. A file that another process writes is left to it: this process adds
    /// its number to the name.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn create(pattern: &str) -> io::Result<TraceFile> {
        let path = log::expand_name(pattern);
        let (file, path) = match open_locked(&path)? {
            Some(file) => (file, path),
            None => {
                let own = format!("{path}.{}", std::process::id());
                let file = open_locked(&own)?;
                let taken =
                    || io::Error::new(io::ErrorKind::AlreadyExists, "another process writes it");
                (file.ok_or_else(taken)?, own)
            }
        };
        file.set_len(0)?;
        Ok(TraceFile {
            file: OwnedDescriptor::new(file),
            path,
            len: 0,
            has_failed: false,
        })
    }

    /// The name of the file.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// False: the program has closed the descriptor, or an error has ended the file.
    pub fn is_usable(&self) -> bool {
        !self.has_failed && self.file.is_intact()
    }

    /// Appends whole events, each with a comma in front; in front of the first ones, what identifies the process. After
    /// an error the file ends with the last events that were written, and nothing more is written; the error is logged,
    /// once. Only for the writer's thread: it blocks the signal that a write beyond `RLIMIT_FSIZE` raises.
    pub fn append(&mut self, events: &str) {
        if !self.is_usable() {
            return;
        }
        let written = match self.len {
            0 => self.write_all(&[head().as_bytes(), events.as_bytes()].concat()),
            _ => self.write_all(events.as_bytes()),
        };
        let Err(error) = written else {
            return;
        };
        self.has_failed = true;
        // A part of an event may have been written.
        let _ = self.file.set_len(self.len);
        let end = if self.len == 0 { b"[]\n" } else { END };
        let _ = self.file.write_all_at(end, self.len);
        log::warn!(
            "the trace file {} ends here: {error}. The program goes on without it",
            self.path
        );
    }

    /// Ends the array.
    pub fn end(&mut self) {
        if self.len == 0 {
            self.append("");
        }
        if self.is_usable() {
            // Readers accept a file without its end.
            let _ = self.file.write_all_at(END, self.len);
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.len)?;
        self.len += bytes.len() as u64;
        Ok(())
    }
}

/// Opens a file and locks it against other processes. `None`: another process has it.
fn open_locked(path: &str) -> io::Result<Option<File>> {
    // O_NONBLOCK: a FIFO without a reader is an error, and nothing is waited for.
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no regular file",
        ));
    }
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        // A file system without locks.
        Err(_) => Ok(Some(file)),
    }
}

/// The begin of the array: names of the process, and its clock.
fn head() -> String {
    let pid = std::process::id();
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(|exe| exe.file_name());
    let program = program.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let rank = rank();
    let name = match &rank {
        Some(rank) => format!("rank {rank}: {program}"),
        None => program,
    };
    let mut out = String::from("[\n");
    metadata((pid, pid), "process_name", ("name", name.into()), &mut out);
    out.push_str(",\n");
    let labels = ("labels", format!("{} pid {pid}", log::host()).into());
    metadata((pid, pid), "process_labels", labels, &mut out);
    if let Some(order) = rank.as_deref().and_then(|rank| rank.parse::<u32>().ok()) {
        out.push_str(",\n");
        let order = ("sort_index", order.into());
        metadata((pid, pid), "process_sort_index", order, &mut out);
    }
    // Both clocks, read one after the other: how far this host's events are from those of other hosts.
    let real = clock_gettime(ClockId::Realtime);
    let monotonic = super::now();
    let real = real.tv_sec as i128 * 1_000_000_000 + i128::from(real.tv_nsec);
    let args = [
        ("host", log::host().into()),
        ("clock", "CLOCK_MONOTONIC".into()),
        (
            "realtime_minus_monotonic_ns",
            (real - i128::from(monotonic)).to_string().into(),
        ),
        ("version", env!("CARGO_PKG_VERSION").into()),
    ];
    let (category, name) = ("trace", "trace begins");
    let mut begin = TraceEvent::new(EventPhase::Instant, category, name, monotonic, 0, 0, &args);
    // The first thread stands for the process.
    begin.thread = pid as i32;
    out.push_str(",\n");
    begin.write(pid, &mut out);
    out
}

/// Appends what is known of a process and a thread of it.
pub fn metadata((pid, thread): (u32, u32), kind: &str, (arg, value): EventArg, out: &mut String) {
    // Writing to a String does not fail.
    let _ = write!(
        out,
        r#"{{"ph":"M","pid":{pid},"tid":{thread},"name":"{kind}","args":{{"{arg}":"#
    );
    write_value(&value, out);
    out.push_str("}}");
}

/// The rank of this process in its MPI job, if a launcher has set it.
fn rank() -> Option<String> {
    let names = [
        "OMPI_COMM_WORLD_RANK",
        "PMIX_RANK",
        "PMI_RANK",
        "SLURM_PROCID",
    ];
    names.iter().find_map(|name| std::env::var(name).ok())
}
