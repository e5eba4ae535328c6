//! The kinds of value an option can have: what each accepts, and the one spelling it is kept and printed in.
#![forbid(unsafe_code)]

use super::list;
use super::number;

/// What values an option takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
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
    ListOf(&'static Kind),
    /// `all`, names between commas, or `^` and the names to leave out.
    Names,
    /// `Names` with ranges: `eth[0-3]` is four names.
    Devices,
    /// A value for every key, `key:value` between commas; a bare value is for all keys.
    Keyed(&'static [&'static str], &'static Kind),
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

impl Kind {
    /// The spelling in which `text` is kept, or `None` when it is no value of this kind.
    pub fn normalise(&self, text: &str) -> Option<String> {
        match *self {
            Kind::Bool => switch(text, &[(YES, "y"), (NO, "n")]),
            Kind::Ternary => switch(text, &[(YES, "y"), (NO, "n"), (MAYBE, "try")]),
            Kind::OnOffAuto => switch(
                text,
                &[
                    (YES, "on"),
                    (NO, "off"),
                    (MAYBE, "auto"),
                    (&["auto"], "auto"),
                ],
            ),
            Kind::TernaryAuto => switch(
                text,
                &[(YES, "y"), (NO, "n"), (MAYBE, "try"), (&["auto"], "auto")],
            ),
            Kind::Size => number::size(text).map(number::print_size),
            Kind::Uint => number::uint(text).map(number::print_uint),
            Kind::Int => number::int(text).map(|n| n.to_string()),
            Kind::Ulong => number::ulong(text).map(|n| n.to_string()),
            Kind::Count => number::count(text).map(number::print_count),
            Kind::Float => number::float(text).map(|x| format!("{x:.3}")),
            Kind::Ratio => number::ratio(text).map(number::print_ratio),
            Kind::Hex => number::hex(text).map(number::print_hex),
            Kind::Time => number::time(text).map(number::print_time),
            Kind::Interval => number::interval(text).map(number::print_interval),
            Kind::Bandwidth => number::bandwidth(text).map(number::print_bandwidth),
            Kind::Text | Kind::Texts | Kind::Paths | Kind::Retired => Some(text.to_owned()),
            Kind::Choice(words) => list::choice(text, words).map(str::to_owned),
            Kind::Choices(words) => list::choices(text, words),
            Kind::Ranking(words) => list::ranking(text, words),
            Kind::NumberOr(words) => list::choice(text, words)
                .map(str::to_owned)
                .or_else(|| number::ulong(text).map(|n| n.to_string())),
            Kind::ListOf(kind) => list::list_of(text, kind),
            Kind::Names => list::names(text),
            Kind::Devices => list::devices(text),
            Kind::Keyed(keys, kind) => list::keyed(text, keys, kind),
            Kind::Signal => list::signal(text),
            Kind::Range => number::range(text),
        }
    }

    /// The valid values, for messages and for the printed form.
    pub fn syntax(&self) -> String {
        match *self {
            Kind::Bool => "y or n".into(),
            Kind::Ternary => "y, n or try".into(),
            Kind::OnOffAuto => "on, off or auto".into(),
            Kind::TernaryAuto => "y, n, try or auto".into(),
            Kind::Size => "bytes: <number>[k|m|g|t][b], inf or auto".into(),
            Kind::Uint => "<number> or inf".into(),
            Kind::Int => "<number>, negative too".into(),
            Kind::Ulong => "<number>".into(),
            Kind::Count => "<number>, inf or auto".into(),
            Kind::Float => "<decimal number>".into(),
            Kind::Ratio => "<decimal number above 0> or auto".into(),
            Kind::Hex => "<hexadecimal number> or auto".into(),
            Kind::Time => "time: <number>[m|s|ms|us|ns], seconds without a unit".into(),
            Kind::Interval => "time: <number>[m|s|ms|us|ns], inf or auto".into(),
            Kind::Bandwidth => "bandwidth: <number>[K|M|G|T](B|b)(ps|/s|s) or auto".into(),
            Kind::Text => "text".into(),
            Kind::Choice(words) => format!("one of {}", words.join(", ")),
            Kind::Choices(words) => format!("comma list of {}", words.join(", ")),
            Kind::Ranking(words) => format!("comma list, best first, of {}", words.join(", ")),
            Kind::NumberOr(words) => format!("<number>, or one of {}", words.join(", ")),
            Kind::Texts => "comma list of text".into(),
            Kind::Paths => "colon list of text".into(),
            Kind::ListOf(kind) => format!("comma list of ({})", kind.syntax()),
            Kind::Names => "all, a comma list of names, or ^ and the names to leave out".into(),
            Kind::Devices => {
                "all, a comma list of names such as eth[0-3], or ^ and the names to leave out"
                    .into()
            }
            Kind::Keyed(keys, kind) => format!(
                "comma list of <key>:<value> with the keys {}, a bare <value> is for all keys; value: {}",
                keys.join(", "),
                kind.syntax()
            ),
            Kind::Signal => "a signal, by name or number".into(),
            Kind::Range => "<number> or <first>-<last>".into(),
            Kind::Retired => "anything: no longer used".into(),
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
