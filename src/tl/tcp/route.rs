//! Which of a peer's addresses can be reached, from which device: by the kernel's routes first, then by speed.

use super::device::TcpDevice;
use super::netlink;
use crate::sys::host;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteNextHop, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::cmp::Reverse;
use std::io;
use std::net::{IpAddr, Ipv6Addr};

/// Identity of this process's network namespace.
pub fn network() -> u32 {
    let here = host::place();
    here.net_ns ^ here.host as u32 ^ (here.host >> 32) as u32
}

/// A route of the kernel to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Index of the device that sends the packets.
    pub device: u32,
    /// The packets go to a router first.
    pub gateway: bool,
    /// The packets do not leave this network namespace.
    pub local: bool,
}

/// An address at which a peer listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// Without scope: a link-local address is assumed to be valid on any link of this host.
    pub addr: IpAddr,
    /// Speed of the peer's device, Mb/s.
    pub mbps: u32,
}

/// A path to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutePath {
    /// Index among the devices.
    pub device: usize,
    /// Index among the remote addresses.
    pub remote: usize,
    /// The address to connect from; `None` within this network namespace.
    pub local: Option<IpAddr>,
    /// Scope of the remote address, 0 unless it is link-local.
    pub scope: u32,
    /// The kernel would send through another device by default: the socket has to be bound to this one
    /// (`SO_BINDTODEVICE`).
    pub bind_device: bool,
}

/// The paths to a peer, best first; empty if it cannot be reached. `same_net`: the peer is in this process's network
/// namespace, so that an address of this process is also the peer's; otherwise the same address belongs to another host
/// (every docker host has a 172.17.0.1). The peer may still not accept on the best path: the caller tries the next one.
pub fn paths(devices: &[TcpDevice], remotes: &[ListenAddress], same_net: bool) -> Vec<RoutePath> {
    let mut found: Vec<(PathRank, RoutePath)> = Vec::new();
    for (r, remote) in remotes.iter().enumerate() {
        if same_net {
            found.extend(own(devices, r, remote));
            continue;
        }
        for (d, device) in devices.iter().enumerate().filter(|(_, d)| !d.loopback) {
            let family = |local: &&IpAddr| local.is_ipv6() == remote.addr.is_ipv6();
            if let Some(local) = device.addrs.iter().find(family) {
                found.extend(through(device, *local, remote).map(|(rank, path)| {
                    let path = RoutePath {
                        device: d,
                        remote: r,
                        ..path
                    };
                    (rank, path)
                }));
            }
        }
    }
    found.sort_by_key(|&(rank, path)| (rank, path.device, path.remote));
    found.into_iter().map(|(_, path)| path).collect()
}

/// Order of paths; smaller is better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PathRank {
    /// Not the kernel's default route, and through a router.
    detour: bool,
    /// The same link-local address may exist on another network.
    link_local: bool,
    /// Of the slower end, Mb/s.
    speed: Reverse<u32>,
    /// Through a router.
    gateway: bool,
}

/// The path to an address of this network namespace.
fn own(
    devices: &[TcpDevice],
    index: usize,
    remote: &ListenAddress,
) -> Option<(PathRank, RoutePath)> {
    let holder = devices.iter().position(|d| d.addrs.contains(&remote.addr));
    let loopback = || devices.iter().position(|d| d.loopback);
    let device = holder.or_else(loopback).or(devices.first().map(|_| 0))?;
    let link_local = is_link_local(remote.addr);
    // A link-local address is bound through its own device, which is not known if the options exclude it.
    if link_local && holder.is_none() {
        return None;
    }
    let rank = PathRank {
        detour: false,
        link_local,
        speed: Reverse(remote.mbps),
        gateway: false,
    };
    let path = RoutePath {
        device,
        remote: index,
        local: None,
        scope: scope_of(remote.addr, &devices[device]),
        bind_device: false,
    };
    Some((rank, path))
}

