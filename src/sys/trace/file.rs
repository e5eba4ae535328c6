//! The trace file: an array of JSON, which ends behind a whole event at any time.

use super::event::{ArgValue, EventPhase, TraceEvent};
use super::head::head;
use super::own_file::open_locked;
use crate::sys::descriptor::OwnedDescriptor;
use crate::sys::log;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

/// A trace file that this process writes. The lock on it ends with the descriptor; a forked child has none of both.
pub struct TraceFile {
    file: OwnedDescriptor<File>,
    path: String,
    /// Bytes up to the end of the last event, where the end of the array is.
    end: u64,
    /// Where the next event is written: there, or at the next page.
    len: u64,
    /// Bytes that it may have.
    limit: u64,
    state: LimitState,
    /// Events could not be written: nothing more is tried.
    has_failed: bool,
}

/// Whether events are recorded.
#[derive(Clone, Copy)]
enum LimitState {
    /// They are. `dropped`: those that are missing because of a former limit.
    Below { dropped: u64 },
    /// The file has reached its limit: they are only counted.
    Reached(DroppedEvents),
}

/// The events that a file at its limit does not have.
#[derive(Clone, Copy)]
struct DroppedEvents {
    /// When the first one was dropped, nanoseconds of the events' clock.
    since: u64,
    count: u64,
    /// Where the event that has their number ends in the file.
    notice_end: u64,
}

/// Ends the array. Overwritten by later events.
const END: &[u8] = b"\n]\n";
/// Bytes that the kernel writes at a time, of a file that is written behind what it has.
const PAGE: usize = 4096;
/// Bytes that events leave for the last one, which says how many were dropped, and for the end of the array. The event
/// is shorter than half of them; the rest is what is left of the page before it.
const NOTICE_BYTES: u64 = 1024;
/// Least limit: the names of the process, and the event that says how many were dropped.
const MIN_LIMIT: u64 = 4096;

