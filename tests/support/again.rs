//! Tests that run a test of their own program in a process of its own.

use std::process::Command;

/// Runs this program again: for another processor under `RUN_UNDER` (`scripts/processor`), which a program that is
/// emulated does not get by itself.
pub fn this_program() -> Command {
    let program = std::env::current_exe().expect("a running program has a path");
    let under = std::env::var("RUN_UNDER").unwrap_or_default();
    let mut words = under.split_whitespace();
    match words.next() {
        Some(emulator) => {
            let mut command = Command::new(emulator);
            command.args(words).arg(program);
            command
        }
        None => Command::new(program),
    }
}
