//! The `UCX_*` options: one table of them, and their values from files, the environment and the program.
//!
//! A value is kept as text in the canonical spelling of its kind; the options that the library itself reads are typed
//! fields too (`options.tls`, `options.tcp.nodelay`). Options with their default value need no memory.
#![forbid(unsafe_code)]

pub mod choice;
mod conf;
mod conf_line;
mod doubt;
mod environment;
mod fields;
pub mod filter;
mod glob;
mod kind;
mod list;
mod machine;
mod meaning;
mod number;
mod print;
mod rows_context;
mod rows_iface;
mod rows_process;
mod rows_protocol;
mod rule;
mod section;
mod settings;
mod source;
mod table;
mod unused;
mod value;

use std::cmp::Reverse;
use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

pub use choice::{
    AddressVersion, AtomicMode, FenceMode, HeapMode, HookMode, LogLevel, OnOffAuto, OpFlag,
    RndvScheme, Ternary,
};
pub use conf::{ConfPlace, file_entries, file_remarks, set_library_dir};
pub use doubt::OptionDoubt;
pub use environment::used_env_vars;
pub use filter::{DeviceFilter, TlsFilter};
pub use glob::glob;
pub use machine::Machine;
pub use number::{Count, Interval, Size};
pub use print::{PrintFlags, reference};
pub use settings::Settings;
pub use unused::{unused_env_vars, unused_report};
pub use value::{OpFlagSet, PortRange, RndvThresh, Value};

use conf::write_place;
use fields::OptionFields;
use section::Strictness;
use source::Source;
use table::{Distance, Reader, Slot};

/// The values of all options. Dereferences to the typed fields.
#[derive(Clone, Debug)]
pub struct Options {
    given: Vec<Given>,
    rejected: Vec<OptionError>,
    doubts: Vec<OptionDoubt>,
    settings: Settings,
}

/// A value that was set.
#[derive(Clone, Debug)]
struct Given {
    slot: Slot,
    rank: Rank,
    /// The line, if it was in a file.
    place: Option<&'static ConfPlace>,
    /// The text as it was written; in canonical spelling after [`Options::settle`].
    text: String,
}

/// Precedence of a value that is set more than once; the last field counts least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Set by a call: the last call has precedence over all other sources.
    called: bool,
    /// The full name has precedence over a prefix that several transports share, from any source.
    distance: Reverse<Distance>,
    source: Source,
}

/// Why a value was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionError {
    /// No option has this name.
    Unknown(String),
    /// The option is read when the process starts.
    Fixed(String),
    /// The option cannot have this value.
    Invalid {
        /// The option, without `UCX_`.
        name: String,
        /// What was written.
        value: String,
        /// What could have been written.
        expected: String,
        /// The line, if it was in a file.
        place: Option<&'static ConfPlace>,
    },
    /// The value is syntactically valid, but no context or worker can be made with it.
    Senseless {
        /// The option, without `UCX_`.
        name: &'static str,
        /// Its value, in the spelling of its kind.
        value: String,
        /// What it must be.
        needs: &'static str,
        /// The line, if it was in a file.
        place: Option<&'static ConfPlace>,
    },
}

impl fmt::Display for OptionError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionError::Unknown(name) => write!(out, "no option is called UCX_{name}"),
            OptionError::Fixed(name) => {
                write!(out, "UCX_{name} is fixed once the process runs")
            }
            OptionError::Invalid {
                name,
                value,
                expected,
                place,
            } => {
                write_place(out, *place)?;
                write!(
                    out,
                    "Invalid value for UCX_{name}: '{value}'. Expected: {expected}"
                )
            }
            OptionError::Senseless {
                name,
                value,
                needs,
                place,
            } => {
                write_place(out, *place)?;
                write!(out, "UCX_{name} is '{value}': {needs}")
            }
        }
    }
}

impl std::error::Error for OptionError {}

impl Default for Options {
    fn default() -> Self {
        Options {
            given: Vec::new(),
            rejected: Vec::new(),
            doubts: Vec::new(),
            settings: default_settings().clone(),
        }
    }
}

