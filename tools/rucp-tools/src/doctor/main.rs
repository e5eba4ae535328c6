//! rucp_doctor: which way two processes take, why not another one, and what to change.

mod control;
mod copies;
mod exchange;
mod fabric;
mod facts;
mod finding;
mod interfaces;
mod library_log;
mod limits;
mod loading;
mod mpi;
mod pair;
mod process;
mod program;
mod rdma;
mod report;
mod shared_memory;
mod system;
mod variables;

use clap::Parser;
use control::ControlConn;
use exchange::{PairEnd, PairResult};
use library_log::LibraryLog;
use program::{LoadedProgram, UcxKind};
use report::Report;
use rucp_tools::peer::PeerProcess;
use rucp_tools::print;
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use ucp::engine::policy::Policy;
use ucp::options::Options;
use ucp::proto::resources;
use ucp::tl::Resource;

/// The port of `--serve` and `--pair` unless another one is given.
const PORT: u16 = 13340;

/// Says which way two processes take with rucp, why not another one, and what to change. Without arguments: this
/// environment, and a process of this host. The variables UCX_* have the same effect as in a program. Exit status: 0
/// if nothing is wrong, 1 if something prevents or slows a transport, 2 if it could not look.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Waits for another rucp_doctor on this address and port, exchanges messages with it, and reports
    #[arg(long, value_name = "ADDRESS[:PORT]", num_args = 0..=1, default_missing_value = "0.0.0.0",
          conflicts_with_all = ["pair", "pid", "program"])]
    serve: Option<String>,
    /// Exchanges messages with the rucp_doctor --serve on that host
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with_all = ["pid", "program"])]
    pair: Option<String>,
    /// The libraries and the MPI of a running process
    #[arg(long, conflicts_with = "program")]
    pid: Option<i32>,
    /// The report as one JSON object
    #[arg(long)]
    json: bool,
    /// Waits on standard input: the other process of the exchange within this host
    #[arg(long, hide = true)]
    peer: bool,
    /// A program, whose libraries and MPI are looked at; it is not run. Its arguments are ignored
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // The options as the user has set them: those of the log are changed next.
    let mut log = LibraryLog::keep();
    let report = if arguments.peer {
        return exit_code(be_peer(&mut log).map(|()| false));
    } else {
        look(&arguments, &mut log)
    };
    exit_code(report.and_then(|mut report| {
        report.sort();
        if arguments.json {
            print(&format!("{:#}\n", report.json()))?;
        } else {
            print(&report.text())?;
        }
        Ok(report.has_faults())
    }))
}

fn exit_code(result: Result<bool, String>) -> ExitCode {
    match result {
        Ok(false) => ExitCode::SUCCESS,
        Ok(true) => ExitCode::from(1),
        Err(what) => {
            eprintln!("rucp_doctor: {what}");
            ExitCode::from(2)
        }
    }
}

fn look(arguments: &Arguments, log: &mut LibraryLog) -> Result<Report, String> {
    if let Some(pid) = arguments.pid {
        return Ok(of_program(&LoadedProgram::of_process(pid)?));
    }
    if let Some(name) = arguments.program.first() {
        return Ok(of_program(&LoadedProgram::of_file(name)?));
    }
    let mut report = Report::default();
    let resources = check_environment(&mut report, log);
    let names: Vec<String> = (resources.iter())
        .map(|resource| format!("{}/{}", resource.transport, resource.device))
        .collect();
    let pair = if let Some(address) = &arguments.serve {
        report.remote = true;
        serve(address, names, log)?
    } else if let Some(address) = &arguments.pair {
        report.remote = true;
        let stream = TcpStream::connect(with_port(address));
        let stream = stream.map_err(|e| format!("{address}: {e} (rucp_doctor --serve there?)"))?;
        over_socket(PairEnd::First, &stream, names, log)?
    } else {
        with_process(names, log)?
    };
    report.findings.extend(pair::check(&pair));
    report.pair = Some(pair);
    Ok(report)
}

