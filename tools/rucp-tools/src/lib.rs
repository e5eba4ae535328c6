//! What several of the command line tools use.

pub mod party;
pub mod peer;

use std::io::{ErrorKind, Write};

/// Writes to standard output; a closed reader is no failure.
///
/// # Errors
/// The text of the system's error.
pub fn print(text: &str) -> Result<(), String> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(e.to_string()),
        _ => Ok(()),
    }
}
