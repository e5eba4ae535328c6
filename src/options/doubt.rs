//! Values that are accepted, as UCX accepts them, though something else was probably meant.
//!
//! UCX parses numbers with C's scanf, which reads `1.5.2` as 1 and -5 as a huge number, and says nothing.
#![forbid(unsafe_code)]

use std::fmt;

use super::conf::{ConfPlace, write_place};
use super::kind::OptionKind;
use super::list;

/// A doubt about the value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionDoubt {
    /// The option, without `UCX_`.
    pub name: String,
    /// What was written.
    written: String,
    effect: Effect,
    place: Option<&'static ConfPlace>,
}

/// Effect of such a value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Effect {
    /// It is read as this value.
    ReadAs(String),
    /// What this sentence says.
    Is(&'static str),
}

impl fmt::Display for OptionDoubt {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_place(out, self.place)?;
        write!(out, "UCX_{} is '{}': ", self.name, self.written)?;
        match &self.effect {
            Effect::ReadAs(kept) => write!(out, "it is read as {kept}"),
            Effect::Is(sentence) => out.write_str(sentence),
        }
    }
}

/// The doubt about a value of this kind, which is kept as `kept`, if there is one.
pub fn of(
    name: String,
    kind: &OptionKind,
    written: &str,
    kept: &str,
    place: Option<&'static ConfPlace>,
) -> Option<OptionDoubt> {
    let effect = match useless(&name, kind, kept) {
        Some(sentence) => Effect::Is(sentence),
        None if !is_plain(kind, written) => Effect::ReadAs(kept.to_owned()),
        None => return None,
    };
    Some(OptionDoubt {
        name,
        written: written.to_owned(),
        effect,
        place,
    })
}

/// What is wrong with a value that its option cannot use.
fn useless(name: &str, kind: &OptionKind, kept: &str) -> Option<&'static str> {
    match name {
        _ if *kind == OptionKind::Range && !is_plain_range(kept) => Some("the last port is 65535"),
        "MAX_EAGER_RAILS" | "MAX_RNDV_RAILS" | "MAX_RMA_RAILS" if kept == "0" => {
            Some("a message takes one rail at least")
        }
        "PROTO_INFO" if !is_proto_info(kept) => Some(
            "nothing is printed: it is not y, n, used, auto or a pattern of operations such as '*tag*'",
        ),
        _ => None,
    }
}

fn is_proto_info(text: &str) -> bool {
    let words = [
        "y", "yes", "on", "1", "n", "no", "off", "0", "used", "auto", "",
    ];
    words.contains(&text) || text.contains(['*', '?', '['])
}

/// Whether all of a number's text is read, and as what it says. -1 is in wide use for no limit.
fn is_plain(kind: &OptionKind, text: &str) -> bool {
    let word = |words: &[&str]| words.iter().any(|word| word.eq_ignore_ascii_case(text));
    let parts = |text: &'_ str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    let number = text.trim();
    match *kind {
        OptionKind::Size => word(&["inf", "auto"]) || number == "-1" || is_plain_size(number),
        OptionKind::Uint => word(&["inf"]) || number == "-1" || number.parse::<u32>().is_ok(),
        OptionKind::Ulong => number == "-1" || number.parse::<u64>().is_ok(),
        OptionKind::Count => {
            word(&["inf", "auto"]) || number == "-1" || number.parse::<u64>().is_ok()
        }
        OptionKind::Int => number.parse::<i32>().is_ok(),
        OptionKind::Float => word(&["inf"]) || number.parse::<f64>().is_ok(),
        OptionKind::Ratio => word(&["auto", "inf"]) || number.parse::<f64>().is_ok(),
        // -1 s is never, as in UCX.
        OptionKind::Interval => !number.starts_with('-') || number == "-1",
        OptionKind::NumberOr(words) => {
            list::choice(text, words).is_some() || number.parse::<u64>().is_ok()
        }
        OptionKind::Range => is_plain_range(number),
        OptionKind::ListOf(kind) => {
            text.is_empty() || parts(text).iter().all(|part| is_plain(kind, part))
        }
        OptionKind::Keyed(_, kind) => parts(text).iter().all(|part| {
            let value = part.split_once(':').map_or(&**part, |(_, value)| value);
            is_plain(kind, value)
        }),
        _ => true,
    }
}

