//! The trace file: an array of JSON, which ends behind a whole event at any time.

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
    /// Bytes up to the end of the last event, where the end of the array is.
    end: u64,
    /// Where the next event is written: there, or at the next page.
    len: u64,
    /// Events could not be written: nothing more is tried.
    has_failed: bool,
}

/// Ends the array. Overwritten by later events.
const END: &[u8] = b"\n]\n";
/// Bytes that the kernel writes at a time, of a file that is written behind what it has.
const PAGE: usize = 4096;

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
            end: 0,
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
        let begun = match self.len {
            0 => self.write(head().as_bytes()),
            _ => Ok(()),
        };
        let Err(error) = begun.and_then(|()| self.write_events(events.as_bytes())) else {
            return;
        };
        self.has_failed = true;
        // A part of an event may have been written over the end, whose place the file has; then the rest goes.
        let end = if self.end == 0 { b"[]\n" } else { END };
        let _ = self.file.write_all_at(end, self.end);
        let _ = self.file.set_len(self.end + end.len() as u64);
        log::warn!(
            "the trace file {} ends here: {error}. The program goes on without it",
            self.path
        );
    }

    /// Writes events in pieces that lie in one page each, if they fit: the kernel ends a process between two pages, and
    /// so its file does not end inside of an event. What is left of a page is filled with spaces.
    fn write_events(&mut self, mut events: &[u8]) -> io::Result<()> {
        while !events.is_empty() {
            let left = PAGE - (self.len % PAGE as u64) as usize;
            let fits = whole_events(events, left.saturating_sub(END.len()));
            let piece = match fits {
                0 if left < PAGE => {
                    self.file.write_all_at(&[b' '; PAGE][..left], self.len)?;
                    self.len += left as u64;
                    continue;
                }
                // Longer than a page.
                0 => first_event(events),
                _ => fits,
            };
            self.write(&events[..piece])?;
            events = &events[piece..];
        }
        Ok(())
    }

    /// Writes bytes over the end of the array, and the end behind them.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(&[bytes, END].concat(), self.len)?;
        self.len += bytes.len() as u64;
        self.end = self.len;
        Ok(())
    }
}

/// Bytes of the first event.
fn first_event(events: &[u8]) -> usize {
    let behind = events.windows(2).skip(1).position(|pair| pair == b",\n");
    behind.map_or(events.len(), |at| at + 1)
}

/// Bytes of the events, each of which begins with `,\n`, that fit into so many.
fn whole_events(events: &[u8], room: usize) -> usize {
    if events.len() <= room {
        return events.len();
    }
    let searched = &events[..(room + 2).min(events.len())];
    searched
        .windows(2)
        .rposition(|pair| pair == b",\n")
        .unwrap_or(0)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_events_are_taken() {
        let events = b",\n{1},\n{23},\n{4}";
        let len = events.len();
        for (room, fits) in [
            (0, 0),
            (4, 0),
            (5, 5),
            (10, 5),
            (11, 11),
            (len - 1, 11),
            (len, len),
        ] {
            assert_eq!(whole_events(events, room), fits, "{room}");
        }
        assert_eq!((first_event(events), first_event(&events[11..])), (5, 5));
    }

    #[test]
    fn a_file_is_whole_and_its_events_are_in_one_page() {
        let directory = std::env::temp_dir();
        let path = directory.join(format!("rucp-trace-test-{}", std::process::id()));
        let mut file = TraceFile::create(path.to_str().unwrap()).unwrap();
        let event = |n: usize| format!(",\n{{\"n\":\"{}\"}}", "x".repeat(n));
        for n in (1..200).chain([3000, 4080, 4081, 4082, 9000, 5]) {
            file.append(&(event(n) + &event(n / 2)));
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.starts_with("[\n") && text.ends_with("}\n]\n"), "{n}");
        }
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let begins: Vec<usize> = text.match_indices(",\n").map(|(at, _)| at).collect();
        for (i, &begin) in begins.iter().enumerate().skip(3) {
            let behind = begins.get(i + 1).copied().unwrap_or(text.len() - END.len());
            let len = text[begin..behind].trim_end().len();
            let is_in_one_page = begin / PAGE == (begin + len - 1) / PAGE;
            assert!(
                is_in_one_page || len > PAGE - END.len(),
                "{len} bytes at {begin}"
            );
        }
    }
}
