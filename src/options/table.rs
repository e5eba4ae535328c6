//! The table of `UCX_*` options: sections of rows, and the names of each row.
//!
//! It defines what `ucp_config_read` accepts, what `ucp_config_print` prints and what docs/OPTIONS.md contains. Options
//! that several transports share are written once, in a block; a section puts blocks behind the prefix of its
//! transport. Names, types and defaults are those of UCX 1.22; those of only 1.13.1 or 1.23 are here too, so that no
//! name of any UCX is reported as unknown.
#![forbid(unsafe_code)]

use super::glob::glob;
use super::kind::Kind;
use super::{rows_context, rows_cuda, rows_ib, rows_process, rows_shm, rows_tcp, rows_tofu};

/// One option, or one of several that differ in their prefix only.
#[derive(Debug)]
pub struct Row {
    /// Its name behind `UCX_` and the prefix of the section.
    pub name: &'static str,
    /// The values that it takes.
    pub kind: Kind,
    /// Its default value, in canonical spelling.
    pub default: &'static str,
    /// What it does, in one line.
    pub doc: &'static str,
    /// An older name.
    pub formerly: Option<&'static str>,
}

/// A row without an older name.
pub const fn row(name: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Row {
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
pub struct Block {
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
    pub blocks: &'static [Block],
    /// Defaults that differ from those of a shared block.
    pub defaults: &'static [(&'static str, &'static str)],
    /// Effect of an invalid value.
    pub strictness: Strictness,
}

/// The reader of an option, in the order in which a pattern of `ucp_config_modify` is matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reader {
    /// Contexts.
    Context,
    /// The process, whenever it uses the option.
    Process,
    /// Transports.
    Transport,
    /// The process, once: a later change has no effect.
    ProcessStart,
}

impl Section {
    /// The reader of its options.
    pub fn reader(&self) -> Reader {
        let is = |other: &Section| std::ptr::eq(self, other);
        if is(&rows_context::CONTEXT) {
            Reader::Context
        } else if is(&rows_process::PROCESS_START) {
            Reader::ProcessStart
        } else if is(&rows_process::PROCESS) || is(&rows_process::HOOKS) {
            Reader::Process
        } else {
            Reader::Transport
        }
    }

    /// The default of a row in this section.
    pub fn default_of(&self, row: &Row) -> &'static str {
        let own = self.defaults.iter().find(|(name, _)| *name == row.name);
        own.map_or(row.default, |(_, value)| value)
    }
}

/// Every option, in the order in which it is printed.
pub static SECTIONS: &[&Section] = &[
    &rows_process::PROCESS,
    &rows_process::PROCESS_START,
    &rows_process::HOOKS,
    &rows_context::CONTEXT,
    &rows_shm::SELF,
    &rows_tcp::TCP,
    &rows_tofu::TOFU,
    &rows_tcp::TCP_CM,
    &rows_tcp::RDMA_CM,
    &rows_shm::SYSV,
    &rows_shm::POSIX,
    &rows_shm::XPMEM,
    &rows_shm::CMA,
    &rows_shm::KNEM,
    &rows_cuda::CUDA_COPY,
    &rows_cuda::CUDA_IPC,
    &rows_cuda::GDP,
    &rows_ib::IB,
    &rows_ib::IB_RCACHE,
    &rows_ib::GGA,
    &rows_ib::RC_VERBS,
    &rows_ib::RC_MLX5,
    &rows_ib::RC_GDA,
    &rows_ib::GGA_MLX5,
    &rows_ib::DC_MLX5,
    &rows_ib::UD_VERBS,
    &rows_ib::UD_MLX5,
    &rows_ib::SRD,
];

/// Prefixes of options that are accepted without a check: rucp has no such transport.
const FOREIGN: &[&str] = &["GDR_COPY_", "ROCM_", "ZE_", "GAUDI_", "UGNI_"];