/// Checks of this process and its environment. Returns what the options leave.
fn check_environment(report: &mut Report, log: &mut LibraryLog) -> Vec<Resource> {
    let findings = &mut report.findings;
    findings.extend(process::check());
    findings.extend(limits::check());
    findings.extend(loading::check_environment());
    findings.extend(variables::unknown());
    let options = match variables::read() {
        Ok(options) => options,
        Err(finding) => {
            findings.push(finding);
            findings.extend(shared_memory::check(None));
            return Vec::new();
        }
    };
    findings.extend(shared_memory::check(Some(&options)));
    let resources = resources_of(&options);
    findings.extend(variables::check(&options, &resources));
    findings.extend(interfaces::check(&options, &resources));
    findings.extend(rdma::check(&options, &resources, &log.lines()));
    findings.extend(fabric::check(&options, &resources));
    resources
}

/// What the options leave of this host's transports and devices.
fn resources_of(options: &Options) -> Vec<Resource> {
    Policy::new(options).map_or_else(|_| Vec::new(), |policy| resources::of(options, &policy))
}

fn of_program(program: &LoadedProgram) -> Report {
    let kind = |kind: UcxKind| match kind {
        UcxKind::Rucp => "rucp",
        UcxKind::Genuine => "UCX",
    };
    let ucxs = program.ucps().into_iter();
    let ucxs = ucxs.map(|(path, of)| format!("{} ({})", path.display(), kind(of)));
    Report {
        program: Some((program.path.display().to_string(), ucxs.collect())),
        findings: loading::check(program),
        ..Report::default()
    }
}

/// A host with the default port, unless it has one.
fn with_port(address: &str) -> String {
    let has_port = match address.rsplit_once(':') {
        // An IPv6 address has colons, too: with a port it is in brackets.
        Some((host, port)) => {
            port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']'))
        }
        None => false,
    };
    match (has_port, address.contains(':') && !address.starts_with('[')) {
        (true, _) => address.to_owned(),
        (false, true) => format!("[{address}]:{PORT}"),
        (false, false) => format!("{address}:{PORT}"),
    }
}

/// Waits for one other end.
fn serve(
    address: &str,
    resources: Vec<String>,
    log: &mut LibraryLog,
) -> Result<PairResult, String> {
    let listener = TcpListener::bind(with_port(address)).map_err(|e| format!("{address}: {e}"))?;
    let at = listener.local_addr().map_err(|e| e.to_string())?;
    eprintln!("rucp_doctor: waiting on {at}");
    let (stream, _) = listener.accept().map_err(|e| e.to_string())?;
    over_socket(PairEnd::Second, &stream, resources, log)
}

fn over_socket(
    end: PairEnd,
    stream: &TcpStream,
    resources: Vec<String>,
    log: &mut LibraryLog,
) -> Result<PairResult, String> {
    let text = |e: std::io::Error| e.to_string();
    let mut control = ControlConn::new(
        stream.try_clone().map_err(text)?,
        stream.try_clone().map_err(text)?,
    );
    exchange::run(end, &mut control, resources, log)
}

/// Exchanges with this program in another process.
fn with_process(resources: Vec<String>, log: &mut LibraryLog) -> Result<PairResult, String> {
    let mut peer = PeerProcess::start(&["--peer"])?;
    let (Some(output), Some(input)) = (peer.take_output(), peer.take_input()) else {
        return Err("no pipes to the other process".into());
    };
    let mut control = ControlConn::new(output, input);
    exchange::run(PairEnd::First, &mut control, resources, log)
}

/// The other process.
fn be_peer(log: &mut LibraryLog) -> Result<(), String> {
    let options = variables::read().ok();
    let resources = options.map_or_else(Vec::new, |options| resources_of(&options));
    let names = resources
        .iter()
        .map(|r| format!("{}/{}", r.transport, r.device));
    let mut control = ControlConn::new(std::io::stdin(), std::io::stdout());
    exchange::run(PairEnd::Second, &mut control, names.collect(), log).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_without_a_port_get_the_default() {
        for (given, expected) in [
            ("node7", "node7:13340"),
            ("node7:99", "node7:99"),
            ("192.0.2.1", "192.0.2.1:13340"),
            ("::1", "[::1]:13340"),
            ("[::1]", "[::1]:13340"),
            ("[::1]:99", "[::1]:99"),
        ] {
            assert_eq!(with_port(given), expected);
        }
    }
}
