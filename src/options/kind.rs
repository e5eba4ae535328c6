//! The kinds of value an option can have: what each accepts, and the one spelling it is kept and printed in.
#![forbid(unsafe_code)]

use super::list;
use super::number;

/// What values an option takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OptionKind {
    /// `y` or `n`.
    Bool,
    /// `y`, `n` or `try`: as far as it works.
    Ternary,
    /// `on`, `off` or `auto`.
    OnOffAuto,
    /// `y`, `n`, `try` or `auto`.
    TernaryAuto,
    /// A number of bytes with a unit, `inf` or `auto`.
    Size,
    /// A number of 32 bits, or `inf`.
    Uint,
    /// A signed number of 32 bits.
    Int,
    /// A number of 64 bits.
    Ulong,
    /// A number of 64 bits, `inf` or `auto`.
    Count,
    /// A decimal number.
    Float,
    /// A decimal number above zero, or `auto`.
    Ratio,
    /// A hexadecimal number, or `auto`.
    Hex,
    /// A time span with a unit.
    Time,
    /// A time span with a unit, `inf` or `auto`.
    Interval,
    /// Bytes per second, or `auto`.
    Bandwidth,
    /// Any text.
    Text,
    /// One word of a fixed set, whatever its case.
    Choice(&'static [&'static str]),
    /// Words of a fixed set, kept in the order of the set.
    Choices(&'static [&'static str]),
    /// Words of a fixed set, kept in the order given.
    Ranking(&'static [&'static str]),
    /// One word of a fixed set, or a number.
    NumberOr(&'static [&'static str]),
    /// Texts between commas.
    Texts,
    /// Texts between colons.
    Paths,
    /// Values of another kind between commas.
    ListOf(&'static OptionKind),
    /// `all`, names between commas, or `^` and the names to leave out.
    Names,
    /// `Names` with ranges: `eth[0-3]` is four names.
    Devices,
    /// A value for every key, `key:value` between commas; a bare value is for all keys.
    Keyed(&'static [&'static str], &'static OptionKind),
    /// Signals by number or name.
    Signal,
    /// `first-last`, or one number.
    Range,
    /// Accepted without an effect.
    Retired,
}

/// Words for "yes" and "no" in every kind that accepts them.
const YES: &[&str] = &["y", "yes", "on", "1"];
const NO: &[&str] = &["n", "no", "off", "0"];
const MAYBE: &[&str] = &["try", "maybe"];

impl OptionKind {
    /// The spelling in which `text` is kept, or `None` when it is no value of this kind.
    pub fn normalise(&self, text: &str) -> Option<String> {
        match *self {
            OptionKind::Bool => switch(text, &[(YES, "y"), (NO, "n")]),
            OptionKind::Ternary => switch(text, &[(YES, "y"), (NO, "n"), (MAYBE, "try")]),
            OptionKind::OnOffAuto => switch(
                text,
                &[
                    (YES, "on"),
                    (NO, "off"),
                    (MAYBE, "auto"),
                    (&["auto"], "auto"),
                ],
            ),
            OptionKind::TernaryAuto => switch(
                text,
                &[(YES, "y"), (NO, "n"), (MAYBE, "try"), (&["auto"], "auto")],
            ),
            OptionKind::Size => number::size(text).map(number::print_size),
            OptionKind::Uint => number::uint(text).map(number::print_uint),
            OptionKind::Int => number::int(text).map(|n| n.to_string()),
            OptionKind::Ulong => number::ulong(text).map(|n| n.to_string()),
            OptionKind::Count => number::count(text).map(number::print_count),
            OptionKind::Float => number::float(text).map(|x| format!("{x:.3}")),
            OptionKind::Ratio => number::ratio(text).map(number::print_ratio),
            OptionKind::Hex => number::hex(text).map(number::print_hex),
            OptionKind::Time => number::time(text).map(number::print_time),
            OptionKind::Interval => number::interval(text).map(number::print_interval),
            OptionKind::Bandwidth => number::bandwidth(text).map(number::print_bandwidth),
            OptionKind::Text | OptionKind::Texts | OptionKind::Paths | OptionKind::Retired => {
                Some(text.to_owned())
            }
            OptionKind::Choice(words) => list::choice(text, words).map(str::to_owned),
            OptionKind::Choices(words) => list::choices(text, words),
            OptionKind::Ranking(words) => list::ranking(text, words),
            OptionKind::NumberOr(words) => list::choice(text, words)
                .map(str::to_owned)
                .or_else(|| number::ulong(text).map(|n| n.to_string())),
            OptionKind::ListOf(kind) => list::list_of(text, kind),
            OptionKind::Names => list::names(text),
            OptionKind::Devices => list::devices(text),
            OptionKind::Keyed(keys, kind) => list::keyed(text, keys, kind),
            OptionKind::Signal => list::signal(text),
            OptionKind::Range => number::range(text),
        }
    }