/// Whether a name has such a prefix.
pub fn is_foreign(name: &str) -> bool {
    FOREIGN.iter().any(|family| name.starts_with(family))
}

/// One option of one section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    section: u8,
    block: u8,
    row: u8,
}

impl Slot {
    /// The section it is in.
    pub fn section(self) -> &'static Section {
        SECTIONS[usize::from(self.section)]
    }

    /// The block of that section.
    pub fn block(self) -> &'static Block {
        &self.section().blocks[usize::from(self.block)]
    }

    /// The row of that block.
    pub fn row(self) -> &'static Row {
        &self.block().rows[usize::from(self.row)]
    }

    /// The full name without `UCX_`.
    pub fn name(self) -> String {
        format!("{}{}", self.section().prefix, self.row().name)
    }

    /// The default value.
    pub fn default(self) -> &'static str {
        self.section().default_of(self.row())
    }
}

/// Every slot, in the order of the table.
pub fn slots() -> impl Iterator<Item = Slot> {
    // The casts are lossless: a test checks that no level has more than 255 elements.
    SECTIONS.iter().enumerate().flat_map(|(section, content)| {
        content
            .blocks
            .iter()
            .enumerate()
            .flat_map(move |(block, content)| {
                (0..content.rows.len()).map(move |row| Slot {
                    section: section as u8,
                    block: block as u8,
                    row: row as u8,
                })
            })
    })
}

/// Distance of a name from the full name of the slot that it reaches: 0 is the full name itself.
pub type Distance = u8;

/// The slots that a name without `UCX_` reaches: one by its full name, several by a shared prefix.
pub fn find(name: &str) -> Vec<(Slot, Distance)> {
    let mut found = Vec::new();
    for (section, content) in SECTIONS.iter().enumerate() {
        for (block, inner) in content.blocks.iter().enumerate() {
            let prefixes = std::iter::once(&content.prefix).chain(inner.aliases);
            for (distance, prefix) in prefixes.enumerate() {
                let Some(rest) = name.strip_prefix(*prefix) else {
                    continue;
                };
                if let Some((row, older)) = find_row(inner.rows, rest) {
                    let slot = Slot {
                        section: section as u8,
                        block: block as u8,
                        row: row as u8,
                    };
                    found.push((slot, 2 * distance as Distance + Distance::from(older)));
                    break;
                }
            }
        }
    }
    found
}

/// The slots of one reader that a pattern reaches, by any of their names.
pub fn matching(pattern: &str, reader: Reader) -> Vec<Slot> {
    let reaches = |slot: &Slot| {
        let (prefix, row) = (slot.section().prefix, slot.row());
        let mut prefixes = std::iter::once(&prefix).chain(slot.block().aliases);
        let glob = |prefix: &str, name: &str| glob(pattern, &format!("{prefix}{name}"));
        prefixes.any(|p| glob(p, row.name) || row.formerly.is_some_and(|older| glob(p, older)))
    };
    let of_reader = |slot: &Slot| slot.section().reader() == reader;
    slots().filter(of_reader).filter(reaches).collect()
}

/// The slot with this full name.
pub fn find_exact(name: &str) -> Option<Slot> {
    SECTIONS.iter().enumerate().find_map(|(section, content)| {
        let rest = name.strip_prefix(content.prefix)?;
        content
            .blocks
            .iter()
            .enumerate()
            .find_map(|(block, inner)| {
                let row = inner.rows.iter().position(|row| row.name == rest)?;
                Some(Slot {
                    section: section as u8,
                    block: block as u8,
                    row: row as u8,
                })
            })
    })
}

/// The row with this name, and whether it is its older name.
fn find_row(rows: &[Row], name: &str) -> Option<(usize, bool)> {
    rows.iter().enumerate().find_map(|(at, row)| {
        if row.name == name {
            return Some((at, false));
        }
        (row.formerly == Some(name)).then_some((at, true))
    })
}
