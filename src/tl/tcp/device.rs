//! The network devices that may carry TCP: those that are up, have an address and lead out of this host.

use super::netlink;
use super::route;
use crate::options::Options;
use crate::tl::resource::warn_of;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{
    InfoKind, LinkAttribute, LinkExtentMask, LinkFlags, LinkInfo, LinkMessage,
};
use socket2::{Domain, Socket, Type};
use std::cmp::Reverse;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;

/// Assumed speed of a device that does not report one, Mb/s: virtual devices (virtio, tunnels).
const ASSUMED_MBPS: u32 = 1000;

/// A network device that may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpDevice {
    /// The kernel's name, also used in `UCX_NET_DEVICES`.
    pub name: String,
    /// The kernel's index; also the scope of the device's link-local addresses.
    pub index: u32,
    /// One address per family, the preferred family (`UCX_TCP_AF_PRIO`) first. Link-local IPv6 only where there is no
    /// other IPv6 address.
    pub addrs: Vec<IpAddr>,
    /// Speed of the link in Mb/s, if the device reports it.
    pub mbps: Option<u32>,
    /// The loopback device, which reaches this host only.
    pub loopback: bool,
    /// The default route uses it.
    pub default_route: bool,
}

impl TcpDevice {
    /// Speed of the link in Mb/s, or [`ASSUMED_MBPS`].
    pub fn speed(&self) -> u32 {
        self.mbps.unwrap_or(ASSUMED_MBPS)
    }
}

/// The devices that the options allow, best first; the loopback device is the last.
///
/// Excluded are devices that are down or without carrier, and bridges that lead to containers and virtual machines of
/// this host only (docker0, virbr0): those without a hardware port, unless `UCX_TCP_BRIDGE_ENABLE` or `UCX_NET_DEVICES`
/// includes them.
///
/// `others`: names of other transports' devices, which `UCX_NET_DEVICES` may also have.
///
/// # Errors
/// The kernel does not return its devices.
pub fn usable(options: &Options, others: &[&str]) -> io::Result<Vec<TcpDevice>> {
    let mut every_link = LinkMessage::default();
    // Statistics, which the kernel would have to sum over all processors, are not requested.
    every_link.attributes = vec![LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats])];
    let links: Vec<KernelLink> = netlink::dump(RouteNetlinkMessage::GetLink(every_link))?
        .iter()
        .filter_map(KernelLink::read)
        .collect();
    let addresses: Vec<DeviceAddress> =
        netlink::dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()))?
            .iter()
            .filter_map(DeviceAddress::read)
            .collect();
    let named = !options.net_devices.is_all();
    let gateways = defaults();
    let addressed: Vec<(&KernelLink, Vec<IpAddr>)> = links
        .iter()
        .filter(|link| link.running)
        .map(|link| (link, choose(&addresses, link.index, &options.tcp.af_prio)))
        .filter(|(_, addrs)| !addrs.is_empty())
        .collect();
    if options.warn_invalid_config {
        let links = addressed.iter().map(|(link, _)| &*link.name);
        let names: Vec<&str> = links.chain(others.iter().copied()).collect();
        warn_of("network", &options.net_devices, &names);
    }
    let mut devices: Vec<TcpDevice> = addressed
        .into_iter()
        .filter(|(link, _)| options.net_devices.allows(&link.name))
        .filter(|(link, _)| {
            let asked = options.tcp.bridge_enable || named && !is_negated(options);
            asked || !link.is_inner_bridge(&links)
        })
        .map(|(link, addrs)| TcpDevice {
            name: link.name.clone(),
            index: link.index,
            addrs,
            mbps: speed_of(&link.name),
            loopback: link.loopback,
            default_route: gateways.contains(&link.index),
        })
        .collect();
    let prefer_default = options.tcp.prefer_default;
    devices.sort_by_key(|d| {
        let gateway = d.default_route && prefer_default;
        (d.loopback, Reverse(d.speed()), !gateway, d.index)
    });
    Ok(devices)
}

/// Index of the device that has an address of this host; for an address of the loopback network that no device has (the
/// rest of 127.0.0.0/8) the loopback device.
pub fn at(devices: &[TcpDevice], local: SocketAddr) -> Option<usize> {
    let ip = local.ip().to_canonical();
    let scope = match local {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let has = |d: &TcpDevice| d.addrs.contains(&ip) && (scope == 0 || d.index == scope);
    let loopback = || devices.iter().position(|d| d.loopback && ip.is_loopback());
    devices.iter().position(has).or_else(loopback)
}

/// The devices in a worker's address: the loopback device only if there is no other.
pub fn advertised(devices: &[TcpDevice]) -> &[TcpDevice] {
    let outward = devices.iter().take_while(|d| !d.loopback).count();
    if outward > 0 {
        &devices[..outward]
    } else {
        devices
    }
}

fn is_negated(options: &Options) -> bool {
    options
        .get("NET_DEVICES")
        .is_some_and(|text| text.starts_with('^'))
}

/// Indexes of the devices that default routes use.
fn defaults() -> Vec<u32> {
    // Documentation addresses, which only default routes match.
    const ELSEWHERE: [IpAddr; 2] = [
        IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)),
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    ];
    let routes = ELSEWHERE.map(|to| route::lookup(to, None, None));
    routes
        .into_iter()
        .flatten()
        .filter(|r| r.gateway && !r.local)
        .map(|r| r.device)
        .collect()
}

