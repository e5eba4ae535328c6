//! The printed forms of the options: for `ucp_config_print`, and the reference docs/OPTIONS.md.
#![forbid(unsafe_code)]

use std::fmt::{self, Write};

use super::Options;
use super::environment::UCX;
use super::kind::OptionKind;
use super::section::{OptionBlock, Section};
use super::settings::Settings;
use super::table::{SECTIONS, Slot, slots};

/// The parts to print; the fields are the flags of `ucs_config_print_flags_t`.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrintFlags {
    /// The values.
    pub config: bool,
    /// The title.
    pub header: bool,
    /// The description of each option.
    pub doc: bool,
    /// Older names too.
    pub hidden: bool,
    /// As comments, where they are the defaults.
    pub comment_default: bool,
}

/// The section that is printed: the one that `ucp_config_print` of UCX prints.
const PRINTED: &str = "Context";

impl Options {
    /// Prints the options of a context.
    pub fn print(&self, out: &mut dyn Write, title: &str, flags: PrintFlags) -> fmt::Result {
        self.print_sections(out, title, flags, &|section| section.title == PRINTED)
    }

    /// Prints the options of all sections.
    pub fn print_all(&self, out: &mut dyn Write, title: &str, flags: PrintFlags) -> fmt::Result {
        self.print_sections(out, title, flags, &|_| true)
    }

    /// Prints the options of all sections whose full names, without `UCX_`, are `wanted`.
    pub fn print_where(
        &self,
        out: &mut dyn Write,
        title: &str,
        flags: PrintFlags,
        wanted: &dyn Fn(&str) -> bool,
    ) -> fmt::Result {
        if flags.header {
            writeln!(out, "#\n# {title}\n#\n")?;
        }
        slots()
            .filter(|slot| wanted(&slot.name()))
            .try_for_each(|slot| self.print_slot(out, slot, flags))
    }

    /// Every option that is in use: its full name, its value and its default.
    pub fn all(&self) -> impl Iterator<Item = (String, &str, &'static str)> {
        slots()
            .filter(|slot| slot.row().kind != OptionKind::Retired)
            .map(|slot| {
                (
                    format!("{UCX}{}", slot.name()),
                    self.text(slot),
                    slot.default(),
                )
            })
    }

    fn print_sections(
        &self,
        out: &mut dyn Write,
        title: &str,
        flags: PrintFlags,
        wanted: &dyn Fn(&Section) -> bool,
    ) -> fmt::Result {
        if flags.header {
            writeln!(out, "#\n# {title}\n#\n")?;
        }
        if !flags.config {
            return Ok(());
        }
        slots()
            .filter(|slot| wanted(slot.section()))
            .try_for_each(|slot| self.print_slot(out, slot, flags))
    }

    fn print_slot(&self, out: &mut dyn Write, slot: Slot, flags: PrintFlags) -> fmt::Result {
        let row = slot.row();
        let prefix = slot.section().prefix;
        if row.kind == OptionKind::Retired {
            // Only the name can be printed.
            return if flags.hidden {
                writeln!(out, "{UCX}{prefix}{} (deprecated)", row.name)
            } else {
                Ok(())
            };
        }
        let text = self.text(slot);
        let comment = if flags.comment_default && text == slot.default() {
            "# "
        } else {
            ""
        };
        if flags.doc {
            writeln!(
                out,
                "#\n# {}\n#\n# syntax:    {}",
                row.doc,
                row.kind.syntax()
            )?;
            let shared: Vec<String> = slot
                .block()
                .aliases
                .iter()
                .map(|alias| format!("{UCX}{alias}{}", row.name))
                .collect();
            if !shared.is_empty() {
                writeln!(out, "# inherits:  {}", shared.join(", "))?;
            }
            writeln!(out, "#")?;
        }
        for name in std::iter::once(row.name).chain(row.formerly.filter(|_| flags.hidden)) {
            writeln!(out, "{comment}{UCX}{prefix}{name}={text}")?;
        }
        if flags.doc { writeln!(out) } else { Ok(()) }
    }
}

