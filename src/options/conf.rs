//! Options in `ucx.conf`: the locations of the files, and which of their sections apply to this machine.
#![forbid(unsafe_code)]

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::conf_line::ConfLine;
use super::environment::UCX;
use super::machine::{self, Machine};
use super::table;

const FILE: &str = "ucx.conf";

/// Directory of the installation's file, if it is set at build time.
const BUILT_IN_DIR: Option<&str> = option_env!("UCX_CONFIG_DIR");

static LIBRARY_DIR: OnceLock<PathBuf> = OnceLock::new();
static FILES: OnceLock<ConfFiles> = OnceLock::new();

/// What the files contain.
#[derive(Debug, Default)]
pub struct ConfFiles {
    /// The options that apply to this machine, in the order of the lines: later ones win.
    pub entries: Vec<ConfEntry>,
    /// Lines without a meaning, and files that cannot be read: a sentence each, which names the file.
    pub remarks: Vec<String>,
}

/// An option in a file.
#[derive(Clone, Debug)]
pub struct ConfEntry {
    /// Its name without `UCX_`.
    pub name: String,
    pub value: String,
    pub place: ConfPlace,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfPlace {
    file: Arc<Path>,
    /// From 1.
    line: usize,
}

impl fmt::Display for ConfPlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.file.display(), self.line)
    }
}

/// Writes the line of a file in front of what is said about it.
pub fn write_place(out: &mut fmt::Formatter<'_>, place: Option<&ConfPlace>) -> fmt::Result {
    place.map_or(Ok(()), |place| write!(out, "{place}: "))
}

/// Sets the directory of the loaded library: `../etc/ucx` of it is searched. To be called before the first
/// `Options::read`; later calls have no effect.
pub fn set_library_dir(dir: PathBuf) {
    // Later calls set the same directory.
    let _ = LIBRARY_DIR.set(dir);
}

/// The contents of all files, read once per process.
pub fn files() -> &'static ConfFiles {
    FILES.get_or_init(|| {
        let mut files = ConfFiles::default();
        for dir in directories() {
            files.read(&dir.join(FILE));
        }
        files
    })
}

/// Sentences about the files, read once per process: lines without a meaning, and files that cannot be read.
pub fn file_remarks() -> &'static [String] {
    &files().remarks
}

/// Directories that are searched; files of later ones override those of earlier ones.
fn directories() -> Vec<PathBuf> {
    let of_library = LIBRARY_DIR
        .get()
        .and_then(|dir| Some(dir.parent()?.join("etc/ucx")));
    let variable = |name| {
        std::env::var_os(name)
            .filter(|dir| !dir.is_empty())
            .map(PathBuf::from)
    };
    let mut dirs: Vec<PathBuf> = BUILT_IN_DIR.map(PathBuf::from).into_iter().collect();
    dirs.extend(of_library);
    dirs.extend(variable("HOME"));
    dirs.extend(variable("UCX_CONFIG_DIR"));
    dirs.extend(Some(Path::new(".").to_owned()));
    dirs
}

/// The names without `UCX_` and the values in a file with this text, as they apply to this machine.
pub fn file_entries(text: &str) -> Vec<(String, String)> {
    let mut files = ConfFiles::default();
    files.parse(Path::new(FILE), text, &Machine::this);
    let pairs = files.entries.into_iter();
    pairs.map(|entry| (entry.name, entry.value)).collect()
}

impl ConfFiles {
    fn read(&mut self, file: &Path) {
        match std::fs::read(file) {
            // Bytes of another encoding make a value invalid, not the file.
            Ok(bytes) => self.parse(file, &String::from_utf8_lossy(&bytes), &Machine::this),
            // It is not there, or in a directory that this user may not search: the home of another one.
            Err(_) if file.metadata().is_err() => (),
            Err(e) => (self.remarks).push(format!("{} cannot be read: {e}", file.display())),
        }
    }