/// The path through one device, from one address of it.
fn through(
    device: &TcpDevice,
    local: IpAddr,
    remote: &ListenAddress,
) -> Option<(PathRank, RoutePath)> {
    let link_local = is_link_local(remote.addr);
    let natural = (!link_local)
        .then(|| lookup(remote.addr, Some(local), None).ok())
        .flatten();
    if natural.is_some_and(|route| route.local) {
        return None;
    }
    let natural = natural.filter(|route| route.device == device.index);
    let route = match natural {
        Some(route) => route,
        None => lookup(remote.addr, Some(local), Some(device.index)).ok()?,
    };
    if route.local || route.device != device.index {
        return None;
    }
    let rank = PathRank {
        detour: natural.is_none() && route.gateway,
        link_local,
        speed: Reverse(remote.mbps.min(device.speed())),
        gateway: route.gateway,
    };
    let path = RoutePath {
        device: 0,
        remote: 0,
        local: Some(local),
        scope: scope_of(remote.addr, device),
        bind_device: natural.is_none() && !link_local,
    };
    Some((rank, path))
}

fn scope_of(addr: IpAddr, device: &TcpDevice) -> u32 {
    if is_link_local(addr) { device.index } else { 0 }
}

/// Whether an address is valid on one link only: an IPv6 link-local one. IPv4 link-local addresses are routed like
/// others.
pub fn is_link_local(addr: IpAddr) -> bool {
    matches!(addr, IpAddr::V6(v6) if Ipv6Addr::is_unicast_link_local(&v6))
}

/// The route of the kernel to `to` from address `from`, through `device` if one is given.
///
/// # Errors
/// `ENETUNREACH`, `EHOSTUNREACH` and the like: there is no route.
pub fn lookup(to: IpAddr, from: Option<IpAddr>, device: Option<u32>) -> io::Result<Route> {
    let mut question = RouteMessage::default();
    question.header = RouteHeader {
        address_family: if to.is_ipv6() {
            AddressFamily::Inet6
        } else {
            AddressFamily::Inet
        },
        destination_prefix_length: bits(to),
        source_prefix_length: from.map_or(0, bits),
        // With a device given the kernel assumes that every IPv4 address is on its link, unless the request asks for
        // the matching entry of the routing table.
        flags: if device.is_some() && to.is_ipv4() {
            RouteFlags::FibMatch
        } else {
            RouteFlags::default()
        },
        ..RouteHeader::default()
    };
    question.attributes = vec![RouteAttribute::Destination(RouteAddress::from(to))];
    question
        .attributes
        .extend(from.map(|addr| RouteAttribute::Source(RouteAddress::from(addr))));
    question.attributes.extend(device.map(RouteAttribute::Oif));
    match netlink::get(RouteNetlinkMessage::GetRoute(question))? {
        RouteNetlinkMessage::NewRoute(answer) => read(&answer, device),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn bits(addr: IpAddr) -> u8 {
    if addr.is_ipv6() { 128 } else { 32 }
}

fn read(answer: &RouteMessage, asked: Option<u32>) -> io::Result<Route> {
    let local = answer.header.kind == RouteType::Local;
    if !local && answer.header.kind != RouteType::Unicast {
        return Err(io::ErrorKind::NetworkUnreachable.into());
    }
    let (mut device, mut gateway) = (None, false);
    for attribute in &answer.attributes {
        match attribute {
            RouteAttribute::Oif(index) => device = Some(*index),
            RouteAttribute::Gateway(_) | RouteAttribute::Via(_) => gateway = true,
            RouteAttribute::MultiPath(hops) => {
                let hop = hops.iter().find(|hop| Some(hop.interface_index) == asked);
                device = hop.map(|hop| hop.interface_index).or(device);
                gateway |= hop.is_some_and(has_gateway);
            }
            _ => (),
        }
    }
    let device = device.ok_or(io::ErrorKind::NetworkUnreachable)?;
    Ok(Route {
        device,
        gateway,
        local,
    })
}

fn has_gateway(hop: &RouteNextHop) -> bool {
    let is = |a: &RouteAttribute| matches!(a, RouteAttribute::Gateway(_) | RouteAttribute::Via(_));
    hop.attributes.iter().any(is)
}
