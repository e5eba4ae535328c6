//! Checks of RDMA devices: present, but not usable.

use crate::finding::Finding;
use crate::library_log::complaints;
use crate::limits;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use ucp::options::Options;
use ucp::tl::Resource;
use ucp::tl::ib::verbs::Verbs;

const TRANSPORTS: [&str; 2] = ["rc_verbs", "ud_verbs"];

/// An RDMA device of the kernel.
struct Device {
    name: String,
    /// A port of it is active.
    active: bool,
    /// Its file in /dev/infiniband, if the kernel names one.
    file: Option<PathBuf>,
}

/// All of them. `resources`: what the options leave; `log`: what the library has said when it looked for them.
pub fn check(options: &Options, resources: &[Resource], log: &[String]) -> Vec<Finding> {
    let usable = resources.iter().any(|r| TRANSPORTS.contains(&r.transport));
    let devices = devices();
    let mut findings = Vec::new();
    if usable || !devices.is_empty() {
        findings.extend(limits::locked_memory());
    }
    if usable || devices.is_empty() {
        return findings;
    }
    let excluded = excluded(options, &devices);
    if excluded.is_none() && Verbs::get().is_none() {
        findings.push(Finding::broken(
            "rdma-no-library",
            format!(
                "there are RDMA devices ({}), but no libibverbs.so.1",
                names(&devices)
            ),
            "InfiniBand and RoCE are not used",
            "install rdma-core's libibverbs1 and ibverbs-providers; in a container, too",
        ));
        return findings;
    }
    match excluded {
        Some(finding) => findings.push(finding),
        None => findings.extend(devices.iter().filter_map(|device| obstacle(device, log))),
    }
    findings
}

/// What the kernel has, from /sys.
fn devices() -> Vec<Device> {
    let entries = |path: &str| fs::read_dir(path).into_iter().flatten().flatten();
    let trimmed = |path: &Path| {
        fs::read_to_string(path)
            .map(|t| t.trim().to_owned())
            .unwrap_or_default()
    };
    let verbs: Vec<(String, PathBuf)> = entries("/sys/class/infiniband_verbs")
        .map(|entry| {
            let file = Path::new("/dev/infiniband").join(entry.file_name());
            (trimmed(&entry.path().join("ibdev")), file)
        })
        .collect();
    entries("/sys/class/infiniband")
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let mut ports = fs::read_dir(entry.path().join("ports"))
                .into_iter()
                .flatten()
                .flatten();
            // `4: ACTIVE`
            let active =
                |port: fs::DirEntry| trimmed(&port.path().join("state")).ends_with("ACTIVE");
            let file = verbs.iter().find(|(device, _)| *device == name);
            Device {
                active: ports.any(active),
                file: file.map(|(_, file)| file.clone()),
                name,
            }
        })
        .collect()
}

fn names(devices: &[Device]) -> String {
    let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    names.join(", ")
}

/// The options exclude all of them.
fn excluded(options: &Options, devices: &[Device]) -> Option<Finding> {
    let by_transport = !TRANSPORTS.iter().any(|tl| options.tls.allows(tl));
    let allows = |device: &Device| {
        (1..=4).any(|n| options.net_devices.allows(&format!("{}:{n}", device.name)))
    };
    let by_device = !devices.iter().any(allows);
    (by_transport || by_device).then(|| {
        let variable = if by_transport {
            "UCX_TLS"
        } else {
            "UCX_NET_DEVICES"
        };
        Finding::slow(
            "rdma-excluded",
            format!(
                "{variable}={} excludes the RDMA devices of this host ({})",
                options.get(&variable[4..]).unwrap_or_default(),
                names(devices)
            ),
            "other hosts are reached by a slower transport",
            format!("unset {variable}, or add rc to UCX_TLS and the device to UCX_NET_DEVICES"),
        )
    })
}

/// Why a device that the options allow is not used.
fn obstacle(device: &Device, log: &[String]) -> Option<Finding> {
    let name = &device.name;
    let effect = "InfiniBand and RoCE are not used by this device";
    let opened = match &device.file {
        None => Err(ErrorKind::NotFound),
        Some(file) => {
            let open = fs::OpenOptions::new().read(true).write(true).open(file);
            open.map_err(|error| error.kind())
        }
    };
    let file = device
        .file
        .as_deref()
        .unwrap_or(Path::new("/dev/infiniband/uverbs*"));
    match opened {
        Err(ErrorKind::PermissionDenied) => Some(Finding::broken(
            "rdma-no-rights",
            format!("RDMA device {name}: no right to open {}", file.display()),
            effect,
            "chmod 666 /dev/infiniband/uverbs*, or the rules of rdma-core for udev; docker run \
             --device=/dev/infiniband",
        )),
        Err(ErrorKind::NotFound) => Some(Finding::broken(
            "rdma-no-device-file",
            format!("RDMA device {name} has no file {}", file.display()),
            effect,
            "docker run --device=/dev/infiniband; on a host modprobe ib_uverbs",
        )),
        _ if !device.active => Some(Finding::broken(
            "rdma-port-down",
            format!("RDMA device {name} has no active port"),
            effect,
            "ibstat shows the port's state: connect the cable, start a subnet manager (InfiniBand), set the network \
             interface up (RoCE)",
        )),
        _ => Some(Finding::broken(
            "rdma-unusable",
            format!(
                "RDMA device {name} is active, but the library does not use it{}",
                said(log, name)
            ),
            effect,
            "ibv_devinfo shows whether libibverbs has a driver for it (ibverbs-providers)",
        )),
    }
}

/// What the library's log has about a device.
fn said(log: &[String], name: &str) -> String {
    let lines: Vec<&str> = complaints(log).filter(|line| line.contains(name)).collect();
    match lines.as_slice() {
        [] => String::new(),
        lines => format!(": {}", lines.join("; ")),
    }
}
