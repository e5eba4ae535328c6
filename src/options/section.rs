//! Rows, blocks and sections of the table of options.
#![forbid(unsafe_code)]

use super::kind::OptionKind;

/// One option, or one of several that differ in their prefix only.
#[derive(Debug)]
pub struct Row {
    /// Its name behind `UCX_` and the prefix of the section.
    pub name: &'static str,
    /// The values that it takes.
    pub kind: OptionKind,
    /// Its default value, in canonical spelling.
    pub default: &'static str,
    /// What it does, in one line.
    pub doc: &'static str,
    /// An older name.
    pub formerly: Option<&'static str>,
}

/// A row without an older name.
pub const fn row(
    name: &'static str,
    kind: OptionKind,
    default: &'static str,
    doc: &'static str,
) -> Row {
    Row {
        name,
        kind,
        default,
        doc,
        formerly: None,
    }
}

impl Row {
    /// The same row, reached by an older name too.
    pub const fn formerly(mut self, name: &'static str) -> Row {
        self.formerly = Some(name);
        self
    }
}

/// Rows of a section, and the shorter prefixes under which they can be set for several sections at once.
#[derive(Debug)]
pub struct OptionBlock {
    /// The rows.
    pub rows: &'static [Row],
    /// The shared prefixes, nearest first: the nearest one that is set has precedence.
    pub aliases: &'static [&'static str],
}

/// Effect of an invalid value in the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// Reading fails, as `ucp_config_read` of UCX does.
    Fail,
    /// It is reported and the default stays; no worker can be made that would use this transport, or none at all. UCX
    /// reads the options of transports when it makes a worker.
    Worker(Option<&'static str>),
    /// It is reported and the default stays: UCX reads it late or, without the hardware, never.
    Report,
}

/// The options of one part of the library.
#[derive(Debug)]
pub struct Section {
    /// Title of the section.
    pub title: &'static str,
    /// Prefix between `UCX_` and the names of its rows.
    pub prefix: &'static str,
    /// Its rows.
    pub blocks: &'static [OptionBlock],
    /// Defaults that differ from those of a shared block.
    pub defaults: &'static [(&'static str, &'static str)],
    /// Effect of an invalid value.
    pub strictness: Strictness,
}

impl Section {
    /// The default of a row in this section.
    pub fn default_of(&self, row: &Row) -> &'static str {
        let own = self.defaults.iter().find(|(name, _)| *name == row.name);
        own.map_or(row.default, |(_, value)| value)
    }
}
