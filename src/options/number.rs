//! Numbers, sizes, times and rates in the syntax of options, and the spelling in which UCX prints them.
//!
//! UCX parses numbers with C's scanf: leading blanks and trailing characters are ignored, `-1` wraps around. Values
//! that work with UCX must work here, so the parser here behaves in the same way.
#![forbid(unsafe_code)]

use std::time::Duration;

/// Bytes, or a word instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Size {
    /// The library decides.
    #[default]
    Auto,
    /// No limit.
    Inf,
    /// This many.
    Bytes(usize),
}

impl Size {
    /// The bytes, `usize::MAX` for no limit, `None` when the library decides.
    pub fn bytes(self) -> Option<usize> {
        match self {
            Size::Auto => None,
            Size::Inf => Some(usize::MAX),
            Size::Bytes(n) => Some(n),
        }
    }

    /// [`bytes`](Self::bytes), or `default` when the library decides.
    pub fn bytes_or(self, default: usize) -> usize {
        self.bytes().unwrap_or(default)
    }
}

/// A number of things, or a word instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Count {
    /// The library decides.
    #[default]
    Auto,
    /// No limit.
    Inf,
    /// This many.
    Number(usize),
}

impl Count {
    /// The number, `usize::MAX` for no limit, `None` when the library decides.
    pub fn number(self) -> Option<usize> {
        match self {
            Count::Auto => None,
            Count::Inf => Some(usize::MAX),
            Count::Number(n) => Some(n),
        }
    }
}

/// Bytes per second, or a word instead.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum Bandwidth {
    /// The library measures it.
    #[default]
    Auto,
    /// This many.
    Rate(f64),
}

impl Bandwidth {
    /// Bytes per second; `None` when the library decides.
    pub fn rate(self) -> Option<f64> {
        match self {
            Bandwidth::Auto => None,
            Bandwidth::Rate(rate) => Some(rate),
        }
    }
}

/// How often something happens, or a word instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Interval {
    /// The library decides.
    #[default]
    Auto,
    /// Never.
    Inf,
    /// After each span of this length.
    Every(Duration),
}

impl Interval {
    /// The span; `None` for never and for "the library decides".
    pub fn duration(self) -> Option<Duration> {
        match self {
            Interval::Every(span) => Some(span),
            Interval::Auto | Interval::Inf => None,
        }
    }
}

/// A span of time as written, in seconds: below a nanosecond too, where `Duration` would be zero.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Seconds(pub f64);

/// Splits leading digits (a sign allowed) from the rest, after blanks.
fn integer(text: &str) -> Option<(i128, &str)> {
    let text = text.trim_start();
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits = unsigned.len()
        - unsigned
            .trim_start_matches(|c: char| c.is_ascii_digit())
            .len();
    if digits == 0 {
        return None;
    }
    // More digits than an i128 holds: the maximum, which callers clamp.
    let magnitude = unsigned[..digits].parse().unwrap_or(i128::MAX);
    let value = if text.starts_with('-') {
        -magnitude
    } else {
        magnitude
    };
    Some((value, &unsigned[digits..]))
}

