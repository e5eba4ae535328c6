//! Options in the environment: `UCX_NAME`, and `PREFIX_UCX_NAME` for programs that passed a prefix.
#![forbid(unsafe_code)]

use super::source::Source;
use super::table;

/// What marks a variable as an option.
pub const UCX: &str = "UCX_";

/// Variables with such a name that are no options: they give sources of options.
pub const NO_OPTIONS: &[&str] = &["CONFIG_DIR"];

/// Calls `give` with the name without prefixes, the value and the source of every option in the environment.
pub fn for_each(env_prefix: Option<&str>, mut give: impl FnMut(&str, &str, Source)) {
    let own = env_prefix
        .filter(|prefix| !prefix.is_empty())
        .map(|prefix| format!("{prefix}_{UCX}"));
    for (variable, value) in std::env::vars_os() {
        let Some(variable) = variable.to_str() else {
            continue;
        };
        // Foreign bytes in a value make it wrong, not the process.
        if let Some(name) = variable.strip_prefix(UCX) {
            give(name, &value.to_string_lossy(), Source::Environment);
        } else if let Some(name) = own.as_deref().and_then(|own| variable.strip_prefix(own)) {
            give(name, &value.to_string_lossy(), Source::Prefixed);
        }
    }
}

/// The options in the environment that have an effect, as `NAME=value`, sorted.
pub fn used_env_vars() -> Vec<String> {
    let mut used = Vec::new();
    for_each(None, |name, value, _| {
        if !table::find(name).is_empty() {
            used.push(format!("{UCX}{name}={value}"));
        }
    });
    used.sort();
    used
}
