//! Checks of the `UCX_*` variables, which the library reads and judges.

use crate::finding::Finding;
use ucp::engine::policy;
use ucp::options::{LogLevel, Options, RndvScheme, unused_env_vars};
use ucp::tl::{Resource, cuda, transport_names};

/// The options, or the finding that says which one is invalid.
pub fn read() -> Result<Options, Finding> {
    let options = Options::read(None).map_err(|error| invalid(&error.to_string()))?;
    match options.check_context() {
        Ok(()) => Ok(options),
        Err(error) => Err(invalid(&error.to_string())),
    }
}

fn invalid(found: &str) -> Finding {
    Finding::broken(
        "option-invalid",
        found,
        "ucp_init fails with this value",
        "correct the variable, or the line of ucx.conf (rucp_info -c -f says what it can be)",
    )
}

/// Variables that no option has.
pub fn unknown() -> Vec<Finding> {
    let finding = |(name, meant): (String, Vec<String>)| {
        let change = match meant.as_slice() {
            [] => format!("unset {name}; docs/OPTIONS.md lists all variables"),
            meant => format!("rename it: {}?", meant.join(" or ")),
        };
        Finding::slow(
            "option-unknown",
            format!("no option is called {name}"),
            "it has no effect",
            change,
        )
    };
    unused_env_vars().into_iter().map(finding).collect()
}

/// Values that exclude what is there, name what is not there, or cost time. `resources`: what they leave.
pub fn check(options: &Options, resources: &[Resource]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = (options.remarks().into_iter())
        .map(|remark| {
            Finding::slow(
                "option-invalid",
                remark,
                "the value is ignored, or is not what was meant",
                "correct the variable, or the line of ucx.conf",
            )
        })
        .collect();
    findings.extend(transports(options, resources));
    findings.extend(devices(options, resources));
    findings.extend(costs(options));
    findings
}

fn transports(options: &Options, resources: &[Resource]) -> Vec<Finding> {
    let tls = &options.tls;
    let value = options.get("TLS").unwrap_or_default();
    let known: Vec<&'static str> = policy::transports().collect();
    let present: Vec<&'static str> = resources.iter().map(|r| r.transport).collect();
    let mut findings = Vec::new();
    // Copies of memory of GPUs, beneath the transports: a device has all of these names, or none.
    let with_gpu = |names: &[&'static str]| [names, &cuda::NAMES].concat();
    let unknown = tls.unknown(&with_gpu(&known));
    if !unknown.is_empty() {
        findings.push(Finding::broken(
            "transport-unknown",
            format!(
                "UCX_TLS={value} names '{}', which is no transport",
                unknown.join("', '")
            ),
            "the name has no effect",
            format!("use names of: {}", known.join(", ")),
        ));
    }
    let usable = match present.contains(&cuda::CUDA_COPY) {
        true => with_gpu(&present),
        false => present.clone(),
    };
    let absent: Vec<&str> = tls
        .unknown(&usable)
        .into_iter()
        .filter(|name| tls.is_selection() && !unknown.contains(name))
        .collect();
    if !absent.is_empty() {
        findings.push(Finding::broken(
            "transport-absent",
            format!(
                "UCX_TLS={value} names '{}', for which this host has no device that can be used",
                absent.join("', '")
            ),
            "other transports of the list are used, if there are any",
            "see the findings on devices; rucp_info -d lists what there is",
        ));
    }
    if present.is_empty() {
        findings.push(Finding::broken(
            "no-transport",
            format!("UCX_TLS={value} and the lists of devices leave no transport"),
            "ucp_init fails",
            "unset UCX_TLS and UCX_NET_DEVICES, or add sm, self or tcp",
        ));
        return findings;
    }
    findings.extend(excluded(options, &present, &value));
    findings
}

/// Kinds of transports that the options exclude.
fn excluded(options: &Options, present: &[&str], value: &str) -> Vec<Finding> {
    let has = |tl: &str| present.contains(&tl);
    let mut findings = Vec::new();
    let shm = has("posix") || has("sysv");
    if !shm {
        findings.push(Finding::slow(
            "shm-excluded",
            format!("UCX_TLS={value} or UCX_SHM_DEVICES excludes shared memory"),
            "processes of one host use a network transport",
            "add sm to UCX_TLS",
        ));
    }
    if shm && !has("cma") {
        findings.push(Finding::slow(
            "cma-excluded",
            format!("UCX_TLS={value} excludes cma"),
            "long messages within a host are copied twice",
            "add cma to UCX_TLS, or sm, which includes it",
        ));
    }
    if !transport_names().any(|tl| options.tls.allows(tl)) {
        findings.push(Finding::slow(
            "network-excluded",
            format!("UCX_TLS={value} has no transport between hosts"),
            "processes of other hosts are not reached, nor those of this host without shared memory",
            "add tcp to UCX_TLS for jobs on several hosts",
        ));
    }
    findings
}

fn devices(options: &Options, resources: &[Resource]) -> Vec<Finding> {
    let mut findings = Vec::new();
    // Where the list permits everything, or excludes, names need not exist.
    let value = options.get("NET_DEVICES").unwrap_or_default();
    if !options.net_devices.is_all() && !value.starts_with('^') {
        let network = resources.iter().filter(|r| r.kind == "network");
        let present: Vec<&str> = network.map(|r| r.device.as_str()).collect();
        let unknown = options.net_devices.unknown(&present);
        if !unknown.is_empty() {
            findings.push(Finding::broken(
                "device-unknown",
                format!(
                    "UCX_NET_DEVICES={value} names '{}', which is no device that can be used",
                    unknown.join("', '")
                ),
                "it is not used; with no other device in the list other hosts are not reached",
                "rucp_info -d lists devices; an adapter's port is written mlx5_0:1",
            ));
        }
    }
    for (name, filter) in [
        ("UCX_SHM_DEVICES", &options.shm_devices),
        ("UCX_SELF_DEVICES", &options.self_devices),
    ] {
        let unknown = filter.unknown(&["memory"]).join("', '");
        if !unknown.is_empty() {
            findings.push(Finding::broken(
                "device-unknown",
                format!("{name} names '{unknown}'; the only device is 'memory'"),
                "it is not used",
                format!("unset {name}"),
            ));
        }
    }
    findings
}

/// Settings that cost time in every message.
fn costs(options: &Options) -> Vec<Finding> {
    let mut findings = Vec::new();
    if options.log_level >= LogLevel::Debug {
        findings.push(Finding::slow(
            "log-verbose",
            format!(
                "UCX_LOG_LEVEL={}",
                options.get("LOG_LEVEL").unwrap_or_default()
            ),
            "lines are formatted and written for connections and messages",
            "unset UCX_LOG_LEVEL for runs that are measured",
        ));
    }
    if options.rndv_scheme == RndvScheme::Am {
        findings.push(Finding::slow(
            "rndv-by-messages",
            "UCX_RNDV_SCHEME=am",
            "long messages are copied through buffers at both ends, though one end could read or write directly",
            "unset UCX_RNDV_SCHEME",
        ));
    }
    if !options.mem_events {
        findings.push(Finding::slow(
            "mem-events-off",
            "UCX_MEM_EVENTS=n",
            "no memory stays registered between messages: adapters register it anew for each long message",
            "unset UCX_MEM_EVENTS",
        ));
    }
    findings
}
