//! Lists in the syntax of options: words of a set, permitted or excluded names, devices, key:value pairs.
#![forbid(unsafe_code)]

use super::kind::OptionKind;

/// The word of the set that `text` spells, whatever its case.
pub fn choice(text: &str, words: &[&'static str]) -> Option<&'static str> {
    words
        .iter()
        .copied()
        .find(|word| word.eq_ignore_ascii_case(text))
}

/// The parts between commas; an empty text has none.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').filter(move |_| !text.is_empty())
}

/// Words of the set, each once, in the order of the set.
pub fn choices(text: &str, words: &[&'static str]) -> Option<String> {
    let mut chosen = vec![false; words.len()];
    for part in parts(text) {
        let at = words
            .iter()
            .position(|word| word.eq_ignore_ascii_case(part))?;
        chosen[at] = true;
    }
    let kept: Vec<&str> = words
        .iter()
        .zip(chosen)
        .filter(|(_, on)| *on)
        .map(|(word, _)| *word)
        .collect();
    Some(kept.join(","))
}

/// Words of the set in the order given.
pub fn ranking(text: &str, words: &[&'static str]) -> Option<String> {
    let kept: Option<Vec<&str>> = parts(text).map(|part| choice(part, words)).collect();
    kept.map(|kept| kept.join(","))
}

/// Values of one kind.
pub fn list_of(text: &str, kind: &OptionKind) -> Option<String> {
    let kept: Option<Vec<String>> = parts(text).map(|part| kind.normalise(part)).collect();
    kept.map(|kept| kept.join(","))
}

/// An allow list: `all` must be the only name, and no name may be excluded from it.
pub fn names(text: &str) -> Option<String> {
    let inner = text.strip_prefix('^').unwrap_or(text);
    if inner == "all" {
        return Some(inner.to_owned());
    }
    parts(inner)
        .all(|part| part != "all")
        .then(|| text.to_owned())
}

/// An allow list of devices, with its ranges written out.
pub fn devices(text: &str) -> Option<String> {
    let text = names(text)?;
    let (sign, inner) = match text.strip_prefix('^') {
        Some(inner) => ("^", inner),
        None => ("", text.as_str()),
    };
    let written_out: Vec<String> = parts(inner).flat_map(expand).collect();
    Some(format!("{sign}{}", written_out.join(",")))
}

/// More devices than any machine has: a longer range is treated as a name.
const LONGEST_RANGE: u32 = 4096;

/// `mlx5_[0-3]:1` written out; anything else as it is.
fn expand(name: &str) -> Vec<String> {
    let range = || {
        let (prefix, rest) = name.split_once('[')?;
        let (range, suffix) = rest.split_once(']')?;
        let (first, last) = range.split_once('-')?;
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last && last - first < LONGEST_RANGE).then_some((prefix, first..=last, suffix))
    };
    match range() {
        Some((prefix, numbers, suffix)) => {
            numbers.map(|n| format!("{prefix}{n}{suffix}")).collect()
        }
        None => vec![name.to_owned()],
    }
}

/// A value for every key, in the order of the keys: later parts override earlier ones, and no key may be missing.
pub fn keyed(text: &str, keys: &[&'static str], kind: &OptionKind) -> Option<String> {
    let mut values: Vec<Option<String>> = vec![None; keys.len()];
    let mut rest = None;
    for part in text.split(',') {
        match part.split_once(':') {
            Some((key, value)) => {
                let at = keys.iter().position(|known| *known == key)?;
                values[at] = Some(kind.normalise(value)?);
            }
            None => rest = Some(kind.normalise(part)?),
        }
    }
    let pairs: Option<Vec<String>> = keys
        .iter()
        .zip(values)
        .map(|(key, value)| Some(format!("{key}:{}", value.or_else(|| rest.clone())?)))
        .collect();
    pairs.map(|pairs| pairs.join(","))
}

/// Names of the signals of Linux, by number.
const SIGNALS: [&str; 32] = [
    "SIGNAL0", "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV",
    "USR2", "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU",
    "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// The name of a signal without `SIG`.
pub fn signal(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some(SIGNALS[0].to_owned());
    }
    if let Ok(number) = text.parse::<usize>() {
        return SIGNALS.get(number).map(|name| (*name).to_owned());
    }
    let bare = match text.get(..3) {
        Some(start) if start.eq_ignore_ascii_case("SIG") && choice(text, &SIGNALS).is_none() => {
            &text[3..]
        }
        _ => text,
    };
    choice(bare, &SIGNALS).map(str::to_owned)
}
