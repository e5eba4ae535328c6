//! The configuration from files, the environment and the defaults.

use crate::{Arguments, Part};
use serde_json::{Value, json};
use ucp::options::{Options, PrintFlags};

/// The options selected by the arguments.
pub fn config(arguments: &Arguments) -> Result<Part, String> {
    let options = Options::read(None).map_err(|e| e.to_string())?;
    let wanted = |name: &str| match &arguments.filter {
        Some(part) => name.contains(part.as_str()),
        None => true,
    };
    let flags = PrintFlags {
        config: true,
        header: arguments.full,
        doc: arguments.full,
        hidden: arguments.hidden,
        comment_default: arguments.comment_defaults,
    };
    let mut text = String::new();
    options
        .print_where(&mut text, "UCX library configuration file", flags, &wanted)
        .map_err(|e| e.to_string())?;
    let json = options
        .all()
        .filter(|(name, ..)| wanted(name))
        .map(|(name, value, default)| (name, json!({"value": value, "default": default})));
    Ok(Part {
        text,
        json: Value::Object(json.collect()),
    })
}
