//! Parts without a context: library, build, system, devices.

use crate::Part;
use serde_json::{Value, json};
use std::fmt::Write;
use ucp::abi::lib_info::{RUCP_VERSION, VERSION};
use ucp::engine::policy::{self, Policy};
use ucp::options::Options;
use ucp::proto::resources;
use ucp::sys::host;
use ucp::tl::Resource;

/// Version, and the program: it contains the library, and loads no libucp.so.0.
pub fn library() -> Part {
    let version = format!("{}.{}.{}", VERSION.0, VERSION.1, VERSION.2);
    let path = std::env::current_exe().map_or_else(|_| "?".into(), |p| p.display().to_string());
    Part {
        text: format!(
            "# Library version: {version} (rucp {RUCP_VERSION})\n\
             # Library path: {path} (this program contains the library and loads no libucp.so.0)\n\
             # API headers version: 1.22.0\n"
        ),
        json: json!({
            "version": version, "path": path, "api": "1.22.0", "implementation": "rucp",
            "implementation_version": RUCP_VERSION,
        }),
    }
}

/// Options of the compilation.
pub fn build() -> Part {
    let facts = [
        (
            "TARGET",
            format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
        ),
        (
            "DEBUG_ASSERTIONS",
            u8::from(cfg!(debug_assertions)).to_string(),
        ),
        ("POINTER_WIDTH", usize::BITS.to_string()),
        ("THREADS", "single, serialized, multi".to_owned()),
        (
            "TRANSPORTS",
            ucp::engine::policy::transports()
                .collect::<Vec<_>>()
                .join(","),
        ),
    ];
    let text = facts.iter().fold(String::new(), |mut text, (name, value)| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "#define {name:<20} {value}");
        text
    });
    let json = facts
        .iter()
        .map(|(name, value)| (name.to_string(), json!(value)));
    Part {
        text,
        json: Value::Object(json.collect()),
    }
}

/// Processor and namespaces: inputs of `ucx.conf` and shared memory.
pub fn system() -> Part {
    let place = host::place();
    let this = ucp::options::Machine::this();
    Part {
        text: format!(
            "# CPU vendor: {}\n# CPU model: {}\n# Product name: {}\n# Host: {:#x}\n# PID namespace: {}\n\
             # IPC namespace: {}\n# Network namespace: {}\n",
            this.cpu_vendor,
            this.cpu_model,
            this.product,
            place.host,
            place.pid_ns,
            place.ipc_ns,
            place.net_ns,
        ),
        json: json!({
            "cpu_vendor": this.cpu_vendor,
            "cpu_model": this.cpu_model,
            "product": this.product,
            "host": format!("{:#x}", place.host),
            "pid_namespace": place.pid_ns,
            "ipc_namespace": place.ipc_ns,
            "network_namespace": place.net_ns,
        }),
    }
}

/// Transports and devices that the options select.
pub fn devices(transport: Option<&str>) -> Result<Part, String> {
    let options = Options::read(None).map_err(|e| e.to_string())?;
    let policy = Policy::new(&options).map_err(|status| format!("no transport: {status:?}"))?;
    let mut found = resources::of(&options, &policy);
    if found.is_empty() {
        return Err(format!("no transport: {:?}", policy::none_usable(&options)));
    }
    if let Some(wanted) = transport {
        let mut names: Vec<&str> = found.iter().map(|resource| resource.transport).collect();
        names.dedup();
        if !names.contains(&wanted) {
            let names = names.join(", ");
            return Err(format!(
                "no transport '{wanted}' can be used here; those that can: {names}"
            ));
        }
        found.retain(|resource| resource.transport == wanted);
    }
    Ok(Part {
        text: found.iter().map(describe).collect(),
        json: found.iter().map(to_json).collect(),
    })
}

fn describe(resource: &Resource) -> String {
    let mut text = format!(
        "#\n#      Transport: {}\n#         Device: {}\n#           Type: {}\n#\n#      capabilities:\n",
        resource.transport, resource.device, resource.kind
    );
    for (name, value) in &resource.capabilities {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# {name:>20}: {value}");
    }
    text + "#\n"
}

fn to_json(resource: &Resource) -> Value {
    let capabilities = resource.capabilities.iter();
    let capabilities = capabilities.map(|(name, value)| (name.to_string(), json!(value)));
    json!({
        "transport": resource.transport,
        "device": resource.device,
        "type": resource.kind,
        "capabilities": Value::Object(capabilities.collect()),
    })
}