impl TraceFile {
    /// Opens the file of this name, and empties it. A file that another process writes is left to it: this process adds
    /// its number to the name. The file has at most `limit` bytes, [`MIN_LIMIT`] at least.
    ///
    /// # Errors
    /// Those of the system calls; `InvalidInput` for what is not a file of this user's own.
    pub fn create(pattern: &str, limit: u64) -> io::Result<TraceFile> {
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
            limit: limit.max(MIN_LIMIT),
            state: LimitState::Below { dropped: 0 },
            has_failed: false,
        })
    }

    /// Sets the limit of what is recorded from now on. True: the file was full, and takes events again, behind the one
    /// that says how many are missing before. A file that is longer than a lower limit keeps what it has.
    pub fn set_limit(&mut self, limit: u64) -> bool {
        self.limit = limit.max(MIN_LIMIT);
        let LimitState::Reached(dropped) = self.state else {
            return false;
        };
        let gains_room = dropped.notice_end.saturating_add(NOTICE_BYTES) < self.limit;
        if gains_room {
            (self.len, self.end) = (dropped.notice_end, dropped.notice_end);
            self.state = LimitState::Below {
                dropped: dropped.count,
            };
        }
        gains_room
    }

    /// The name of the file.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// False: the program has closed the descriptor, or an error has ended the file.
    pub fn is_usable(&self) -> bool {
        !self.has_failed && self.file.is_intact()
    }

    /// Whether the name still leads to the file: it was not removed, renamed or replaced.
    pub fn has_its_name(&self) -> bool {
        let identity = |file: Metadata| (file.dev(), file.ino());
        let named = fs::symlink_metadata(&self.path).map(identity).ok();
        named.is_some() && named == self.file.metadata().map(identity).ok()
    }

    /// The file has reached its limit: it takes no further events, and only counts them.
    pub fn is_full(&self) -> bool {
        matches!(self.state, LimitState::Reached(_))
    }

    /// Appends whole events, each with a comma in front; in front of the first ones, what identifies the process. From
    /// the first one on that does not fit into the limit they are counted as dropped. After an error the file ends with
    /// the last events that were written, and nothing more is written; the error is logged, once. Only for the writer's
    /// thread: it blocks the signal that a write beyond `RLIMIT_FSIZE` raises.
    pub fn append(&mut self, events: &str) {
        if self.is_full() {
            return self.drop_events(count_events(events.as_bytes()));
        }
        if !self.is_usable() {
            return;
        }
        let begun = match self.len {
            0 => self.write(head().as_bytes()),
            _ => Ok(()),
        };
        if let Err(error) = begun.and_then(|()| self.write_events(events.as_bytes())) {
            self.fail(&error);
        }
    }

    /// Counts further events of a file that [is full](Self::is_full) as dropped, and writes their number.
    pub fn drop_events(&mut self, more: u64) {
        let LimitState::Reached(mut dropped) = self.state else {
            return;
        };
        if more == 0 {
            return;
        }
        dropped.count += more;
        self.state = LimitState::Reached(dropped);
        if self.is_usable()
            && let Err(error) = self.write_notice(dropped)
        {
            self.fail(&error);
        }
    }

    /// Ends the file behind its last event.
    #[cold]
    fn fail(&mut self, error: &io::Error) {
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
            let recorded = self.limit.saturating_sub(NOTICE_BYTES);
            let piece = match whole_events(events, left.saturating_sub(END.len())) {
                0 if left < PAGE => {
                    let behind = self.len + (left + first_event(events)) as u64;
                    if behind > recorded {
                        return self.reach_limit(events);
                    }
                    self.file.write_all_at(&[b' '; PAGE][..left], self.len)?;
                    self.len += left as u64;
                    continue;
                }
                // Longer than a page.
                0 => first_event(events),
                fits => fits,
            };
            let room = usize::try_from(recorded.saturating_sub(self.len)).unwrap_or(usize::MAX);
            match whole_events(&events[..piece], room) {
                0 => return self.reach_limit(events),
                fits => {
                    self.write(&events[..fits])?;
                    events = &events[fits..];
                }
            }
        }
        Ok(())
    }

    /// Drops the first events that do not fit into the limit, which is logged: there is one line of it, and no further
    /// events.
    #[cold]
    fn reach_limit(&mut self, events: &[u8]) -> io::Result<()> {
        log::warn!(
            "the trace file {} has reached the {} bytes of UCX_TRACE_MAX_SIZE: later events are counted there, not \
             recorded. A larger value, or inf, makes room for them",
            self.path,
            self.limit
        );
        let before = match self.state {
            LimitState::Below { dropped } => dropped,
            LimitState::Reached(dropped) => dropped.count,
        };
        let dropped = DroppedEvents {
            since: super::now(),
            count: before + count_events(events),
            notice_end: self.end,
        };
        self.state = LimitState::Reached(dropped);
        self.write_notice(dropped)
    }

    /// Writes how many events were dropped, over what was written of that before: as long, or longer, because the
    /// number grows.
    fn write_notice(&mut self, mut dropped: DroppedEvents) -> io::Result<()> {
        let pid = std::process::id();
        let args = [
            ("in all", ArgValue::from(dropped.count)),
            ("reason", "the file has the size UCX_TRACE_MAX_SIZE".into()),
        ];
        let (category, name) = ("trace", "events dropped");
        let mut event = TraceEvent::new(
            EventPhase::Instant,
            category,
            name,
            dropped.since,
            0,
            0,
            &args,
        );
        // The first thread stands for the process.
        event.thread = pid as i32;
        let mut text = String::from(",\n");
        event.write(pid, &mut text);
        let bytes = [text.as_bytes(), END].concat();
        debug_assert!(bytes.len() as u64 <= NOTICE_BYTES / 2);
        let left = PAGE - (self.len % PAGE as u64) as usize;
        if left < NOTICE_BYTES as usize / 2 {
            self.file.write_all_at(&[b' '; PAGE][..left], self.len)?;
            self.len += left as u64;
        }
        dropped.notice_end = self.len + text.len() as u64;
        self.state = LimitState::Reached(dropped);
        self.file.write_all_at(&bytes, self.len)
    }

    /// Writes bytes over the end of the array, and the end behind them.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(&[bytes, END].concat(), self.len)?;
        self.len += bytes.len() as u64;
        self.end = self.len;
        Ok(())
    }
}

