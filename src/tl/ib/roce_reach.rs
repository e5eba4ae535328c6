//! Which RoCE ports reach each other: those of one IP subnet, and those between which the kernel has a route
//! (`UCX_IB_ROCE_REACHABILITY_MODE`, `UCX_IB_ROCE_LOCAL_SUBNET`, `UCX_IB_ROCE_SUBNET_PREFIX_LEN`).

use crate::sys::log;
use crate::tl::tcp::route;
use std::io::{self, ErrorKind};
use std::net::IpAddr;

/// The requirement for a peer's port to count as reachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReachMode {
    /// The kernel has a route to it.
    Route,
    /// It is in the same subnet.
    LocalSubnet,
    /// None.
    All,
}

/// The options of reachability.
#[derive(Clone, Copy, Debug)]
pub struct ReachPolicy {
    pub mode: ReachMode,
    /// Length of a subnet prefix, bits; `None`: the kernel's routes decide.
    pub prefix: Option<u32>,
}

/// How a port is reached; a larger value is a better path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RoceDistance {
    /// Through a router, or unknown.
    Far,
    /// Without a router.
    Near,
}

/// The address of a RoCE port in its IP network.
#[derive(Clone, Copy, Debug)]
pub struct RocePlace {
    pub addr: IpAddr,
    /// Index of the network device of the port, if known.
    pub device: Option<u32>,
}

/// The route to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RouteAnswer {
    Link,
    Router,
    /// An address of this host.
    Own,
    Nowhere,
    /// The kernel was not asked, or returned no route and no error that says so.
    Unknown,
}

impl RocePlace {
    /// How an address of the same family is reached from here. `None`: not at all.
    pub fn distance(&self, to: IpAddr, reach: ReachPolicy) -> Option<RoceDistance> {
        if self.addr == to {
            return Some(RoceDistance::Near);
        }
        let answer = match reach.prefix {
            Some(bits) if is_same_subnet(self.addr, to, bits) => RouteAnswer::Link,
            Some(_) if reach.mode == ReachMode::LocalSubnet => RouteAnswer::Router,
            _ => self.ask_kernel(to),
        };
        judge(answer, reach.mode)
    }

    fn ask_kernel(&self, to: IpAddr) -> RouteAnswer {
        // The route to a link-local address does not depend on the link.
        let Some(device) = self.device.filter(|_| !route::is_link_local(to)) else {
            return RouteAnswer::Unknown;
        };
        match route::lookup(to, Some(self.addr), Some(device)) {
            Ok(route) if route.local => RouteAnswer::Own,
            Ok(route) if route.gateway => RouteAnswer::Router,
            Ok(_) => RouteAnswer::Link,
            Err(e) if is_unreachable(&e) => match route::lookup(to, None, None) {
                Ok(route) if route.local => RouteAnswer::Own,
                _ => RouteAnswer::Nowhere,
            },
            Err(e) => {
                log::debug!("no reply to the route query for {to}: {e}");
                RouteAnswer::Unknown
            }
        }
    }
}

fn judge(answer: RouteAnswer, mode: ReachMode) -> Option<RoceDistance> {
    match (answer, mode) {
        (RouteAnswer::Link, _) => Some(RoceDistance::Near),
        (RouteAnswer::Router, ReachMode::LocalSubnet)
        | (RouteAnswer::Nowhere, ReachMode::LocalSubnet | ReachMode::Route) => None,
        // The kernel does not know whether one device of this host reaches another one.
        _ => Some(RoceDistance::Far),
    }
}

fn is_unreachable(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable
    )
}

fn is_same_subnet(a: IpAddr, b: IpAddr, bits: u32) -> bool {
    let (a, b, all) = match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
        _ => return false,
    };
    let rest = all - bits.min(all);
    // `rest` is 128 only where no bits are compared.
    rest == u128::BITS || a >> rest == b >> rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [ReachMode; 3] = [ReachMode::Route, ReachMode::LocalSubnet, ReachMode::All];

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn subnets_are_as_long_as_said() {
        let same = |a, b, bits| is_same_subnet(ip(a), ip(b), bits);
        assert!(same("10.1.2.3", "10.1.2.4", 24) && !same("10.1.2.3", "10.1.3.3", 24));
        assert!(same("10.1.2.3", "10.1.3.3", 23) && same("10.0.0.1", "9.0.0.1", 0));
        assert!(!same("10.0.0.1", "10.0.0.2", 32) && !same("10.0.0.1", "10.0.0.2", 99));
        assert!(same("fd00::1", "fd00::ffff", 64) && !same("fd00::1", "fd01::1", 64));
        assert!(same("fd00::1", "1::1", 0) && !same("fd00::1", "10.0.0.1", 0));
    }

    #[test]
    fn modes_ask_for_more_or_less() {
        let judged = |answer| ALL.map(|mode| judge(answer, mode));
        let (near, far) = (Some(RoceDistance::Near), Some(RoceDistance::Far));
        assert_eq!(judged(RouteAnswer::Link), [near; 3]);
        assert_eq!(judged(RouteAnswer::Router), [far, None, far]);
        assert_eq!(judged(RouteAnswer::Nowhere), [None, None, far]);
        assert_eq!(judged(RouteAnswer::Own), [far; 3]);
        assert_eq!(judged(RouteAnswer::Unknown), [far; 3]);
    }

    #[test]
    fn a_prefix_decides_without_the_kernel() {
        let place = RocePlace {
            addr: ip("10.1.2.3"),
            device: None,
        };
        let reach = |mode| ReachPolicy {
            mode,
            prefix: Some(24),
        };
        let (near, there) = (ip("10.1.2.9"), ip("10.1.9.9"));
        for mode in ALL {
            assert_eq!(place.distance(near, reach(mode)), Some(RoceDistance::Near));
        }
        assert_eq!(place.distance(there, reach(ReachMode::LocalSubnet)), None);
        assert_eq!(
            place.distance(there, reach(ReachMode::All)),
            Some(RoceDistance::Far)
        );
    }

    #[test]
    fn the_kernel_is_asked_for_routes() {
        let device = std::fs::read_to_string("/sys/class/net/lo/ifindex").unwrap();
        let place = RocePlace {
            addr: ip("127.0.0.1"),
            device: device.trim().parse().ok(),
        };
        let reach = ReachPolicy {
            mode: ReachMode::Route,
            prefix: None,
        };
        assert!(place.distance(ip("127.0.0.2"), reach).is_some(), "our own");
        // No address of TEST-NET-1 (RFC 5737) is behind the loopback device.
        assert_eq!(place.distance(ip("192.0.2.1"), reach), None);
    }
}
