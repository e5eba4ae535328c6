//! An event of the timeline, and its form in Chrome's JSON trace format.

use crate::sys::process;
use std::cell::Cell;
use std::fmt::Write;

/// Most arguments of an event.
pub const MAX_ARGS: usize = 8;

/// What an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventPhase {
    /// A moment of a thread.
    Instant,
    /// A slice of a thread.
    Slice,
    /// An operation, which may begin and end in different threads and overlap with others.
    Begin,
    Step,
    End,
    /// The ends of an arrow between two slices.
    FlowOut,
    FlowIn,
    /// Values that are drawn over time.
    Counter,
}

impl EventPhase {
    /// The letter of the format.
    fn letter(self) -> char {
        match self {
            EventPhase::Instant => 'i',
            EventPhase::Slice => 'X',
            EventPhase::Begin => 'b',
            EventPhase::Step => 'n',
            EventPhase::End => 'e',
            EventPhase::FlowOut => 's',
            EventPhase::FlowIn => 'f',
            EventPhase::Counter => 'C',
        }
    }
}

/// The value of an argument.
#[derive(Clone, Debug)]
pub enum ArgValue {
    Number(u64),
    /// An address, an id or a tag: hexadecimal, as a string, because numbers of JSON are not exact from 2^53 on.
    Hex(u64),
    Name(&'static str),
    Text(Box<str>),
}

impl From<u64> for ArgValue {
    fn from(value: u64) -> Self {
        ArgValue::Number(value)
    }
}

impl From<u32> for ArgValue {
    fn from(value: u32) -> Self {
        ArgValue::Number(value.into())
    }
}

impl From<usize> for ArgValue {
    fn from(value: usize) -> Self {
        ArgValue::Number(value as u64)
    }
}

impl From<&'static str> for ArgValue {
    fn from(value: &'static str) -> Self {
        ArgValue::Name(value)
    }
}

impl From<String> for ArgValue {
    fn from(value: String) -> Self {
        ArgValue::Text(value.into())
    }
}

/// Name and value of an argument.
pub type EventArg = (&'static str, ArgValue);

/// An event.
pub struct TraceEvent {
    phase: EventPhase,
    category: &'static str,
    name: &'static str,
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    at: u64,
    /// Nanoseconds that a slice lasts.
    lasted: u64,
    id: u64,
    /// The kernel's number of the thread.
    pub thread: i32,
    args: [Option<EventArg>; MAX_ARGS],
}

impl TraceEvent {
    /// An event of the calling thread. Arguments beyond [`MAX_ARGS`] are left out.
    pub fn new(
        phase: EventPhase,
        category: &'static str,
        name: &'static str,
        at: u64,
        lasted: u64,
        id: u64,
        args: &[EventArg],
    ) -> TraceEvent {
        debug_assert!(args.len() <= MAX_ARGS);
        let mut kept = [const { None }; MAX_ARGS];
        for (slot, arg) in kept.iter_mut().zip(args) {
            *slot = Some(arg.clone());
        }
        TraceEvent {
            phase,
            category,
            name,
            at,
            lasted,
            id,
            thread: this_thread(),
            args: kept,
        }
    }

    /// Appends the event of process `pid` as an object.
    pub fn write(&self, pid: u32, out: &mut String) {
        // Writing to a String does not fail, here and below.
        let _ = write!(
            out,
            r#"{{"ph":"{}","pid":{pid},"tid":{},"ts":{}.{:03},"cat":"{}","name":"#,
            self.phase.letter(),
            self.thread,
            self.at / 1000,
            self.at % 1000,
            self.category
        );
        write_string(self.name, out);
        let id = self.id;
        let _ = match self.phase {
            EventPhase::Slice => {
                let lasted = self.lasted;
                write!(out, r#","dur":{}.{:03}"#, lasted / 1000, lasted % 1000)
            }
            EventPhase::Instant => write!(out, r#","s":"t""#),
            EventPhase::Begin | EventPhase::Step | EventPhase::End => {
                write!(out, r#","id2":{{"local":"{id:#x}"}}"#)
            }
            EventPhase::FlowOut => write!(out, r#","id":"{id:#x}""#),
            EventPhase::FlowIn => write!(out, r#","id":"{id:#x}","bp":"e""#),
            EventPhase::Counter => write!(out, r#","id":"{id:#x}""#),
        };
        let mut before = r#","args":{"#;
        for (name, value) in self.args.iter().flatten() {
            out.push_str(before);
            before = ",";
            write_string(name, out);
            out.push(':');
            write_value(value, out);
        }
        if before == "," {
            out.push('}');
        }
        out.push('}');
    }
}

/// Appends a value.
pub fn write_value(value: &ArgValue, out: &mut String) {
    let _ = match value {
        ArgValue::Number(number) => write!(out, "{number}"),
        ArgValue::Hex(number) => write!(out, r#""{number:#x}""#),
        ArgValue::Name(text) => {
            write_string(text, out);
            Ok(())
        }
        ArgValue::Text(text) => {
            write_string(text, out);
            Ok(())
        }
    };
}

/// Appends a string of JSON.
fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if u32::from(c) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// The kernel's number of the calling thread, of which the system is asked once.
pub fn this_thread() -> i32 {
    // With the process: a forked child has the variable, and another number.
    thread_local!(static NUMBER: Cell<(u32, i32)> = const { Cell::new((0, 0)) });
    let pid = std::process::id();
    NUMBER.with(|number| {
        if number.get().0 != pid {
            number.set((pid, process::this_thread()));
        }
        number.get().1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(event: &TraceEvent) -> String {
        let mut out = String::new();
        event.write(7, &mut out);
        out
    }

    #[test]
    fn an_event_is_an_object_of_json() {
        let args = [
            ("bytes", ArgValue::from(5u64)),
            ("tag", ArgValue::Hex(u64::MAX)),
            ("how", ArgValue::from(String::from("a \"b\"\\\n\u{1}"))),
        ];
        let event = TraceEvent::new(EventPhase::Slice, "rma", "put", 1_234_005, 2_000, 9, &args);
        let thread = event.thread;
        assert_eq!(
            text(&event),
            [
                format!(r#"{{"ph":"X","pid":7,"tid":{thread},"ts":1234.005,"cat":"rma","#).as_str(),
                r#""name":"put","dur":2.000,"args":{"bytes":5,"tag":"0xffffffffffffffff","#,
                r#""how":"a \"b\"\\\n\u0001"}}"#,
            ]
            .concat()
        );
    }

    #[test]
    fn operations_and_arrows_have_their_id() {
        let event = |phase| text(&TraceEvent::new(phase, "c", "n", 0, 0, 16, &[]));
        assert!(event(EventPhase::Begin).contains(r#""ph":"b""#));
        assert!(event(EventPhase::End).ends_with(r#""id2":{"local":"0x10"}}"#));
        assert!(event(EventPhase::FlowIn).ends_with(r#""id":"0x10","bp":"e"}"#));
        assert!(event(EventPhase::Instant).ends_with(r#""s":"t"}"#));
    }
}