    /// Adds the options of one file that apply to this machine. A condition applies to the lines below it, up to the
    /// next section.
    fn parse(&mut self, file: &Path, text: &str, machine: &dyn Fn() -> Machine) {
        let file: Arc<Path> = file.into();
        let (mut section, mut applies) = ("", true);
        for (number, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            let place = ConfPlace {
                file: file.clone(),
                line: number + 1,
            };
            match ConfLine::parse(line) {
                ConfLine::Empty => (),
                // The lines of a section may stand apart.
                ConfLine::Section(name) if name == section => (),
                ConfLine::Section(name) => (section, applies) = (name, true),
                ConfLine::Setting(key, value) if machine::is_property(key) => {
                    applies = applies && machine().meets(key, value);
                }
                ConfLine::Setting(key, value) => match key.strip_prefix(UCX) {
                    Some(name) if is_known(name) => {
                        if applies {
                            self.entries.push(ConfEntry {
                                name: name.to_owned(),
                                value: value.to_owned(),
                                place,
                            });
                        }
                    }
                    _ => (self.remarks).push(format!("{place}: no option is called {key}")),
                },
                ConfLine::Meaningless => (self.remarks).push(format!(
                    "{place}: '{}' is neither UCX_NAME=value nor [section]",
                    line.trim()
                )),
            }
        }
    }
}

/// Whether there is an option with this name, without `UCX_`.
fn is_known(name: &str) -> bool {
    table::is_foreign(name) || !table::find(name).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine {
            cpu_vendor: "AMD".into(),
            cpu_model: "Milan".into(),
            product: "Rack 7".into(),
        }
    }

    fn parsed(text: &str) -> ConfFiles {
        let mut files = ConfFiles::default();
        files.parse(Path::new("/etc/ucx.conf"), text, &machine);
        files
    }

    fn pairs(text: &str) -> Vec<(String, String)> {
        let entries = parsed(text).entries.into_iter();
        entries.map(|entry| (entry.name, entry.value)).collect()
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn takes_options_of_matching_sections_in_order() {
        let text = "# comment\nUCX_TLS=tcp\nrubbish\n\n[here]\nCPU vendor=AMD\nCPU model=mil*\nUCX_TLS = self,tcp\n\
                    [elsewhere]\nCPU model=Grace\nUCX_TLS=ib\n[always]\nUCX_SEG_SIZE=16k\n";
        assert_eq!(
            pairs(text),
            [
                pair("TLS", "tcp"),
                pair("TLS", "self,tcp"),
                pair("SEG_SIZE", "16k")
            ]
        );
    }

    /// As UCX 1.22 reads them.
    #[test]
    fn a_condition_is_for_the_lines_below_it_in_its_section() {
        let text = "[x]\nUCX_TLS=tcp\nCPU vendor=Intel\nUCX_NUM_EPS=3\n[x]\nUCX_NUM_PPN=3\n\
                    CPU vendor=AMD\nUCX_NUM_PPN=2\n[y]\nUCX_SEG_SIZE=1k\n";
        assert_eq!(pairs(text), [pair("TLS", "tcp"), pair("SEG_SIZE", "1k")]);
        assert!(pairs("CPU vendor=Intel\nUCX_TLS=tcp\n").is_empty());
    }

    /// UCX reads the rest of such files, too.
    #[test]
    fn a_line_without_a_meaning_is_named_and_the_others_are_read() {
        let place = "/etc/ucx.conf:2: ";
        for (line, remark) in [
            (
                "rubbish",
                "'rubbish' is neither UCX_NAME=value nor [section]",
            ),
            (
                "[unclosed",
                "'[unclosed' is neither UCX_NAME=value nor [section]",
            ),
            ("=3", "'=3' is neither UCX_NAME=value nor [section]"),
            ("  self", "'self' is neither UCX_NAME=value nor [section]"),
            ("Moon phase=full", "no option is called Moon phase"),
            ("NUM_EPS=3", "no option is called NUM_EPS"),
            ("UCX_NUM_EP=3", "no option is called UCX_NUM_EP"),
        ] {
            let text = format!("\u{feff}UCX_TLS=tcp\n{line}\nUCX_NUM_PPN=2\r\n");
            assert_eq!(pairs(&text), [pair("TLS", "tcp"), pair("NUM_PPN", "2")]);
            assert_eq!(parsed(&text).remarks, [format!("{place}{remark}")]);
        }
        assert!(parsed("UCX_GDR_COPY_ANY=1\n; UCX_X\n\n").remarks.is_empty());
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let mut files = ConfFiles::default();
        files.read(Path::new("/nonexistent/ucx.conf"));
        files.read(Path::new("/dev/null/ucx.conf"));
        assert!(files.remarks.is_empty());
        files.read(Path::new("/"));
        assert!(files.remarks[0].starts_with("/ cannot be read: "));
    }

    proptest::proptest! {
        #[test]
        fn any_file_is_parsed_or_passed_over(text in "\\PC*|(\\[?[a-zA-Z_ ]{0,6}[\\]=;#\n]){0,40}") {
            parsed(&text);
        }
    }
}