/// The typed fields of the default values, parsed once.
fn default_settings() -> &'static Settings {
    static DEFAULTS: OnceLock<Settings> = OnceLock::new();
    DEFAULTS.get_or_init(|| {
        let text_of = |name: &str| table::find_exact(name).map_or("", Slot::default);
        Settings::build(&text_of)
            .expect("the table has a valid default for every typed field: a test checks it")
    })
}

impl Deref for Options {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.settings
    }
}

impl Options {
    /// Reads the files, then `UCX_*` of the environment, then `PREFIX_UCX_*`; later ones have precedence.
    pub fn read(env_prefix: Option<&str>) -> Result<Options, OptionError> {
        let mut options = Options::offered(env_prefix);
        options.settle()?;
        Ok(options)
    }

    /// Reads like `read(None)`; wrong values stay at their defaults and are in `rejected`.
    pub fn read_lenient() -> Options {
        let mut options = Options::offered(None);
        while let Err(error) = options.settle() {
            options.rejected.push(error);
        }
        options
    }

    /// The values of the files and of the environment, unchecked.
    fn offered(env_prefix: Option<&str>) -> Options {
        let mut options = Options::default();
        for entry in &conf::files().entries {
            let place = Some(&entry.place);
            options.offer(&entry.name, &entry.value, Source::File, place);
        }
        environment::for_each(env_prefix, |name, value, source| {
            options.offer(name, value, source, None)
        });
        options
    }