/// How many events begin in a text; what describes processes and threads is none.
fn count_events(text: &[u8]) -> u64 {
    const METADATA: &[u8] = b",\n{\"ph\":\"M\"";
    let begins = text.windows(2).enumerate().filter(|(_, w)| *w == b",\n");
    begins
        .filter(|&(at, _)| !text[at..].starts_with(METADATA))
        .count() as u64
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
    fn a_file_keeps_its_limit_and_says_what_it_lacks() {
        keeps_limit(20_000, 1);
        // Limits at the end of a page, and events that do not fit into what is left of one.
        keeps_limit(2 * PAGE as u64, 500);
        keeps_limit(3 * PAGE as u64, 1300);
    }

    /// Appends events of `shortest` bytes and more to a file of at most `limit`.
    fn keeps_limit(limit: u64, shortest: usize) {
        let path = std::env::temp_dir().join(format!("rucp-trace-limit-{}", std::process::id()));
        let mut file = TraceFile::create(path.to_str().unwrap(), limit).unwrap();
        let event = |n: usize| format!(",\n{{\"n\":\"{}\"}}", "x".repeat(n));
        let mut appended = 0;
        for n in shortest..shortest + 400 {
            file.append(&(event(n) + &event(3 * n) + ",\n{\"ph\":\"M\"}"));
            appended += 2;
            if file.is_full() {
                file.drop_events(5);
                appended += 5;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(
                text.len() as u64 <= limit && text.ends_with("}\n]\n"),
                "{n}"
            );
            let recorded = text.matches("{\"n\":").count();
            let notice = text
                .split(",\n")
                .find(|event| event.contains("events dropped"));
            let dropped = notice.map_or("0", |event| {
                let number = event.split("\"in all\":").nth(1).unwrap();
                number.split(',').next().unwrap()
            });
            assert_eq!(
                recorded + dropped.parse::<usize>().unwrap(),
                appended,
                "{n}"
            );
        }
        assert!(file.is_full());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_limit_inside_of_a_page_is_used() {
        let path = std::env::temp_dir().join(format!("rucp-trace-page-{}", std::process::id()));
        let event = ",\n{\"n\":5}";
        for limit in (MIN_LIMIT..3 * MIN_LIMIT).step_by(500) {
            let mut file = TraceFile::create(path.to_str().unwrap(), limit).unwrap();
            file.append(&event.repeat(limit as usize));
            let len = std::fs::metadata(&path).unwrap().len();
            let unused = limit.checked_sub(len).unwrap();
            assert!(
                unused < NOTICE_BYTES + event.len() as u64,
                "{len} of {limit}"
            );
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_with_a_higher_limit_goes_on_behind_what_it_lacks() {
        let path = std::env::temp_dir().join(format!("rucp-trace-grows-{}", std::process::id()));
        let mut file = TraceFile::create(path.to_str().unwrap(), MIN_LIMIT).unwrap();
        let event = |n: usize| format!(",\n{{\"n\":{n}}}");
        let mut appended = 0;
        let mut fill = |file: &mut TraceFile| {
            while !file.is_full() {
                file.append(&event(appended));
                appended += 1;
            }
            file.drop_events(10);
            appended += 10;
        };
        fill(&mut file);
        assert!(!file.set_limit(MIN_LIMIT) && file.is_full());
        for limit in [10_000, 20_000] {
            assert!(file.set_limit(limit) && !file.is_full());
            fill(&mut file);
        }
        // The limit is lower than what the file has.
        assert!(!file.set_limit(MIN_LIMIT));
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(text.len() <= 20_000 && text.ends_with("}\n]\n"));
        let numbers = text.split("\"in all\":").skip(1);
        let numbers: Vec<usize> = (numbers.map(|rest| rest.split(',').next().unwrap()))
            .map(|number| number.parse().unwrap())
            .collect();
        assert_eq!(numbers, [11, 22, 33]);
        assert_eq!(text.matches("{\"n\":").count() + 33, appended);
    }

    #[test]
    fn a_removed_or_replaced_file_has_no_name() {
        let path = std::env::temp_dir().join(format!("rucp-trace-name-{}", std::process::id()));
        let file = TraceFile::create(path.to_str().unwrap(), u64::MAX).unwrap();
        assert!(file.has_its_name());
        std::fs::remove_file(&path).unwrap();
        assert!(!file.has_its_name());
        std::fs::write(&path, "of another program").unwrap();
        assert!(!file.has_its_name());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_is_whole_and_its_events_are_in_one_page() {
        let directory = std::env::temp_dir();
        let path = directory.join(format!("rucp-trace-test-{}", std::process::id()));
        let mut file = TraceFile::create(path.to_str().unwrap(), u64::MAX).unwrap();
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
