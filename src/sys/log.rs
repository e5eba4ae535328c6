//! Log messages in the manner of UCX: `[time] [host:pid:thread] file:line UCX LEVEL message`.
//!
//! A message of a level that is not enabled costs one relaxed load and one branch. Nothing is initialised before the
//! first message or `configure`, and no lock is held, so a process may fork while another thread logs.

mod causes;
pub mod handlers;
mod sink;

use crate::ctypes::ucs_log_level;
use crate::sys::process;
use crate::sys::sync::OnceLock;
use rustix::system::uname;
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

pub use crate::options::LogLevel;
use crate::options::{self, Options};
pub use causes::{Causes, words};
use sink::LogSink;
pub use sink::{expand as expand_name, unknown_placeholders};

/// The level was not read yet: every message passes the first check, and `dispatch` checks again.
const UNREAD: u8 = u8::MAX;

/// Messages of this level and of more serious ones pass the first check: those that are printed, and those that a trace
/// file takes.
static LEVEL: AtomicU8 = AtomicU8::new(UNREAD);
/// Messages of this level and of more serious ones are printed.
static PRINTED: AtomicU8 = AtomicU8::new(UNREAD);
/// Messages up to [`CAPTURED_LEVEL`] go to the trace file, too.
static CAPTURED: AtomicBool = AtomicBool::new(false);
/// The last level that a trace file takes.
const CAPTURED_LEVEL: LogLevel = LogLevel::Debug;
static SINK: OnceLock<LogSink> = OnceLock::new();

/// Whether messages of a level are printed, or recorded in a trace file, as far as it is known.
#[inline(always)]
pub fn enabled(level: LogLevel) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// Prints messages of this level and of more serious ones from now on.
pub fn set_level(level: LogLevel) {
    PRINTED.store(level as u8, Ordering::Relaxed);
    update_level();
}

/// Whether messages of a level are printed, as far as it is known.
pub fn prints(level: LogLevel) -> bool {
    level as u8 <= PRINTED.load(Ordering::Relaxed)
}

/// Passes messages to the trace file from now on, too, or no more.
pub fn capture(is_on: bool) {
    CAPTURED.store(is_on, Ordering::Relaxed);
    update_level();
}

/// Sets the level of the first check.
fn update_level() {
    let printed = PRINTED.load(Ordering::Relaxed);
    let level = match CAPTURED.load(Ordering::Relaxed) {
        true => printed.max(CAPTURED_LEVEL as u8),
        false => printed,
    };
    LEVEL.store(level, Ordering::Relaxed);
}

/// Sets level and destination from options, unless they are set already; `set_level` can change the level later, but
/// the destination is fixed for the life of the process.
pub fn configure(options: &Options) {
    SINK.get_or_init(|| {
        // A level that was set already is newer than the environment.
        let _ = PRINTED.compare_exchange(
            UNREAD,
            options.log_level as u8,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        update_level();
        LogSink::open(
            &options.log_file,
            options.log_file_size.bytes(),
            options.log_file_rotate,
        )
    });
}

/// Reads the options, in case the first message precedes every context.
#[cold]
fn configure_from_environment() {
    if SINK.get().is_some() {
        return;
    }
    super::loaded_from::set_library_dir();
    let options = Options::read_lenient();
    configure(&options);
}

/// Prints a message if its level is enabled; use the macros, which check first.
#[cold]
#[inline(never)]
pub fn dispatch(level: LogLevel, file: &str, line: u32, message: fmt::Arguments<'_>) {
    configure_from_environment();
    // Relaxed: a message that races with the end of the recording is dropped there.
    if CAPTURED.load(Ordering::Relaxed) && level <= CAPTURED_LEVEL {
        crate::sys::trace::log_line(level.name(), file, line, message.to_string());
    }
    if prints(level) {
        print_own(level, file, line, message);
    }
}

/// Prints a client's message to the same destination (`ucs_log_dispatch`); the client has checked the level.
/// `component` is what it calls itself, `level` the name of the level.
pub fn dispatch_client(component: &str, level: &str, file: &str, line: u32, message: &str) {
    configure_from_environment();
    print(component, level, file, line, format_args!("{message}"));
}

/// Prints output that the user has enabled by name, whatever the level.
pub fn asked(text: &str) {
    configure_from_environment();
    let text = text.trim_end();
    print_own(LogLevel::Info, file!(), line!(), format_args!("{text}"));
}

/// Prints a line of the library, or passes it to the program's handlers.
fn print_own(level: LogLevel, file: &str, line: u32, message: fmt::Arguments<'_>) {
    let print = || print("UCX", level.name(), file, line, message);
    if handlers::only_printer() {
        return print();
    }
    let as_c = |level: u8| ucs_log_level::from_raw(level.into());
    // A level of the library's is one of C's.
    if let (Some(level), Some(enabled)) = (as_c(level as u8), as_c(PRINTED.load(Ordering::Relaxed)))
    {
        handlers::pass_own(level, enabled, file, line, message, print);
    }
}

fn print(component: &str, level: &str, file: &str, line: u32, message: fmt::Arguments<'_>) {
    if let Some(sink) = SINK.get() {
        sink.write(&format_lines(component, level, file, line, message));
    }
}

/// Formats the message with the same head on each of its lines, so that a search finds all of them.
fn format_lines(
    component: &str,
    level: &str,
    file: &str,
    line: u32,
    message: fmt::Arguments<'_>,
) -> String {
    let now = clock_gettime(ClockId::Realtime);
    let head = format!(
        "[{}.{:06}] [{}:{:<5}:{}] {:>18}:{line:<4} {component}  {level:<5} ",
        now.tv_sec,
        now.tv_nsec / 1000,
        host(),
        std::process::id(),
        thread_number(),
        file.rsplit('/').next().unwrap_or(file),
    );
    let mut out = String::new();
    for text in message.to_string().split('\n') {
        // Writing to a String does not fail.
        let _ = writeln!(out, "{head}{text}");
    }
    out
}

/// The name of this machine.
pub fn host() -> &'static str {
    static HOST: OnceLock<String> = OnceLock::new();
    HOST.get_or_init(|| {
        let names = uname();
        names.nodename().to_string_lossy().into_owned()
    })
}

