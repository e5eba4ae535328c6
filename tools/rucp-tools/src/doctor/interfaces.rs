//! Checks of network interfaces: those that lead nowhere.

use crate::finding::Finding;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage, AddressScope};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use std::collections::HashSet;
use std::io;
use ucp::options::Options;
use ucp::tl::Resource;
use ucp::tl::tcp::netlink;

/// Whether an interface can carry packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkState {
    Down,
    /// Up, but without a cable or a peer.
    NoCarrier,
    Running,
}

/// A network interface.
struct Interface {
    name: String,
    state: LinkState,
    /// Packets that it sends are dropped: of kind dummy or ifb.
    drops: bool,
    bridge: bool,
    addressed: bool,
    /// It has an address that is valid beyond its link.
    global: bool,
}

/// All of them. `resources`: what the options leave.
pub fn check(options: &Options, resources: &[Resource]) -> Vec<Finding> {
    if !options.tls.allows("tcp") {
        return Vec::new();
    }
    let list = options.get("NET_DEVICES").unwrap_or_default();
    let named = !options.net_devices.is_all() && !list.starts_with('^');
    let mut findings = match interfaces() {
        Ok(all) => {
            let allowed = all.iter().filter(|i| options.net_devices.allows(&i.name));
            allowed
                .filter_map(|interface| leads_nowhere(interface, named))
                .collect()
        }
        Err(error) => vec![Finding::broken(
            "netlink-refused",
            format!("the kernel does not list its interfaces: {error}"),
            "tcp is not used",
            "allow sockets of AF_NETLINK in the container's seccomp profile or sandbox",
        )],
    };
    findings.extend(missing(resources, named));
    findings
}

/// The interfaces of this network namespace. Not from /sys, which shows the namespace that it was mounted in.
fn interfaces() -> io::Result<Vec<Interface>> {
    let links = netlink::dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
    let addresses = netlink::dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
    let (mut addressed, mut global) = (HashSet::new(), HashSet::new());
    for message in &addresses {
        if let RouteNetlinkMessage::NewAddress(message) = message
            && (message.attributes.iter()).any(|a| matches!(a, AddressAttribute::Address(_)))
        {
            addressed.insert(message.header.index);
            if message.header.scope == AddressScope::Universe {
                global.insert(message.header.index);
            }
        }
    }
    let read = |message: &RouteNetlinkMessage| {
        let RouteNetlinkMessage::NewLink(link) = message else {
            return None;
        };
        let flags = link.header.flags;
        let name = link
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::IfName(name) => Some(name.clone()),
                _ => None,
            })?;
        let infos = link
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::LinkInfo(infos) => Some(infos.as_slice()),
                _ => None,
            });
        let kind = infos
            .unwrap_or_default()
            .iter()
            .find_map(|info| match info {
                LinkInfo::Kind(kind) => Some(kind),
                _ => None,
            });
        Some(Interface {
            name,
            state: match (
                flags.contains(LinkFlags::Up),
                flags.contains(LinkFlags::LowerUp),
            ) {
                (false, _) => LinkState::Down,
                (true, false) => LinkState::NoCarrier,
                (true, true) => LinkState::Running,
            },
            drops: matches!(kind, Some(InfoKind::Dummy | InfoKind::Ifb)),
            bridge: matches!(kind, Some(InfoKind::Bridge)),
            addressed: addressed.contains(&link.header.index),
            global: global.contains(&link.header.index),
        })
    };
    Ok(links.iter().filter_map(read).collect())
}

/// Why an interface that may be used leads nowhere. `named`: `UCX_NET_DEVICES` names it.
fn leads_nowhere(interface: &Interface, named: bool) -> Option<Finding> {
    let name = &interface.name;
    // Bridges for containers that are not there have an address, and no carrier.
    let wanted = named || interface.global && !interface.bridge;
    let finding = if named {
        Finding::broken
    } else {
        Finding::note
    };
    match interface.state {
        LinkState::Down if wanted => Some(finding(
            "interface-down",
            format!("network interface {name} is down"),
            "tcp does not use it",
            format!("ip link set {name} up; or name another one in UCX_NET_DEVICES"),
        )),
        LinkState::NoCarrier if wanted => Some(finding(
            "interface-no-carrier",
            format!("network interface {name} is up, but has no carrier"),
            "tcp does not use it",
            "connect the cable, or the other end of the virtual link; check the port of the switch"
                .into(),
        )),
        LinkState::Running if named && !interface.addressed => Some(Finding::broken(
            "interface-no-address",
            format!("network interface {name} has no address"),
            "tcp does not use it",
            format!("ip address add ADDRESS/LENGTH dev {name}"),
        )),
        LinkState::Running if interface.drops && interface.addressed => Some(Finding::slow(
            "interface-drops",
            format!("network interface {name} drops all packets (dummy, ifb)"),
            "its address is offered to peers, which may try it first and wait for the time-out",
            format!("UCX_NET_DEVICES=^{name}, or name those that lead to the other hosts"),
        )),
        _ => None,
    }
}

/// No device for TCP, or only one that leads back here.
fn missing(resources: &[Resource], named: bool) -> Option<Finding> {
    let tcp: Vec<&str> = (resources.iter())
        .filter(|r| r.transport == "tcp")
        .map(|r| r.device.as_str())
        .collect();
    let others = resources
        .iter()
        .any(|r| r.kind == "network" && r.transport != "tcp");
    if others {
        return None;
    }
    let change = if named {
        "name a device in UCX_NET_DEVICES that leads to the other hosts"
    } else {
        "give the container a network (docker run --network=host), or set an interface up with an address"
    };
    match tcp.as_slice() {
        [] => Some(Finding::slow(
            "no-network",
            "no network interface can be used",
            "processes of other hosts are not reached, nor those of this host without shared memory",
            change,
        )),
        ["lo"] => Some(Finding::slow(
            "loopback-only",
            "the only network interface that can be used is the loopback",
            "processes of other hosts are not reached",
            change,
        )),
        _ => None,
    }
}