    /// Sets an option by its name without `UCX_`; a shared prefix sets it for all that share it.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), OptionError> {
        let found = table::find(name);
        if found.is_empty() && !table::is_foreign(name) {
            return Err(OptionError::Unknown(name.to_owned()));
        }
        let slots: Vec<Slot> = found.into_iter().map(|(slot, _)| slot).collect();
        self.assign(&slots, name, value, false)
    }

    /// Sets an option like [`set`](Self::set), for `ucp_config_modify`, but not one that the process has read already.
    /// A name with `*`, `?` or `[` is a pattern: it sets all the options of contexts that it matches; if there are
    /// none, those of the process; if there are none, those of transports for which the value is valid.
    ///
    /// # Errors
    /// An error changes nothing.
    pub fn modify(&mut self, name: &str, value: &str) -> Result<(), OptionError> {
        if !name.contains(['*', '?', '[']) {
            let mut found = table::find(name).into_iter();
            return if found.any(|(slot, _)| slot.section().reader() == Reader::ProcessStart) {
                Err(OptionError::Fixed(name.to_owned()))
            } else {
                self.set(name, value)
            };
        }
        let readers = [Reader::Context, Reader::Process, Reader::Transport];
        let mut matched = readers
            .map(|reader| table::matching(name, reader))
            .into_iter();
        let slots = (matched.find(|slots| !slots.is_empty()))
            .ok_or_else(|| OptionError::Unknown(name.to_owned()))?;
        let transports = slots[0].section().reader() == Reader::Transport;
        // Each transport reads its own options.
        self.assign(&slots, name, value, transports)
    }

    /// Sets options to a value by a call: all of them, or, where `some_suffice`, those for which it is valid.
    ///
    /// # Errors
    /// An error changes nothing.
    fn assign(
        &mut self,
        slots: &[Slot],
        name: &str,
        value: &str,
        some_suffice: bool,
    ) -> Result<(), OptionError> {
        let texts: Vec<_> = (slots.iter())
            .map(|slot| normalise(*slot, name, value, None))
            .collect();
        let enough = some_suffice && texts.iter().any(Result::is_ok);
        if let Some(Err(error)) = texts.iter().find(|text| text.is_err() && !enough) {
            return Err(error.clone());
        }
        for (slot, text) in slots.iter().zip(texts) {
            if let Ok(text) = text {
                self.call(*slot, value, text);
            }
        }
        Ok(())
    }

    /// Sets an option by a call: `written` is what it passed, `text` that in canonical spelling.
    fn call(&mut self, slot: Slot, written: &str, text: String) {
        let rank = Rank {
            called: true,
            distance: Reverse(0),
            source: Source::Call,
        };
        let name = slot.name();
        let of_this = |error: &OptionError| matches!(error, OptionError::Invalid { name: of, .. } if *of == name);
        self.rejected.retain(|error| !of_this(error));
        self.settings.update(&name, &text);
        self.doubt(slot, written, &text, None);
        self.insert(Given {
            slot,
            rank,
            place: None,
            text,
        });
    }

    /// The value of an option by its full name without `UCX_`; by a shared prefix, that of the first that shares it.
    pub fn get(&self, name: &str) -> Option<String> {
        let slot =
            table::find_exact(name).or_else(|| table::find(name).first().map(|(slot, _)| *slot))?;
        Some(self.text(slot).to_owned())
    }

    /// The value of an option, parsed as a type of the caller's choice.
    pub fn value<T: Value>(&self, name: &str) -> Option<T> {
        T::from_text(&self.get(name)?)
    }

    /// Invalid values that were ignored: the caller reports them.
    pub fn rejected(&self) -> &[OptionError] {
        &self.rejected
    }

    /// Values that were accepted, as UCX accepts them, though something else was probably meant: the caller reports
    /// them.
    pub fn doubts(&self) -> &[OptionDoubt] {
        &self.doubts
    }

    /// A sentence for each value that was ignored or is doubtful, and for each line of `ucx.conf` without a meaning.
    pub fn remarks(&self) -> Vec<String> {
        let rejected = self.rejected.iter().map(OptionError::to_string);
        let doubts = self.doubts.iter().map(OptionDoubt::to_string);
        let of_files = file_remarks().iter().cloned();
        of_files.chain(rejected).chain(doubts).collect()
    }

    fn text(&self, slot: Slot) -> &str {
        self.given(slot).map_or(slot.default(), |given| &given.text)
    }

    fn given(&self, slot: Slot) -> Option<&Given> {
        self.given.iter().find(|given| given.slot == slot)
    }

    /// Keeps the doubt about a value, if there is one, in place of that about the option's former value.
    fn doubt(&mut self, slot: Slot, written: &str, kept: &str, place: Option<&'static ConfPlace>) {
        let name = slot.name();
        self.doubts.retain(|doubt| doubt.name != name);
        self.doubts
            .extend(doubt::of(name, &slot.row().kind, written, kept, place));
    }

    /// Stores a value, unless one of higher precedence is stored.
    fn offer(&mut self, name: &str, text: &str, source: Source, place: Option<&'static ConfPlace>) {
        for (slot, distance) in table::find(name) {
            let rank = Rank {
                called: false,
                distance: Reverse(distance),
                source,
            };
            self.insert(Given {
                slot,
                rank,
                place,
                text: text.to_owned(),
            });
        }
    }

    fn insert(&mut self, new: Given) {
        match self.given.iter_mut().find(|given| given.slot == new.slot) {
            Some(given) if given.rank > new.rank => (),
            Some(given) => *given = new,
            None => self.given.push(new),
        }
    }

    /// Checks the stored values and converts them to canonical spelling. Only the value with the highest precedence is
    /// checked, as in UCX. An invalid value is removed; it is an error or a report by the strictness of its section.
    fn settle(&mut self) -> Result<(), OptionError> {
        let mut at = 0;
        while let Some(given) = self.given.get_mut(at) {
            let (slot, place) = (given.slot, given.place);
            let name = slot.name();
            match normalise(slot, &name, &given.text, place) {
                Ok(text) => {
                    self.settings.update(&name, &text);
                    let written = std::mem::replace(&mut given.text, text.clone());
                    self.doubt(slot, &written, &text, place);
                    at += 1;
                }
                Err(error) => {
                    let strictness = slot.section().strictness;
                    self.given.swap_remove(at);
                    match strictness {
                        Strictness::Fail => return Err(error),
                        Strictness::Worker(_) | Strictness::Report => self.rejected.push(error),
                    }
                }
            }
        }
        Ok(())
    }
}

/// The value in the canonical spelling of the option's kind; `name` is the name that the user wrote, `place` the line.
fn normalise(
    slot: Slot,
    name: &str,
    text: &str,
    place: Option<&'static ConfPlace>,
) -> Result<String, OptionError> {
    let kind = &slot.row().kind;
    kind.normalise(text).ok_or_else(|| OptionError::Invalid {
        name: name.to_owned(),
        value: text.to_owned(),
        expected: kind.syntax(),
        place,
    })
}
