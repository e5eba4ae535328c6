//! rucp_top: activity of the workers of rucp on this host, live or for scripts.

mod batch;
mod metrics;
mod process;
mod rows;
mod sample;
mod screen;
mod stuck;

use clap::Parser;
use metrics::Target;
use rows::Order;
use sample::Sample;
use screen::View;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;
use stuck::Host;

/// Shows the activity of the workers of rucp on this host: messages and bytes by protocol, lane and peer, pending
/// operations, unexpected messages. It only reads the workers' statistics pages, which does not affect them.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Print one sample and end: totals, no rates
    #[arg(long)]
    once: bool,
    /// Print samples as JSON, one array of workers a line
    #[arg(long)]
    json: bool,
    /// Print this many samples and end; from the second on with rates
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
    /// Export metrics for Prometheus: serve them at this address, or replace this file (FILE.prom) each time
    #[arg(long, value_name = "ADDRESS:PORT|FILE", conflicts_with_all = ["json", "count"])]
    prometheus: Option<Target>,
    /// Print what has waited for longer than this (without a number 5 s), for which peer, and why. The exit status is 1
    /// if anything has, 2 after an error
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "5",
        conflicts_with_all = ["count", "prometheus"])]
    stuck: Option<f64>,
    /// Seconds between two samples
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0)]
    delay: f64,
    /// Only the workers of this process
    #[arg(short, long)]
    pid: Option<u32>,
    /// Order of the rows
    #[arg(short, long, value_enum, default_value_t = Order::Pid)]
    sort: Order,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let delay = Duration::try_from_secs_f64(arguments.delay.clamp(0.05, 86400.0));
    let Ok(delay) = delay else {
        eprintln!("rucp_top: --delay is no number of seconds");
        return ExitCode::from(2);
    };
    if let Some(seconds) = arguments.stuck {
        return print_stuck(&arguments, seconds);
    }
    let batch = arguments.once || arguments.json || arguments.count.is_some();
    let done = if let Some(target) = &arguments.prometheus {
        target.export(arguments.pid, delay, arguments.once)
    } else if batch {
        print_samples(&arguments, delay)
    } else if io::stdout().is_terminal() {
        show(&arguments, delay)
    } else {
        eprintln!("rucp_top: the output is no terminal; see --once, --count and --json");
        return ExitCode::from(2);
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has closed the pipe.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("rucp_top: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Prints what waits for long. Returns the exit status.
fn print_stuck(arguments: &Arguments, seconds: f64) -> ExitCode {
    if !(0.0..=1e9).contains(&seconds) {
        eprintln!("rucp_top: --stuck is no number of seconds");
        return ExitCode::from(2);
    }
    let host = Host::look((seconds * 1e3) as u64);
    if arguments.pid.is_some() && !host.has_workers(arguments.pid) {
        eprintln!("rucp_top: {}", batch::no_worker(arguments.pid));
        return ExitCode::from(2);
    }
    let found = host.findings(arguments.pid);
    let text = match arguments.json {
        true => format!("{}\n", batch::stuck_json(&found)),
        false => batch::stuck_text(&found),
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => ExitCode::from(2),
        _ => ExitCode::from(u8::from(!found.is_empty())),
    }
}

fn print_samples(arguments: &Arguments, delay: Duration) -> io::Result<()> {
    let samples = if arguments.once {
        1
    } else {
        arguments.count.unwrap_or(u64::MAX)
    };
    let mut out = io::stdout().lock();
    let mut before = None;
    for number in 0..samples {
        if number > 0 {
            std::thread::sleep(delay);
        }
        let now = Sample::take(arguments.pid);
        let rows = rows::rows(before.as_ref(), &now, arguments.sort);
        // There is no rate without a sample before.
        let rates = before.is_some();
        if arguments.json {
            writeln!(out, "{}", batch::json(&rows, rates))?;
        } else {
            write!(out, "{}", batch::text(&rows, rates))?;
        }
        out.flush()?;
        // Scripts detect it by the empty sample.
        if rows.is_empty() && !arguments.json {
            eprintln!("rucp_top: {}", batch::no_worker(arguments.pid));
        }
        before = Some(now);
    }
    Ok(())
}

fn show(arguments: &Arguments, delay: Duration) -> io::Result<()> {
    let mut terminal = ratatui::try_init()
        .map_err(|e| io::Error::new(e.kind(), format!("the terminal cannot be used: {e}")))?;
    let mut view = View::new(arguments.pid, delay, arguments.sort);
    let done = screen::run(&mut terminal, &mut view);
    ratatui::restore();
    done
}
