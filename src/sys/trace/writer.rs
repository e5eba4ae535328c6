//! The thread that writes events to the trace file.

use super::buffer;
use super::event::{ArgValue, EventPhase, TraceEvent};
use super::file::TraceFile;
use super::head::metadata;
use crate::sys::fork::{DisabledInChild, Lock, Mutex, Origin};
use crate::sys::log;
use crate::sys::thread::without_signals;
use std::collections::HashSet;
use std::mem;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::thread::{Builder, JoinHandle, Thread};
use std::time::Duration;

/// Time between two writes: what a process that is killed loses at most.
const INTERVAL: Duration = Duration::from_millis(100);
/// Bytes of the thread's stack.
const STACK: usize = 128 << 10;
/// Bytes of text that are written at a time.
const BATCH_BYTES: usize = 256 << 10;

/// The recording of this process.
struct Writer {
    /// The process that has started it.
    origin: Origin,
    /// Contexts that record.
    users: usize,
    state: State,
    _in_children: Option<DisabledInChild>,
}

enum State {
    /// It writes to the file until `stop` is set.
    Running(JoinHandle<Output>),
    /// Its file is complete, and may be continued.
    Ended(Box<Output>),
}

/// What the thread writes to.
struct Output {
    file: TraceFile,
    /// The pattern of its name.
    pattern: String,
    /// Threads whose names are in the file.
    named: HashSet<i32>,
    dropped: u64,
}

static WRITER: Mutex<Option<Writer>> = Mutex::new(None);
/// The thread has to end.
static STOP: AtomicBool = AtomicBool::new(false);
/// Handle of the running thread: leaked, one for each recording, because threads that record may use it at any time.
static THREAD: AtomicPtr<Thread> = AtomicPtr::new(std::ptr::null_mut());

/// The lock for [`watch`](crate::sys::fork::watch), in front of the buffer's.
pub fn lock_to_watch() -> &'static Lock {
    WRITER.lock_to_watch()
}

/// Starts the thread, or counts one more user. False: the file, of at most `limit` bytes, cannot be written.
pub fn start(pattern: &str, limit: u64) -> bool {
    let mut writer = WRITER.lock();
    // What a parent has left: its thread is not here, its file is the parent's.
    if writer.as_ref().is_some_and(|w| w.origin.is_inherited()) {
        mem::forget(writer.take());
    }
    let output = match writer.take() {
        Some(mut running) if matches!(running.state, State::Running(_)) => {
            running.users += 1;
            *writer = Some(running);
            return true;
        }
        Some(Writer {
            state: State::Ended(output),
            ..
        }) if output.continues(pattern) => output.with_limit(limit),
        _ => match Output::create(pattern, limit) {
            Some(output) => output,
            None => return false,
        },
    };
    *writer = run(output);
    writer.is_some()
}

/// Counts one user less. True: it was the last one, and the file is complete.
pub fn stop() -> bool {
    let mut writer = WRITER.lock();
    let Some(w) = writer.as_mut().filter(|w| !w.origin.is_inherited()) else {
        return false;
    };
    w.users -= 1;
    if w.users > 0 {
        return false;
    }
    buffer::close();
    // Release: pairs with the Acquire load in `write_until_stopped`; the buffer is closed before.
    STOP.store(true, Ordering::Release);
    wake();
    if let Some(Writer {
        origin,
        state: State::Running(thread),
        _in_children,
        ..
    }) = writer.take()
        && let Ok(output) = thread.join()
    {
        *writer = Some(Writer {
            origin,
            users: 0,
            state: State::Ended(Box::new(output)),
            _in_children,
        });
    }
    true
}

/// Starts the thread.
fn run(output: Output) -> Option<Writer> {
    STOP.store(false, Ordering::Relaxed);
    buffer::open(wake);
    let builder = Builder::new().name("rucp-trace".into()).stack_size(STACK);
    let thread = without_signals(|| builder.spawn(move || output.write_until_stopped()));
    let thread = match thread {
        Ok(thread) => thread,
        Err(e) => {
            buffer::close();
            log::warn!("no thread for UCX_TRACE_FILE: {e}: nothing is recorded");
            return None;
        }
    };
    let handle = Box::into_raw(Box::new(thread.thread().clone()));
    // Release: pairs with the Acquire load in `wake`.
    THREAD.store(handle, Ordering::Release);
    // SAFETY: the function does not use the address, which no other object has.
    let in_children = unsafe { DisabledInChild::new(NonNull::from(&STOP).cast(), 0, disable) };
    Some(Writer {
        origin: Origin::here(),
        users: 1,
        state: State::Running(thread),
        _in_children: Some(in_children),
    })
}

