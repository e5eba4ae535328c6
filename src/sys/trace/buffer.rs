//! The buffer of events that were not written yet: bounded, shared by all threads of the process.

use super::event::TraceEvent;
use crate::sys::fork::{Lock, Mutex};
use std::mem;

/// Events that wait for the writer: 6 MiB in each of two buffers.
pub const CAPACITY: usize = 16 << 10;
/// Events from which on the writer is woken before its time.
const URGENT: usize = CAPACITY / 2;

struct Buffer {
    /// `Vec::new` outside of a recording.
    events: Vec<TraceEvent>,
    /// Events that found the buffer full since the writer has last taken it.
    dropped: u64,
    /// Whether events are accepted.
    is_open: bool,
    /// Events are only counted, as dropped.
    only_counts: bool,
    /// The writer was woken, and has not taken the buffer since.
    is_urgent: bool,
    /// Wakes the writer.
    wake: Option<fn()>,
}

static BUFFER: Mutex<Buffer> = Mutex::new(Buffer {
    events: Vec::new(),
    dropped: 0,
    is_open: false,
    only_counts: false,
    is_urgent: false,
    wake: None,
});

/// The lock for [`watch`](crate::sys::fork::watch).
pub fn lock_to_watch() -> &'static Lock {
    BUFFER.lock_to_watch()
}

/// Accepts events from now on. `wake` wakes the writer, when many wait; it takes no lock. What a parent of this process
/// has left is discarded.
pub fn open(wake: fn()) {
    let events = Vec::with_capacity(CAPACITY);
    let mut buffer = BUFFER.lock();
    let left = mem::replace(
        &mut *buffer,
        Buffer {
            events,
            dropped: 0,
            is_open: true,
            only_counts: false,
            is_urgent: false,
            wake: Some(wake),
        },
    );
    drop(buffer);
    drop(left);
}

/// Counts all further events as dropped: the file takes none.
pub fn only_count() {
    BUFFER.lock().only_counts = true;
}

/// Accepts no further events. Those that wait can still be taken.
pub fn close() {
    BUFFER.lock().is_open = false;
}

/// Adds an event, or counts it as dropped.
pub fn push(event: TraceEvent) {
    let mut buffer = BUFFER.lock();
    if !buffer.is_open {
        return;
    }
    if buffer.only_counts || buffer.events.len() == CAPACITY {
        buffer.dropped += 1;
        return;
    }
    buffer.events.push(event);
    if buffer.events.len() < URGENT || mem::replace(&mut buffer.is_urgent, true) {
        return;
    }
    let wake = buffer.wake;
    drop(buffer);
    if let Some(wake) = wake {
        wake();
    }
}

/// Takes the events that wait, in exchange for `empty`, an empty vector of [`CAPACITY`]. Returns the number of events
/// that were dropped since the last call.
pub fn take(empty: &mut Vec<TraceEvent>) -> u64 {
    let mut buffer = BUFFER.lock();
    mem::swap(&mut buffer.events, empty);
    buffer.is_urgent = false;
    mem::take(&mut buffer.dropped)
}
