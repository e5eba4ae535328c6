//! The table of `UCX_*` options: sections of rows, and the names of each row.
//!
//! It defines what `ucp_config_read` accepts, what `ucp_config_print` prints and what docs/OPTIONS.md contains. Options
//! that several transports share are written once, in a block; a section puts blocks behind the prefix of its
//! transport. Names, types and defaults are those of UCX 1.22; those of only 1.13.1 or 1.23 are here too, so that no
//! name of any UCX is reported as unknown.
#![forbid(unsafe_code)]

// The rows of a transport, and the structure of their values, lie in its folder. They are modules of this layer and not
// of `tl`: the log, which is below `tl`, reads options, and the static library has no code that could add rows when it
// is loaded.
#[path = "../tl/cm/rows.rs"]
pub(super) mod rows_cm;
#[path = "../tl/cuda/rows.rs"]
pub(super) mod rows_cuda;
#[path = "../tl/ib/rows.rs"]
pub(super) mod rows_ib;
#[path = "../tl/ib/rows_device.rs"]
mod rows_ib_device;
#[path = "../tl/ib/rows_iface.rs"]
mod rows_ib_iface;
#[path = "../tl/ofi/rows.rs"]
pub(super) mod rows_ofi;
#[path = "../tl/shm/rows.rs"]
pub(super) mod rows_shm;
#[path = "../tl/tcp/rows.rs"]
pub(super) mod rows_tcp;
#[path = "../tl/tofu/rows.rs"]
pub(super) mod rows_tofu;

use super::glob::glob;
use super::section::{OptionBlock, Row, Section};
use super::{rows_context, rows_process};

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
    &rows_ofi::OFI,
    &rows_cm::TCP_CM,
    &rows_cm::RDMA_CM,
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
    pub fn block(self) -> &'static OptionBlock {
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