/// Splits a leading decimal number, with fraction and exponent, from the rest, after blanks.
fn decimal(text: &str) -> Option<(f64, &str)> {
    let text = text.trim_start();
    let digits = |s: &str| s.len() - s.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let mut end = usize::from(text.starts_with(['-', '+']));
    let whole = digits(&text[end..]);
    end += whole;
    let mut fraction = 0;
    if text[end..].starts_with('.') {
        fraction = digits(&text[end + 1..]);
        end += 1 + fraction;
    }
    if whole + fraction == 0 {
        return None;
    }
    let rest = &text[end..];
    if rest.starts_with(['e', 'E']) {
        let sign = usize::from(rest[1..].starts_with(['-', '+']));
        let exponent = digits(&rest[1 + sign..]);
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// A size: `8k`, `1mb`, `inf`, `auto`; `-1` is `inf`, as in UCX.
pub fn size(text: &str) -> Option<Size> {
    if text.eq_ignore_ascii_case("auto") {
        return Some(Size::Auto);
    }
    if text.eq_ignore_ascii_case("inf") {
        return Some(Size::Inf);
    }
    let (value, unit) = integer(text)?;
    let value = value.clamp(i64::MIN.into(), i64::MAX.into());
    let mut unit = unit.chars().map(|c| c.to_ascii_lowercase());
    let shift = match unit.next() {
        Some(scale) => 10 * "bkmgt".find(scale)?,
        None => 0,
    };
    // Bytes, or whatever else begins with a b, as in UCX.
    if unit.next().is_some_and(|c| c != 'b') {
        return None;
    }
    if value < 0 {
        return Some(Size::Inf);
    }
    let bytes = value << shift;
    Some(usize::try_from(bytes).map_or(Size::Inf, Size::Bytes))
}

/// A size in its largest whole unit.
pub fn print_size(size: Size) -> String {
    let mut bytes = match size {
        Size::Auto => return "auto".into(),
        Size::Inf => return "inf".into(),
        Size::Bytes(bytes) => bytes,
    };
    let mut unit = 0;
    while bytes != 0 && bytes % 1024 == 0 && unit < 6 {
        bytes /= 1024;
        unit += 1;
    }
    format!("{bytes}{}", ["", "K", "M", "G", "T", "P", "E"][unit])
}

/// A number of 32 bits; `inf` is the largest.
pub fn uint(text: &str) -> Option<u32> {
    if text.eq_ignore_ascii_case("inf") {
        return Some(u32::MAX);
    }
    // The low 32 bits, as scanf stores them.
    integer(text).map(|(value, _)| value as u32)
}

/// A number of 32 bits, or `inf`.
pub fn print_uint(value: u32) -> String {
    if value == u32::MAX {
        "inf".into()
    } else {
        value.to_string()
    }
}

/// A signed number of 32 bits.
pub fn int(text: &str) -> Option<i32> {
    integer(text).map(|(value, _)| value as i32)
}

/// A number of 64 bits; a negative one wraps around.
pub fn ulong(text: &str) -> Option<u64> {
    integer(text).map(|(value, _)| value as u64)
}

/// A number of 64 bits, `inf` or `auto`.
pub fn count(text: &str) -> Option<Count> {
    if text.eq_ignore_ascii_case("auto") {
        return Some(Count::Auto);
    }
    if text.eq_ignore_ascii_case("inf") {
        return Some(Count::Inf);
    }
    ulong(text).map(|value| match value {
        u64::MAX => Count::Inf,
        value => Count::Number(value as usize),
    })
}

/// A count as it is kept.
pub fn print_count(count: Count) -> String {
    match count {
        Count::Auto => "auto".into(),
        Count::Inf => "inf".into(),
        Count::Number(n) => n.to_string(),
    }
}

/// A decimal number, `inf` too.
pub fn float(text: &str) -> Option<f64> {
    if text.eq_ignore_ascii_case("inf") {
        return Some(f64::INFINITY);
    }
    decimal(text)
        .map(|(value, _)| value)
        .filter(|value| value.is_finite())
}

/// A decimal number above zero; the inner `None` is `auto`.
pub fn ratio(text: &str) -> Option<Option<f64>> {
    if text.eq_ignore_ascii_case("auto") {
        return Some(None);
    }
    // Less would be kept as zero.
    float(text).filter(|&value| value >= 0.001).map(Some)
}

/// A ratio as it is kept.
pub fn print_ratio(ratio: Option<f64>) -> String {
    ratio.map_or("auto".into(), |value| format!("{value:.3}"))
}

/// A hexadecimal number with or without `0x`; the inner `None` is `auto`.
pub fn hex(text: &str) -> Option<Option<u32>> {
    if text.eq_ignore_ascii_case("auto") {
        return Some(None);
    }
    let digits = text
        .strip_prefix("0x")
        .or(text.strip_prefix("0X"))
        .unwrap_or(text);
    u32::from_str_radix(digits, 16).ok().map(Some)
}

/// A hexadecimal number as it is kept.
pub fn print_hex(value: Option<u32>) -> String {
    value.map_or("auto".into(), |value| format!("0x{value:x}"))
}

/// A time span: seconds without a unit.
pub fn time(text: &str) -> Option<Seconds> {
    // A negative span has no meaning: UCX turns it into centuries by overflow. It is kept in microseconds.
    let is_kept = |&span: &f64| span >= 0.0 && (span * 1e6).is_finite();
    signed_time(text).filter(is_kept).map(Seconds)
}

/// Seconds, as written.
fn signed_time(text: &str) -> Option<f64> {
    let (value, unit) = decimal(text)?;
    let scale = match unit {
        "" | "s" => 1.0,
        "m" => 60.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "ns" => 1e-9,
        _ => return None,
    };
    value.is_finite().then_some(value * scale)
}

/// A time span in canonical spelling: microseconds, and more digits than UCX prints where those would be zero.
pub fn print_time(span: Seconds) -> String {
    let us = span.0 * 1e6;
    let short = format!("{us:.2}us");
    if us > 0.0 && us < 1.0 && (us * 100.0).fract() != 0.0 {
        format!("{us}us")
    } else {
        short
    }
}

/// A time span, `inf` or `auto`.
pub fn interval(text: &str) -> Option<Interval> {
    if text.eq_ignore_ascii_case("auto") {
        return Some(Interval::Auto);
    }
    if text.eq_ignore_ascii_case("inf") {
        return Some(Interval::Inf);
    }
    // Longer than a `Duration` holds is never, and so is less than nothing: UCX makes centuries of it, or `inf`.
    signed_time(text)
        .map(|span| Duration::try_from_secs_f64(span).map_or(Interval::Inf, Interval::Every))
}

/// An interval as it is kept.
pub fn print_interval(interval: Interval) -> String {
    match interval {
        Interval::Auto => "auto".into(),
        Interval::Inf => "inf".into(),
        Interval::Every(span) => print_time(Seconds(span.as_secs_f64())),
    }
}

/// Bytes per second from `12MBps`, `3Gb/s`, `800GBs`; the inner `None` is `auto`.
pub fn bandwidth(text: &str) -> Option<Option<f64>> {
    if text.eq_ignore_ascii_case("auto") {
        return Some(None);
    }
    let (value, unit) = decimal(text)?;
    let (scale, unit) = match unit.as_bytes().first()? {
        b'K' => (1024f64, &unit[1..]),
        b'M' => (1024f64.powi(2), &unit[1..]),
        b'G' => (1024f64.powi(3), &unit[1..]),
        b'T' => (1024f64.powi(4), &unit[1..]),
        _ => (1.0, unit),
    };
    let bits = match unit {
        "Bs" | "Bps" | "B/s" => 1.0,
        "bs" | "bps" | "b/s" => 8.0,
        _ => return None,
    };
    let rate = value * scale / bits;
    // Less would be kept as zero.
    (rate >= 0.01 && rate.is_finite()).then_some(Some(rate))
}

/// A rate in the largest unit that leaves at most 50000 of it.
pub fn print_bandwidth(rate: Option<f64>) -> String {
    let Some(mut rate) = rate else {
        return "auto".into();
    };
    let mut unit = 0;
    while rate > 50000.0 && unit < 4 {
        rate /= 1024.0;
        unit += 1;
    }
    format!("{rate:.2}{}Bps", ["", "K", "M", "G", "T"][unit])
}

/// `first-last` or one number, as it is kept.
pub fn range(text: &str) -> Option<String> {
    let (first, rest) = integer(text)?;
    let last = match rest.strip_prefix('-') {
        Some(last) => integer(last)?.0,
        None => first,
    };
    match (first.min(last) < 0, first == last) {
        (true, _) => None,
        (_, true) => Some(first.to_string()),
        (_, false) => Some(format!("{first}-{last}")),
    }
}