/// 0 for the first thread of the process, else the order in which threads logged first.
fn thread_number() -> u32 {
    const NONE: u32 = u32::MAX;
    static LAST: AtomicU32 = AtomicU32::new(0);
    thread_local!(static NUMBER: Cell<u32> = const { Cell::new(NONE) });
    NUMBER.with(|number| {
        if number.get() == NONE {
            let is_first = process::this_thread() == std::process::id() as i32;
            number.set(if is_first {
                0
            } else {
                LAST.fetch_add(1, Ordering::Relaxed) + 1
            });
        }
        number.get()
    })
}

/// Warns of variables that look like options and are none, and of values that were ignored; once for each process,
/// however often it is called.
pub fn warn_unused_once(options: &Options) {
    if let Some(report) = options::unused_report(options) {
        warn!("{report}");
    }
    static DONE: AtomicU8 = AtomicU8::new(0);
    if DONE.swap(1, Ordering::Relaxed) != 0 {
        return;
    }
    for remark in options.remarks() {
        warn!("{remark}");
    }
    if enabled(LogLevel::Info) {
        info!(
            "UCX_* env variables: {}",
            options::used_env_vars().join(" ")
        );
    }
}

/// Checks whether the level is enabled before anything is evaluated.
macro_rules! at {
    ($level:ident, $($message:tt)+) => {
        if $crate::sys::log::enabled($crate::sys::log::LogLevel::$level) {
            $crate::sys::log::dispatch(
                $crate::sys::log::LogLevel::$level,
                file!(),
                line!(),
                format_args!($($message)+),
            );
        }
    };
}

// One macro a level, whether or not some message has that level today.
#[allow(unused_macros)]
macro_rules! fatal { ($($message:tt)+) => { $crate::sys::log::at!(Fatal, $($message)+) }; }
#[allow(unused_macros)]
macro_rules! error { ($($message:tt)+) => { $crate::sys::log::at!(Error, $($message)+) }; }
#[allow(unused_macros)]
macro_rules! warn_ { ($($message:tt)+) => { $crate::sys::log::at!(Warn, $($message)+) }; }
#[allow(unused_macros)]
macro_rules! diag { ($($message:tt)+) => { $crate::sys::log::at!(Diag, $($message)+) }; }
#[allow(unused_macros)]
macro_rules! info { ($($message:tt)+) => { $crate::sys::log::at!(Info, $($message)+) }; }
#[allow(unused_macros)]
macro_rules! debug { ($($message:tt)+) => { $crate::sys::log::at!(Debug, $($message)+) }; }
#[allow(unused_macros)]
macro_rules! trace { ($($message:tt)+) => { $crate::sys::log::at!(Trace, $($message)+) }; }

/// A message of a level that a process prints once, however many peers or operations have the same cause; the others
/// have the level `Diag`. `each`: once for each value of an expression, as long as these are few.
#[allow(unused_macros)]
macro_rules! once {
    ($level:ident, each $cause:expr, $($message:tt)+) => {{
        static CAUSES: $crate::sys::log::Causes = $crate::sys::log::Causes::none();
        match CAUSES.is_new($cause) {
            true => $crate::sys::log::at!($level, $($message)+),
            false => $crate::sys::log::at!(Diag, $($message)+),
        }
    }};
    ($level:ident, $($message:tt)+) => { $crate::sys::log::once!($level, each (), $($message)+) };
}

// `warn` is also an attribute of the language: the macro is defined under another name.
#[allow(unused_imports)]
pub(crate) use {at, debug, diag, error, fatal, info, once, trace, warn_ as warn};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_the_head_of_ucx() {
        let text = format_lines(
            "UCX",
            "WARN",
            "src/sys/parser.rs",
            7,
            format_args!("one\ntwo {}", 2),
        );
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        for (line, message) in lines.iter().zip(["one", "two 2"]) {
            let (time, rest) = line
                .strip_prefix('[')
                .and_then(|rest| rest.split_once("] ["))
                .expect("a time");
            let (seconds, micros) = time.split_once('.').expect("a fraction");
            assert!(
                seconds.parse::<u64>().is_ok() && micros.len() == 6,
                "{line}"
            );
            let (place, rest) = rest.split_once("] ").expect("a place");
            let mut place = place.rsplitn(3, ':');
            assert!(
                place
                    .next()
                    .is_some_and(|thread| thread.parse::<u32>().is_ok()),
                "{line}"
            );
            assert_eq!(
                place.next().map(str::trim_end),
                Some(std::process::id().to_string().as_str())
            );
            assert_eq!(place.next(), Some(host()));
            assert_eq!(
                rest,
                format!("         parser.rs:7    UCX  WARN  {message}")
            );
        }
    }

    #[test]
    fn threads_have_numbers_of_their_own() {
        let here = thread_number();
        assert_eq!(here, thread_number());
        let there = std::thread::spawn(thread_number)
            .join()
            .expect("the thread returns a number");
        assert_ne!(here, there);
    }
}
