//! rucp_trace: one timeline from the trace files of several processes.

mod merge;

use clap::{Parser, Subcommand};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Works on the files that UCX_TRACE_FILE writes. Exit status: 0, or 2 if a file is left out.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Writes the events of all files to standard output, as one file for ui.perfetto.dev. The times of other hosts are
    /// shifted to the clock of the first file's host, by what each file says of its own clocks; a process number that
    /// two hosts have is replaced
    Merge {
        /// Trace files
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

fn main() -> ExitCode {
    let Command::Merge { files } = Arguments::parse().command;
    let mut out = BufWriter::new(io::stdout().lock());
    let merged = merge::merge(&files, &mut out).and_then(|left_out| {
        out.flush()?;
        Ok(left_out)
    });
    match merged {
        Ok(left_out) if left_out.is_empty() => ExitCode::SUCCESS,
        Ok(left_out) => {
            for why in left_out {
                eprintln!("rucp_trace: {why}");
            }
            ExitCode::from(2)
        }
        // The reader has seen enough.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("rucp_trace: {e}");
            ExitCode::from(2)
        }
    }
}
