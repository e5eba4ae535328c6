//! Variables that look like options and are none: most are misspelt, so the nearest names are suggested.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

use super::environment::{self, UCX};
use super::{Options, table};

/// How many names are suggested for one variable.
const SUGGESTIONS: usize = 3;

/// The `UCX_*` variables that are no option, each with the nearest names of options.
pub fn unused_env_vars() -> Vec<(String, Vec<String>)> {
    let mut unused = Vec::new();
    environment::for_each(None, |name, _, _| {
        let known = !table::find(name).is_empty() || table::is_foreign(name);
        if !known && !environment::NO_OPTIONS.contains(&name) {
            unused.push((format!("{UCX}{name}"), suggestions(name)));
        }
    });
    unused.sort();
    unused
}

/// The warning about such variables: once for each process, and only if it is enabled and there are any.
pub fn unused_report(options: &Options) -> Option<String> {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !options.warn_unused_env_vars || DONE.swap(true, Ordering::Relaxed) {
        return None;
    }
    report(&unused_env_vars())
}

fn report(unused: &[(String, Vec<String>)]) -> Option<String> {
    let described: Vec<String> = unused
        .iter()
        .map(|(name, meant)| match meant.as_slice() {
            [] => name.clone(),
            meant => format!("{name} (maybe: {}?)", meant.join(", ")),
        })
        .collect();
    let plural = match described.len() {
        0 => return None,
        1 => "",
        _ => "s",
    };
    Some(format!(
        "unused environment variable{plural}: {} (UCX_WARN_UNUSED_ENV_VARS=n turns this warning off)",
        described.join("; ")
    ))
}

/// The names nearest to a misspelt one, if any is near.
fn suggestions(name: &str) -> Vec<String> {
    // One mistake in four letters is a slip of the hand; more is another word.
    let allowed = (name.len() / 4).max(1);
    let mut near: Vec<(usize, String)> = all_names()
        .filter(|known| known.len().abs_diff(name.len()) <= allowed)
        .map(|known| (strsim::osa_distance(name, &known), known))
        .filter(|(distance, _)| *distance <= allowed)
        .collect();
    near.sort();
    near.dedup();
    let Some(&(best, _)) = near.first() else {
        return Vec::new();
    };
    near.retain(|(distance, _)| *distance == best);
    near.truncate(SUGGESTIONS);
    near.into_iter()
        .map(|(_, known)| format!("{UCX}{known}"))
        .collect()
}

/// Every name that an option can be set by.
fn all_names() -> impl Iterator<Item = String> {
    table::slots().flat_map(|slot| {
        let shared = slot
            .block()
            .aliases
            .iter()
            .map(move |alias| format!("{alias}{}", slot.row().name));
        std::iter::once(slot.name()).chain(shared)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_what_was_meant() {
        assert_eq!(suggestions("RNDV_TRESH"), ["UCX_RNDV_THRESH"]);
        assert_eq!(suggestions("TSL"), ["UCX_TLS"]);
        assert_eq!(suggestions("MM_SEG_SIZ"), ["UCX_MM_SEG_SIZE"]);
        assert!(suggestions("ENTIRELY_ELSE").is_empty());
    }

    #[test]
    fn reports_each_variable_with_its_suggestions() {
        let unused = [
            ("UCX_A".to_owned(), vec![]),
            (
                "UCX_TSL".to_owned(),
                vec!["UCX_TLS".to_owned(), "UCX_SL".to_owned()],
            ),
        ];
        let text = report(&unused).expect("two variables");
        assert!(
            text.starts_with(
                "unused environment variables: UCX_A; UCX_TSL (maybe: UCX_TLS, UCX_SL?)"
            ),
            "{text}"
        );
        assert!(
            report(&unused[..1])
                .expect("one")
                .starts_with("unused environment variable: UCX_A (")
        );
        assert_eq!(report(&[]), None);
    }
}
