//! The lines of `ucx.conf`, as UCX reads them.
#![forbid(unsafe_code)]

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfLine<'a> {
    /// Blanks, or a comment behind `#` or `;`.
    Empty,
    /// `[name]`.
    Section(&'a str),
    /// `key=value` or `key:value`, both without blanks around them. A value ends before a blank and `;`.
    Setting(&'a str, &'a str),
    /// Anything else.
    Meaningless,
}

impl ConfLine<'_> {
    /// Parses a line, which is without its end. UCX takes a line that begins with a blank for another value of
    /// the option in the line before; here the blank has no meaning.
    pub fn parse(line: &str) -> ConfLine<'_> {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            return ConfLine::Empty;
        }
        if let Some(rest) = line.strip_prefix('[') {
            return match rest.split_once(']') {
                Some((name, _)) => ConfLine::Section(name),
                None => ConfLine::Meaningless,
            };
        }
        match without_comment(line).split_once(['=', ':']) {
            Some((key, value)) if !key.trim().is_empty() => {
                ConfLine::Setting(key.trim(), value.trim())
            }
            _ => ConfLine::Meaningless,
        }
    }
}

/// The line up to a `;` behind a blank.
fn without_comment(line: &str) -> &str {
    let is_start = |&(at, _): &(usize, &str)| line[..at].ends_with([' ', '\t']);
    match line.match_indices(';').find(is_start) {
        Some((at, _)) => &line[..at],
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What UCX 1.22 prints as the value of UCX_PROTO_INFO_DIR.
    #[test]
    fn values_end_where_they_end_in_ucx() {
        for (line, value) in [
            ("K=a#b", "a#b"),
            ("K=a;b", "a;b"),
            ("K=a # b", "a # b"),
            ("K=a ; b", "a"),
            ("K=a\t;b", "a"),
            ("K=a ;b # c", "a"),
            ("K = a=b ", "a=b"),
            ("K:a=b", "a=b"),
            ("K=\"a b\"", "\"a b\""),
            ("  K=a", "a"),
            ("K=", ""),
        ] {
            assert_eq!(ConfLine::parse(line), ConfLine::Setting("K", value));
        }
    }

    #[test]
    fn other_lines() {
        for (line, expected) in [
            ("", ConfLine::Empty),
            (" \t", ConfLine::Empty),
            ("# K=a", ConfLine::Empty),
            ("  ; K=a", ConfLine::Empty),
            ("[a b] junk", ConfLine::Section("a b")),
            ("[a ; b]", ConfLine::Section("a ; b")),
            ("[a", ConfLine::Meaningless),
            ("K", ConfLine::Meaningless),
            ("K ; x=3", ConfLine::Meaningless),
            ("=3", ConfLine::Meaningless),
        ] {
            assert_eq!(ConfLine::parse(line), expected, "{line}");
        }
    }
}
