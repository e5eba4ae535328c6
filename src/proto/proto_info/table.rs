//! Tables of protocols by size, and their text.

use crate::wire::stats::StatProtocol;
use std::fmt::Write;

/// A range of sizes of one operation with the same protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtoRange {
    /// Bytes.
    pub first: usize,
    /// Bytes; `usize::MAX` for no end.
    pub last: usize,
    pub what: &'static str,
    /// Transport and device, as `posix/memory`.
    pub lane: String,
    /// The statistics entry that counts it.
    pub protocol: StatProtocol,
    /// The entry that counts it if the other of two protocols in one row was faster.
    pub or: Option<StatProtocol>,
}

impl ProtoRange {
    /// Whether one of its protocols has been used. `messages`: how many each statistics entry has counted.
    pub(super) fn is_used(&self, messages: impl Fn(StatProtocol) -> u64) -> bool {
        let protocols = [Some(self.protocol), self.or];
        protocols.into_iter().flatten().any(|p| messages(p) > 0)
    }
}

/// One operation to one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtoTable {
    pub operation: &'static str,
    pub ranges: Vec<ProtoRange>,
}

/// A table as text, with a line above and below.
pub fn draw(title: &str, table: &ProtoTable) -> String {
    let rows: Vec<[String; 3]> = table
        .ranges
        .iter()
        .map(|r| [span(r.first, r.last), r.what.into(), r.lane.clone()])
        .collect();
    let heads = ["Range", "Description", "Config"];
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].len());
        cells.max().unwrap_or(0).max(heads[column].len())
    };
    let mut widths = [width(0), width(1), width(2)];
    // The lines above the columns must fit, too.
    let inner = title.len().max(table.operation.len());
    widths[1] += inner.saturating_sub(widths.iter().sum::<usize>() + 6);
    let [a, b, c] = widths;
    let all = a + b + c + 6;
    let rule = format!("+-{:-<a$}-+-{:-<b$}-+-{:-<c$}-+\n", "", "", "");
    let mut out = rule.clone();
    for text in [title, table.operation] {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "| {text:<all$} |");
    }
    out += &rule;
    let _ = writeln!(
        out,
        "| {:^a$} | {:^b$} | {:^c$} |",
        heads[0], heads[1], heads[2]
    );
    out += &rule;
    for [range, what, lane] in rows {
        let _ = writeln!(out, "| {range:>a$} | {what:<b$} | {lane:<c$} |");
    }
    out + &rule
}

/// A number of bytes, as `16K`.
pub fn size(bytes: usize) -> String {
    match bytes {
        usize::MAX => "inf".to_owned(),
        n if n >= 1 << 20 && n % (1 << 20) == 0 => format!("{}M", n >> 20),
        n if n >= 1 << 10 && n % (1 << 10) == 0 => format!("{}K", n >> 10),
        n => n.to_string(),
    }
}

/// `113..16K`
fn span(first: usize, last: usize) -> String {
    format!("{}..{}", size(first), size(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        assert_eq!(span(0, 112), "0..112");
        assert_eq!(span(113, 16 << 10), "113..16K");
        assert_eq!(span(1 << 20, usize::MAX), "1M..inf");
    }

    #[test]
    fn a_row_of_two_protocols_is_used_by_either() {
        let range = ProtoRange {
            first: 0,
            last: 1,
            what: "rendezvous",
            lane: "posix/memory".into(),
            protocol: StatProtocol::RndvMessages,
            or: Some(StatProtocol::RndvCopy),
        };
        let by = |used| range.is_used(|protocol| u64::from(protocol == used));
        let uses = [
            by(StatProtocol::RndvMessages),
            by(StatProtocol::RndvCopy),
            by(StatProtocol::Eager),
        ];
        assert_eq!(uses, [true, true, false]);
    }

    #[test]
    fn a_table_is_a_rectangle() {
        let range = |first, last, what, lane: &str| ProtoRange {
            first,
            last,
            what,
            lane: lane.into(),
            protocol: StatProtocol::Short,
            or: None,
        };
        let table = ProtoTable {
            operation: "an operation with a name that is longer than everything else here",
            ranges: vec![range(0, 1, "short", "a"), range(2, 3, "long", "bcdef")],
        };
        let text = draw("title", &table);
        let lengths: Vec<usize> = text.lines().map(str::len).collect();
        assert!(lengths.iter().all(|&n| n == lengths[0]), "{text}");
        assert_eq!(lengths.len(), 9);
    }
}