/// Wakes the thread.
fn wake() {
    // Acquire: pairs with the Release store in `run`.
    // SAFETY: null, or leaked by `run`.
    if let Some(thread) = unsafe { THREAD.load(Ordering::Acquire).as_ref() } {
        thread.unpark();
    }
}

/// In a forked child: there is no thread.
///
/// # Safety
/// The process has a single thread.
unsafe fn disable(_: NonNull<()>, _: usize) {
    super::stop_in_child();
}

impl Output {
    /// Whether another recording of this process to the same name goes on in this file. A new one takes the place of a
    /// file that was removed meanwhile.
    fn continues(&self, pattern: &str) -> bool {
        self.pattern == pattern && self.file.is_usable() && self.file.has_its_name()
    }

    /// The file with another limit.
    fn with_limit(mut self, limit: u64) -> Output {
        if self.file.set_limit(limit) {
            // Names of threads may be among what was dropped.
            self.named.clear();
        }
        self
    }

    /// Makes the file. `None`: it cannot be written, which is logged.
    fn create(pattern: &str, limit: u64) -> Option<Output> {
        let unknown = log::unknown_placeholders(pattern);
        if !unknown.is_empty() {
            log::once!(
                Warn, each pattern,
                "UCX_TRACE_FILE is {pattern}: {} is no placeholder, and stays in the name",
                unknown.join(", ")
            );
        }
        match TraceFile::create(pattern, limit) {
            Ok(file) => {
                log::info!("trace file: {}", file.path());
                Some(Output {
                    file,
                    pattern: pattern.to_owned(),
                    named: HashSet::new(),
                    dropped: 0,
                })
            }
            Err(e) => {
                log::once!(
                    Warn,
                    each(pattern, log::words(&e)),
                    "the trace file {} cannot be written: {e}: nothing is recorded",
                    log::expand_name(pattern)
                );
                None
            }
        }
    }

    /// The thread: writes what was recorded, until it has to end.
    fn write_until_stopped(mut self) -> Output {
        let mut events = Vec::with_capacity(buffer::CAPACITY);
        let mut text = String::new();
        // What identifies the process, at once: a process that is killed soon leaves a file that can be read.
        self.file.append("");
        loop {
            // Acquire: pairs with the Release store in `stop`; read first, so that all events are written.
            let ends = STOP.load(Ordering::Acquire);
            if self.file.is_full() {
                buffer::only_count();
            }
            let dropped = buffer::take(&mut events);
            if self.file.is_full() {
                self.file
                    .drop_events(events.drain(..).count() as u64 + dropped);
            } else {
                self.write(&mut events, dropped, &mut text);
            }
            if ends {
                return self;
            }
            std::thread::park_timeout(INTERVAL);
        }
    }

    /// Writes events, and how many were dropped behind them.
    fn write(&mut self, events: &mut Vec<TraceEvent>, dropped: u64, text: &mut String) {
        let pid = std::process::id();
        let full = dropped > 0;
        let loss = full.then(|| {
            self.dropped += dropped;
            let args = [
                ("now", ArgValue::from(dropped)),
                ("in all", ArgValue::from(self.dropped)),
                ("reason", "the buffer was full".into()),
            ];
            TraceEvent::new(
                EventPhase::Instant,
                "trace",
                "events dropped",
                super::now(),
                0,
                0,
                &args,
            )
        });
        for event in events.drain(..).chain(loss) {
            if self.named.insert(event.thread) {
                text.push_str(",\n");
                metadata(
                    (pid, event.thread as u32),
                    "thread_name",
                    ("name", thread_name(event.thread).into()),
                    text,
                );
            }
            text.push_str(",\n");
            event.write(pid, text);
            if text.len() >= BATCH_BYTES {
                self.append(text);
            }
        }
        if !text.is_empty() {
            self.append(text);
        }
        // Their number was in the last of these events.
        if full && self.file.is_full() {
            self.file.drop_events(dropped - 1);
        }
    }

    fn append(&mut self, text: &mut String) {
        self.file.append(text);
        text.clear();
    }
}

/// The name of a thread, by the kernel's number.
fn thread_name(thread: i32) -> String {
    let name = std::fs::read_to_string(format!("/proc/self/task/{thread}/comm"));
    name.map_or_else(
        |_| format!("thread {thread}"),
        |name| name.trim_end().to_owned(),
    )
}
