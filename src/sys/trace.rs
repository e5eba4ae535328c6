//! A timeline of protocol events for Perfetto, in the file that `UCX_TRACE_FILE` names; docs/TRACE.md describes the
//! events.
//!
//! An event is copied into a bounded buffer under a lock that is held for the copy alone. A thread of this module
//! takes the buffer a few times a second, formats the events and writes them: no thread of the program waits for the
//! file. An event that finds the buffer full is counted and dropped. The thread runs from the first context of the
//! process to its last.
//!
//! A process that records nothing pays a relaxed load and a branch at each place that records, all of which are off the
//! hot path. A forked child records nothing until it makes a context of its own, whose file has another name.

mod buffer;
mod event;
mod file;
mod head;
mod own_file;
mod writer;

use crate::options::Options;
use crate::sys::clock;
use crate::sys::fork;
use crate::sys::log;
use std::sync::atomic::{AtomicBool, Ordering};

pub use event::{ArgValue, EventArg, EventPhase, this_thread};

use event::TraceEvent;

/// Bytes of a trace file if the option says `auto`: its default.
const DEFAULT_LIMIT: usize = 256 << 20;

/// Whether this process records events.
static ON: AtomicBool = AtomicBool::new(false);

/// Whether this process records events.
#[inline(always)]
pub fn is_on() -> bool {
    // Relaxed: orders no other data; the buffer has its own lock.
    ON.load(Ordering::Relaxed)
}

/// Nanoseconds of the clock of all events, `CLOCK_MONOTONIC`: the same one for all processes of a host.
pub fn now() -> u64 {
    clock::monotonic_ns()
}

/// Keeps the recording running; each context has one. The last one to be dropped ends the file.
pub struct Recording(());

impl Recording {
    /// Starts to record, if the options name a file and no other context of this process has done so. `None`: nothing
    /// is recorded, because no file is named or none can be written, which is logged once.
    pub fn start(options: &Options) -> Option<Recording> {
        if options.trace_file.is_empty() {
            return None;
        }
        let limit = options.trace_max_size.bytes_or(DEFAULT_LIMIT) as u64;
        if !writer::start(&options.trace_file, limit) {
            return None;
        }
        ON.store(true, Ordering::Relaxed);
        log::capture(true);
        Some(Recording(()))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if writer::stop() {
            ON.store(false, Ordering::Relaxed);
            log::capture(false);
        }
    }
}

/// The locks for [`fork::watch`], in their order. The last one is a leaf, held while an event is copied.
pub fn locks_to_watch() -> [&'static fork::Lock; 2] {
    [writer::lock_to_watch(), buffer::lock_to_watch()]
}

/// In a forked child: nothing is recorded from now on.
fn stop_in_child() {
    ON.store(false, Ordering::Relaxed);
    log::capture(false);
}

/// Records an event of this thread at this moment.
#[cold]
#[inline(never)]
pub fn instant(category: &'static str, name: &'static str, args: &[EventArg]) {
    buffer::push(TraceEvent::new(
        EventPhase::Instant,
        category,
        name,
        now(),
        0,
        0,
        args,
    ));
}

/// Records a slice of this thread, from `began`, nanoseconds of [`now`], to this moment.
#[cold]
#[inline(never)]
pub fn slice(category: &'static str, name: &'static str, began: u64, args: &[EventArg]) {
    let lasted = now().saturating_sub(began);
    slice_of(category, name, (began, lasted, this_thread()), args);
}

/// Records a slice that began at a time, lasted so many nanoseconds, and was in this thread.
#[cold]
#[inline(never)]
pub fn slice_of(
    category: &'static str,
    name: &'static str,
    (began, lasted, thread): (u64, u64, i32),
    args: &[EventArg],
) {
    let mut event = TraceEvent::new(EventPhase::Slice, category, name, began, lasted, 0, args);
    event.thread = thread;
    buffer::push(event);
}

/// Records the begin, a step or the end of an operation, which `id` names among those of its category in this process.
#[cold]
#[inline(never)]
pub fn operation(
    phase: EventPhase,
    category: &'static str,
    name: &'static str,
    id: u64,
    at: u64,
    args: &[EventArg],
) {
    buffer::push(TraceEvent::new(phase, category, name, at, 0, id, args));
}

/// Records an end of an arrow between two slices: `at` is inside of a slice of this thread. Both ends, perhaps in two
/// processes, have the same name and id.
#[cold]
#[inline(never)]
pub fn flow(phase: EventPhase, name: &'static str, id: u64, at: u64) {
    buffer::push(TraceEvent::new(phase, "flow", name, at, 0, id, &[]));
}

/// Records values of counters. `id` distinguishes the counters of this name.
#[cold]
#[inline(never)]
pub fn counter(name: &'static str, id: u64, values: &[EventArg]) {
    buffer::push(TraceEvent::new(
        EventPhase::Counter,
        "counter",
        name,
        now(),
        0,
        id,
        values,
    ));
}

/// Records a line of the log.
#[cold]
#[inline(never)]
pub fn log_line(level: &'static str, file: &str, line: u32, text: String) {
    let file = file.rsplit('/').next().unwrap_or(file);
    let place = format!("{file}:{line}");
    let args = [
        ("message", ArgValue::from(text)),
        ("place", ArgValue::from(place)),
    ];
    instant("log", level, &args);
}
