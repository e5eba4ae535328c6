//! rucp_info: version, transports on this machine, configuration, and the configuration of an endpoint.

mod endpoint;
mod report;
mod settings;

use clap::{Parser, ValueEnum};
use rucp_tools::print;
use serde_json::{Map, Value};
use std::process::ExitCode;
use ucp::options::Options;
use ucp::sys::log;

/// Shows properties of rucp, the library libucp.so.0, on this machine. The variables UCX_* have the same effect as in a
/// program.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    /// Version of the library and of the API
    #[arg(short = 'v', long)]
    library: bool,
    /// Build configuration
    #[arg(short, long)]
    build: bool,
    /// Transports, their devices and capabilities
    #[arg(short, long)]
    devices: bool,
    /// Only this transport (with -d)
    #[arg(short, long, value_name = "NAME", requires = "devices")]
    transport: Option<String>,
    /// The machine
    #[arg(short, long)]
    system: bool,
    /// The configuration
    #[arg(short, long)]
    config: bool,
    /// With the description of each option (with -c)
    #[arg(short, long, requires = "config")]
    full: bool,
    /// Older names, too (with -c)
    #[arg(short = 'a', long, requires = "config")]
    hidden: bool,
    /// Values that are the defaults as comments (with -c)
    #[arg(short = 'C', long, requires = "config")]
    comment_defaults: bool,
    /// Only options whose names contain this (with -c)
    #[arg(short = 'F', long, value_name = "TEXT", requires = "config")]
    filter: Option<String>,
    /// The context
    #[arg(short = 'p', long)]
    context: bool,
    /// A worker
    #[arg(short, long)]
    worker: bool,
    /// Configuration of an endpoint: lanes, and protocols by size
    #[arg(short, long)]
    endpoint: bool,
    /// Features of the context: a atomics, r remote memory, t tags, s streams, m active messages, w wakeup;
    /// e: the endpoint handles errors
    #[arg(short = 'u', long, value_name = "LETTERS", default_value = "artsm")]
    features: String,
    /// Location of the endpoint's peer
    #[arg(short = 'P', long, value_enum, default_value_t = PeerLocation::Same)]
    place: PeerLocation,
    /// All requested parts as one JSON object
    #[arg(long)]
    json: bool,
    /// Waits on standard input with a worker whose address it prints: the other end of -P
    #[arg(long, hide = true)]
    serve: bool,
}

/// The location of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PeerLocation {
    /// In this process
    #[value(name = "self")]
    Same,
    /// In another process of this host
    Intra,
    /// On another host: transports within one host are not used
    Inter,
}

fn main() -> ExitCode {
    log_to_stderr();
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("rucp_info: {what}");
            ExitCode::FAILURE
        }
    }
}

/// Messages of the library do not mix with the output, unless the user selects a destination.
fn log_to_stderr() {
    let mut options = Options::read_lenient();
    if options.log_file.is_empty() && options.set("LOG_FILE", "stderr").is_ok() {
        log::configure(&options);
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    if arguments.serve {
        return endpoint::serve(&arguments.features);
    }
    let mut parts: Vec<(&str, Part)> = Vec::new();
    if arguments.library {
        parts.push(("library", report::library()));
    }
    if arguments.build {
        parts.push(("build", report::build()));
    }
    if arguments.system {
        parts.push(("system", report::system()));
    }
    if arguments.devices {
        parts.push(("devices", report::devices(arguments.transport.as_deref())?));
    }
    if arguments.config {
        parts.push(("config", settings::config(arguments)?));
    }
    if arguments.context || arguments.worker || arguments.endpoint {
        let wanted = [arguments.context, arguments.worker, arguments.endpoint];
        parts.extend(endpoint::print(
            &arguments.features,
            arguments.place,
            wanted,
        )?);
    }
    if arguments.json {
        let object: Map<String, Value> = parts
            .into_iter()
            .map(|(name, part)| (name.to_owned(), part.json))
            .collect();
        print(&format!("{:#}\n", Value::Object(object)))
    } else {
        print(
            &parts
                .iter()
                .map(|(_, part)| part.text.as_str())
                .collect::<String>(),
        )
    }
}

/// One part of the output, as text and as JSON.
struct Part {
    text: String,
    json: Value,
}
