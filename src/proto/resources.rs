//! Resources: what a context can use of this machine, by transport and device.

use super::proto_info;
use super::select::message::{self as select, MAX_EAGER};
use crate::engine::policy::{Policy, TRANSPORTS};
use crate::options::Options;
use crate::tl::contract::FRAGMENT;
use crate::tl::ib::port::{self, Port};
use crate::tl::shm::ring::INLINE;
use crate::tl::tcp::device;
use crate::tl::{Resource, tofu};
use std::net::Ipv6Addr;

/// Resources that the options allow, preferred first.
pub fn of(options: &Options, policy: &Policy) -> Vec<Resource> {
    let mut all = Vec::new();
    let memory = "memory".to_owned();
    if policy.loopback {
        all.push(Resource {
            transport: "self",
            device: memory.clone(),
            kind: "loopback",
            capabilities: ring_capabilities(),
        });
    }
    for transport in ["posix", "sysv"] {
        if policy.shm && options.tls.allows(transport) {
            all.push(Resource {
                transport,
                device: memory.clone(),
                kind: "intra-node",
                capabilities: ring_capabilities(),
            });
        }
    }
    if policy.shm && policy.cma {
        all.push(Resource {
            transport: "cma",
            device: memory,
            kind: "intra-node",
            capabilities: vec![
                ("put_zcopy", "unlimited".into()),
                ("get_zcopy", "unlimited".into()),
                ("error handling", "peer failure".into()),
            ],
        });
    }
    let ports = policy.ib.as_ref().map_or(Vec::new(), |ib| {
        port::usable(&options.net_devices, &ib.tuning)
    });
    for transport in ["rc_verbs", "ud_verbs"] {
        if options.tls.allows(transport) {
            all.extend(ports.iter().map(|port| queues(transport, port)));
        }
    }
    if policy.tofu {
        all.extend(tofu::info::resources(&options.net_devices, MAX_EAGER));
    }
    if TRANSPORTS.contains(&"tcp") && policy.tcp.is_some() {
        let names: Vec<&str> = ports.iter().map(|port| &*port.name).collect();
        all.extend(network(options, policy, &names));
    }
    all
}

/// Capabilities of queue pairs on a port.
fn queues(transport: &'static str, port: &Port) -> Resource {
    let link = if port.ethernet {
        "Ethernet"
    } else {
        "InfiniBand"
    };
    let gid = Ipv6Addr::from(port.gid.raw);
    let address = match (port.ethernet, gid.to_ipv4_mapped()) {
        (false, _) => format!("LID {}", port.lid),
        (true, Some(v4)) => format!("{v4}, GID {}", port.gid.index),
        (true, None) => format!("{gid}, GID {}", port.gid.index),
    };
    Resource {
        transport,
        device: port.name.clone(),
        kind: "network",
        capabilities: vec![
            ("link", format!("{link}, {} Mb/s", port.mbps)),
            ("address", address),
            ("mtu", format!("{}", port.mtu_bytes())),
            ("am_bcopy", format!("<= {}K", MAX_EAGER >> 10)),
            ("fragments", format!("<= {}K", FRAGMENT >> 10)),
            ("atomics", "executed by the peer".into()),
            ("connection", "on demand, to worker".into()),
            ("error handling", "peer failure, keepalive".into()),
        ],
    }
}

fn ring_capabilities() -> Vec<(&'static str, String)> {
    vec![
        ("am_short", format!("<= {INLINE}")),
        ("am_bcopy", format!("<= {}K", MAX_EAGER >> 10)),
        ("fragments", format!("<= {}K", FRAGMENT >> 10)),
        ("put_short", "unlimited (allocated memory)".into()),
        ("get_short", "unlimited (allocated memory)".into()),
        (
            "atomics",
            "add and or xor swap cswap, 32 and 64 bit, cpu".into(),
        ),
        ("connection", "on demand, to worker".into()),
        ("error handling", "peer failure, keepalive".into()),
    ]
}

/// TCP devices; none if the kernel does not list them.
fn network(options: &Options, policy: &Policy, others: &[&str]) -> Vec<Resource> {
    let longest = |in_place| {
        let bytes = select::longest_by_socket(policy, in_place);
        format!("<= {}", proto_info::size(bytes))
    };
    let devices = device::usable(options, others).unwrap_or_default();
    devices
        .into_iter()
        .map(|device| {
            let addresses: Vec<String> = device.addrs.iter().map(ToString::to_string).collect();
            let speed = match device.mbps {
                Some(mbps) => format!("{mbps} Mb/s"),
                None => format!("unknown, taken for {} Mb/s", device.speed()),
            };
            Resource {
                transport: "tcp",
                device: device.name,
                kind: "network",
                capabilities: vec![
                    ("addresses", addresses.join(", ")),
                    ("speed", speed),
                    ("am_bcopy", longest(false)),
                    ("am_zcopy", longest(true)),
                    ("atomics", "executed by the peer".into()),
                    ("connection", "on demand, to worker".into()),
                    ("error handling", "peer failure, keepalive".into()),
                ],
            }
        })
        .collect()
}