    /// The valid values, for messages and for the printed form.
    pub fn syntax(&self) -> String {
        match *self {
            OptionKind::Bool => "y or n".into(),
            OptionKind::Ternary => "y, n or try".into(),
            OptionKind::OnOffAuto => "on, off or auto".into(),
            OptionKind::TernaryAuto => "y, n, try or auto".into(),
            OptionKind::Size => "bytes: <number>[k|m|g|t][b], inf or auto".into(),
            OptionKind::Uint => "<number> or inf".into(),
            OptionKind::Int => "<number>, negative too".into(),
            OptionKind::Ulong => "<number>".into(),
            OptionKind::Count => "<number>, inf or auto".into(),
            OptionKind::Float => "<decimal number>".into(),
            OptionKind::Ratio => "<decimal number above 0> or auto".into(),
            OptionKind::Hex => "<hexadecimal number> or auto".into(),
            OptionKind::Time => "time: <number>[m|s|ms|us|ns], seconds without a unit".into(),
            OptionKind::Interval => "time: <number>[m|s|ms|us|ns], inf or auto".into(),
            OptionKind::Bandwidth => "bandwidth: <number>[K|M|G|T](B|b)(ps|/s|s) or auto".into(),
            OptionKind::Text => "text".into(),
            OptionKind::Choice(words) => format!("one of {}", words.join(", ")),
            OptionKind::Choices(words) => format!("comma list of {}", words.join(", ")),
            OptionKind::Ranking(words) => {
                format!("comma list, best first, of {}", words.join(", "))
            }
            OptionKind::NumberOr(words) => format!("<number>, or one of {}", words.join(", ")),
            OptionKind::Texts => "comma list of text".into(),
            OptionKind::Paths => "colon list of text".into(),
            OptionKind::ListOf(kind) => format!("comma list of ({})", kind.syntax()),
            OptionKind::Names => {
                "all, a comma list of names, or ^ and the names to leave out".into()
            }
            OptionKind::Devices => {
                "all, a comma list of names such as eth[0-3], or ^ and the names to leave out"
                    .into()
            }
            OptionKind::Keyed(keys, kind) => format!(
                "comma list of <key>:<value> with the keys {}, a bare <value> is for all keys; value: {}",
                keys.join(", "),
                kind.syntax()
            ),
            OptionKind::Signal => "a signal, by name or number".into(),
            OptionKind::Range => "<number> or <first>-<last>".into(),
            OptionKind::Retired => "anything: no longer used".into(),
        }
    }
}

/// The canonical spelling of the first set of words that contains `text`.
fn switch(text: &str, spellings: &[(&[&str], &str)]) -> Option<String> {
    spellings
        .iter()
        .find(|(words, _)| words.iter().any(|word| word.eq_ignore_ascii_case(text)))
        .map(|&(_, spelling)| spelling.to_owned())
}