/// `8`, `8k`, `8kb`.
fn is_plain_size(text: &str) -> bool {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text[digits.len()..].to_ascii_lowercase();
    let units = ["", "b", "k", "kb", "m", "mb", "g", "gb", "t", "tb", "bb"];
    let shift = match unit.chars().next() {
        Some(scale) => 10 * "bkmgt".find(scale).unwrap_or(0),
        None => 0,
    };
    let number = digits.parse::<u64>();
    units.contains(&&*unit) && number.is_ok_and(|number| number.leading_zeros() as usize >= shift)
}

/// Ports.
fn is_plain_range(text: &str) -> bool {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    first.parse::<u16>().is_ok() && last.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubt(name: &str, kind: OptionKind, text: &str) -> Option<String> {
        let kept = kind.normalise(text).expect("a valid value");
        of(name.into(), &kind, text, &kept, None).map(|doubt| doubt.to_string())
    }

    #[test]
    fn a_value_that_is_read_as_another_is_doubted() {
        use OptionKind::*;
        for (kind, text, kept) in [
            (Size, "-5", "inf"),
            (Size, "8kBytes", "8K"),
            (Size, "99999999999999999999999999", "9223372036854775807"),
            (Size, "20000000t", "inf"),
            (Uint, "1.5.2", "1"),
            (Uint, "8k", "8"),
            (Uint, "-5", "4294967291"),
            (Uint, "4294967296", "0"),
            (Int, "8 x", "8"),
            (Ulong, "1,2", "1"),
            (Count, "-5", "18446744073709551611"),
            (Float, "1.5.2", "1.500"),
            (Ratio, "1.5.2", "1.500"),
            (Interval, "-5", "inf"),
            (NumberOr(&["all"]), "7x", "7"),
            (Range, "5-7x", "5-7"),
            (ListOf(&Size), "64,-5", "64,inf"),
            (
                Keyed(&["intra", "inter"], &Size),
                "-5",
                "intra:inf,inter:inf",
            ),
            (
                Keyed(&["intra", "inter"], &Size),
                "intra:8k,inter:-5",
                "intra:8K,inter:inf",
            ),
        ] {
            let expected = format!("UCX_X is '{text}': it is read as {kept}");
            assert_eq!(doubt("X", kind, text), Some(expected), "{kind:?}");
        }
    }

    #[test]
    fn a_plain_value_is_not() {
        use OptionKind::*;
        for (kind, texts) in [
            (
                Size,
                &["8", "8k", "8KB", "8b", " 8m", "inf", "AUTO", "-1"][..],
            ),
            (Uint, &["0", "inf", "-1", "4294967295"]),
            (Int, &["-1", "-5", "7"]),
            (Ulong, &["7", "-1", "18446744073709551615"]),
            (Count, &["inf", "auto", "9", "-1"]),
            (Float, &["1", ".5", "1e3", "inf", "-2"]),
            (Ratio, &["auto", "0.5"]),
            (Interval, &["10s", "auto", "inf", "-1", "1.5ms"]),
            (NumberOr(&["all"]), &["ALL", "7"]),
            (Range, &["0", "2000-2010"]),
            (ListOf(&Size), &["", "64,2k"]),
            (Keyed(&["intra", "inter"], &Size), &["8k", "intra:8k,auto"]),
            (Text, &["-5"]),
            (Bool, &["1"]),
        ] {
            for text in texts {
                assert_eq!(doubt("X", kind, text), None, "{kind:?} {text}");
            }
        }
    }

    #[test]
    fn a_value_that_its_option_cannot_use_is_doubted() {
        let rails = doubt("MAX_RNDV_RAILS", OptionKind::Uint, "0");
        assert_eq!(
            rails.as_deref(),
            Some("UCX_MAX_RNDV_RAILS is '0': a message takes one rail at least")
        );
        assert_eq!(doubt("MAX_RNDV_RAILS", OptionKind::Uint, "1"), None);
        let ports = doubt("X", OptionKind::Range, "7-80000");
        assert!(ports.is_some_and(|text| text.contains("65535")));
        let info = |text| doubt("PROTO_INFO", OptionKind::Text, text);
        assert!(info("nonsense").is_some_and(|text| text.contains("'*tag*'")));
        for text in ["y", "used", "auto", "", "*tag*"] {
            assert_eq!(info(text), None);
        }
    }
}