/// A link as the kernel reports it.
struct KernelLink {
    name: String,
    index: u32,
    /// It is up and has a carrier.
    running: bool,
    loopback: bool,
    bridge: bool,
    /// It reaches this host only: one end of a veth pair, a tap, a dummy.
    inner: bool,
    /// Index of the bridge or bond that it is a port of.
    controller: Option<u32>,
}

impl KernelLink {
    fn read(message: &RouteNetlinkMessage) -> Option<KernelLink> {
        let RouteNetlinkMessage::NewLink(message) = message else {
            return None;
        };
        let flags = message.header.flags;
        let mut link = KernelLink {
            name: String::new(),
            index: message.header.index,
            // Not `Running`: the kernel sets that flag up to a second after the carrier.
            running: flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
            loopback: flags.contains(LinkFlags::Loopback),
            bridge: false,
            inner: false,
            controller: None,
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::Controller(index) => link.controller = Some(*index),
                LinkAttribute::LinkInfo(infos) => link.note_kind(infos),
                _ => (),
            }
        }
        Some(link)
    }

    fn note_kind(&mut self, infos: &[LinkInfo]) {
        for info in infos {
            let LinkInfo::Kind(kind) = info else { continue };
            self.bridge = matches!(kind, InfoKind::Bridge);
            self.inner = matches!(
                kind,
                InfoKind::Veth | InfoKind::Netkit | InfoKind::Tun | InfoKind::Dummy | InfoKind::Ifb
            );
        }
    }

    /// Whether it is a bridge without a port that leads out of this host.
    fn is_inner_bridge(&self, links: &[KernelLink]) -> bool {
        let is_port = |port: &&KernelLink| port.controller == Some(self.index);
        self.bridge && links.iter().filter(is_port).all(|port| port.inner)
    }
}

/// An address of a device as the kernel reports it.
struct DeviceAddress {
    index: u32,
    addr: IpAddr,
    link_local: bool,
    /// The kernel does not select it by default: a further address of its subnet, or a deprecated one.
    second: bool,
}

impl DeviceAddress {
    fn read(message: &RouteNetlinkMessage) -> Option<DeviceAddress> {
        let RouteNetlinkMessage::NewAddress(message) = message else {
            return None;
        };
        let mut flags = AddressFlags::from_bits_retain(message.header.flags.bits().into());
        let (mut own, mut other) = (None, None);
        for attribute in &message.attributes {
            match attribute {
                // On a point-to-point link IFA_ADDRESS is the other end.
                AddressAttribute::Local(addr) => own = Some(*addr),
                AddressAttribute::Address(addr) => other = Some(*addr),
                AddressAttribute::Flags(all) => flags |= *all,
                _ => (),
            }
        }
        // An address whose duplicate detection has not succeeded cannot be bound to.
        let unusable = flags.contains(AddressFlags::Tentative)
            && !flags.contains(AddressFlags::Optimistic)
            || flags.contains(AddressFlags::Dadfailed);
        Some(DeviceAddress {
            index: message.header.index,
            addr: own.or(other).filter(|_| !unusable)?,
            link_local: message.header.scope == AddressScope::Link,
            second: flags.intersects(AddressFlags::Secondary | AddressFlags::Deprecated),
        })
    }
}

/// One address per family of a device.
fn choose(addresses: &[DeviceAddress], index: u32, families: &[String]) -> Vec<IpAddr> {
    let mut chosen = Vec::new();
    for wants_v6 in families.iter().filter_map(|name| is_v6(name)) {
        let of_family = |a: &&DeviceAddress| a.index == index && a.addr.is_ipv6() == wants_v6;
        let candidates = addresses.iter().filter(of_family);
        let best = candidates.min_by_key(|a| (a.link_local, a.second));
        // The option may name a family twice.
        chosen.extend(best.map(|a| a.addr).filter(|addr| !chosen.contains(addr)));
    }
    chosen
}

/// Whether a name in `UCX_TCP_AF_PRIO` means IPv6; None if it is no family.
fn is_v6(family: &str) -> Option<bool> {
    match family {
        "inet" => Some(false),
        "inet6" => Some(true),
        _ => None,
    }
}

/// The names in `UCX_TCP_AF_PRIO` that are no family.
pub fn unknown_families(families: &[String]) -> impl Iterator<Item = &String> {
    families.iter().filter(|name| is_v6(name).is_none())
}

/// Speed of a device in Mb/s. By ethtool and not from /sys, which shows the network namespace that it was mounted in,
/// not always that of this process.
fn speed_of(name: &str) -> Option<u32> {
    const ETHTOOL_GSET: u32 = 1;
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    /// `struct ethtool_cmd` of linux/ethtool.h.
    #[repr(C)]
    #[derive(Default)]
    struct EthtoolCmd {
        command: u32,
        supported: u32,
        advertising: u32,
        speed_low: u16,
        _duplex_to_mdio: [u8; 6],
        _max_packets: [u32; 2],
        speed_high: u16,
        _rest: [u8; 14],
    }
    const _: () = assert!(size_of::<EthtoolCmd>() == 44);

    let mut settings = EthtoolCmd {
        command: ETHTOOL_GSET,
        ..EthtoolCmd::default()
    };
    // SAFETY: an all-zero ifreq is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays 0. The kernel has no longer names.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut settings).cast();
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).ok()?;
    // SAFETY: the request and `settings` are valid during the call, with the layouts that the kernel expects.
    let answer = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    let mbps = u32::from(settings.speed_low) | u32::from(settings.speed_high) << 16;
    // 0 and all ones mean an unknown speed; 65535 is -1 in the 16-bit field of old drivers.
    (answer == 0 && !matches!(mbps, 0 | 0xFFFF | u32::MAX)).then_some(mbps)
}
