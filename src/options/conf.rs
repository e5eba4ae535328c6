//! Options in `ucx.conf`: the locations of the files, and which of their sections apply to this machine.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use configparser::ini::{Ini, IniDefault};

use super::environment::UCX;
use super::machine::Machine;

const FILE: &str = "ucx.conf";

/// Directory of the installation's file, if it is set at build time.
const BUILT_IN_DIR: Option<&str> = option_env!("UCX_CONFIG_DIR");

/// Name of the parser for keys in front of the first section.
const TOP: &str = "\0top";

static LIBRARY_DIR: OnceLock<PathBuf> = OnceLock::new();
static ENTRIES: OnceLock<Vec<(String, String)>> = OnceLock::new();

/// Sets the directory of the loaded library: `../etc/ucx` of it is searched. To be called before the first
/// `Options::read`; later calls have no effect.
pub fn set_library_dir(dir: PathBuf) {
    // Later calls set the same directory.
    let _ = LIBRARY_DIR.set(dir);
}

/// The names without `UCX_` and the values of all files, read once per process. Later ones win.
pub fn entries() -> &'static [(String, String)] {
    ENTRIES.get_or_init(|| {
        let texts = directories()
            .into_iter()
            .filter_map(|dir| std::fs::read_to_string(dir.join(FILE)).ok());
        texts
            .flat_map(|text| parse(&text, &Machine::this))
            .collect()
    })
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
    parse(text, &Machine::this)
}

/// The options of one file that apply to this machine. A file that cannot be parsed has none.
fn parse(text: &str, machine: &dyn Fn() -> Machine) -> Vec<(String, String)> {
    let mut syntax = IniDefault::default();
    syntax.case_sensitive = true;
    syntax.default_section = TOP.to_owned();
    syntax.comment_symbols = vec!['#', ';'];
    syntax.delimiters = vec!['='];
    let mut file = Ini::new_from_defaults(syntax);
    let Ok(sections) = file.read(text.to_owned()) else {
        return Vec::new();
    };
    let mut options = Vec::new();
    for keys in sections.values() {
        let pairs = || {
            keys.iter()
                .filter_map(|(key, value)| Some((key.as_str(), value.as_deref()?)))
        };
        // A key that is not an option is a condition.
        let mut conditions = pairs().filter(|(key, _)| !key.starts_with(UCX)).peekable();
        if conditions.peek().is_some() {
            let machine = machine();
            if !conditions.all(|(key, pattern)| machine.meets(key, pattern)) {
                continue;
            }
        }
        options.extend(pairs().filter_map(|(key, value)| {
            Some((key.strip_prefix(UCX)?.to_owned(), value.to_owned()))
        }));
    }
    options
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

    fn parsed(text: &str) -> Vec<(String, String)> {
        parse(text, &machine)
    }

    #[test]
    fn takes_options_of_matching_sections_in_order() {
        let text = "# comment\nUCX_TLS=tcp\nrubbish\n\n[here]\nCPU vendor=AMD\nCPU model=mil*\nUCX_TLS = self,tcp\n\
                    [elsewhere]\nCPU model=Grace\nUCX_TLS=ib\n[always]\nUCX_SEG_SIZE=16k\n";
        let options = parsed(text);
        let pairs: Vec<(&str, &str)> = options
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(
            pairs,
            [("TLS", "tcp"), ("TLS", "self,tcp"), ("SEG_SIZE", "16k")]
        );
    }

    #[test]
    fn a_condition_of_unknown_name_is_not_met() {
        assert!(parsed("[x]\nMoon phase=full\nUCX_TLS=tcp\n").is_empty());
    }

    #[test]
    fn a_broken_file_has_no_options() {
        assert!(parsed("[unclosed\nUCX_TLS=tcp\n").is_empty());
    }

    proptest::proptest! {
        #[test]
        fn any_file_is_parsed_or_passed_over(text in "\\PC*|(\\[?[a-zA-Z_ ]{0,6}[\\]=;#\n]){0,40}") {
            parsed(&text);
        }
    }
}