/// docs/OPTIONS.md: every option, shared rows once.
pub fn reference() -> String {
    let mut out = String::from(
        "# The UCX_* options\n\n\
         This page is generated from the table in src/options; `RUCP_BLESS=1 cargo test --test options` writes it \
         again.\n\n\
         Options are read from files, then from the environment (`UCX_NAME`), then from the environment with \
         the prefix that the program asked for (`PREFIX_UCX_NAME`); later ones win, and `ucp_config_modify` wins \
         over all. The full name of an option wins over a shared prefix. The options in **bold** have an effect; \
         the others are checked and accepted, so that what is set for UCX does no harm. Names are in the tables \
         without the prefix of their section: `UCX_RC_TIMEOUT` is `TIMEOUT` under *Reliable connections, verbs*.\n\n\
         `ucp_config_modify` takes names without `UCX_`; one with `*` or `?` stands for all options that it matches: \
         of contexts, else of the process, else of transports. Options that are fixed once the process runs, unknown \
         names and wrong values are refused with `UCS_ERR_INVALID_PARAM`.\n\n\
         ## Files\n\n\
         Every process reads these files that exist, once; later ones win:\n\n\
         1. `ucx.conf` in the directory that `UCX_CONFIG_DIR` named when the library was built, if it did;\n\
         2. `../etc/ucx/ucx.conf`, from the directory of `libucp.so.0` (`PREFIX/etc/ucx/ucx.conf`);\n\
         3. `$HOME/ucx.conf`;\n\
         4. `$UCX_CONFIG_DIR/ucx.conf`;\n\
         5. `ucx.conf` in the working directory.\n\n\
         A line is `UCX_NAME=value` or `UCX_NAME:value`, a comment behind `#` or `;`, or `[section]`. A value ends \
         before a blank and `;`. In a section the lines `CPU vendor=`, `CPU model=` and `DMI product_name=`, with a \
         pattern, limit the lines below them to machines that match (`rucp_info -s` prints what this one is). Blanks \
         in front of a line have no meaning; UCX takes such a line for another value of the option above it. A line \
         without a meaning, an unknown name and a file that cannot be read are one line of warning each, with the \
         file and the line, when the first worker is created. An error of a value from a file names the file and the \
         line, too.\n\n\
         ## Numbers\n\n\
         Numbers are read as in UCX, which ignores what follows the digits and lets negative ones wrap around: \
         `UCX_RNDV_THRESH=-5` is `inf`, `UCX_TCP_MAX_POLL=1.5` is 1. rucp warns of a value that it reads as another \
         one. -1 is in wide use for no limit, and is not warned of.\n\n\
         ## Wrong values\n\n\
         What a value that is none of an option's leads to is as in UCX, and depends on the part of the library that \
         the option belongs to. An option of contexts (*Context*, such as `RNDV_THRESH` and `SHM_IDLE_TIMEOUT`): \
         `ucp_config_read`, and `ucp_init` without a configuration, fail with `UCS_ERR_INVALID_PARAM` and a line of \
         level error. An option of a transport (`POSIX_SEG_SIZE`): `ucp_worker_create` fails so where the transport \
         is selected. An option of the process (`LOG_FILE_SIZE`, `TRACE_MAX_SIZE`), or of a transport that rucp does \
         not have: the default is used, with a warning; UCX is silent there.\n",
    );
    let effective = Settings::names();
    for section in SECTIONS {
        write_section(&mut out, section, &effective).expect("writing to a String does not fail");
    }
    out
}

/// `effective`: the options that have an effect.
fn write_section(out: &mut String, section: &Section, effective: &[&str]) -> fmt::Result {
    writeln!(
        out,
        "\n## {}\n\nNames begin with `{UCX}{}`.\n",
        section.title, section.prefix
    )?;
    writeln!(
        out,
        "| name | default | values | what it does |\n|---|---|---|---|"
    )?;
    for block in section.blocks {
        for row in block.rows {
            let formerly = row
                .formerly
                .map_or(String::new(), |name| format!(" (formerly `{name}`)"));
            let full = format!("{}{}", section.prefix, row.name);
            let bold = if effective.contains(&&*full) {
                "**"
            } else {
                ""
            };
            writeln!(
                out,
                "| {bold}`{}`{bold}{formerly}{} | `{}` | {} | {} |",
                row.name,
                shared_note(block),
                cell(section.default_of(row)),
                prose(&row.kind.syntax()),
                prose(row.doc)
            )?;
        }
    }
    Ok(())
}

/// The prefixes under which the rows of a block can be set too.
fn shared_note(block: &OptionBlock) -> String {
    if block.aliases.is_empty() {
        return String::new();
    }
    let prefixes: Vec<String> = block
        .aliases
        .iter()
        .map(|alias| format!("`{UCX}{alias}`"))
        .collect();
    format!(" (or {})", prefixes.join(", "))
}

/// Escapes text for a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// Escapes text for a table cell outside of backticks, where `<number>` would be an HTML tag and `[K](b)` a link.
fn prose(text: &str) -> String {
    cell(text).replace('<', "\\<").replace('[', "\\[")
}
