//! Devices and routes, in network namespaces of their own: each test is a thread that leaves the machine's
//! network, so that nothing is left behind. Needs the right to do so (root); without it prints that and passes.

use std::net::IpAddr;
use std::process::Command;
use std::time::{Duration, Instant};
use ucp::options::Options;
use ucp::tl::tcp::device::{self, TcpDevice};
use ucp::tl::tcp::route::{self, ListenAddress, RoutePath};

/// Runs `test` in an empty network namespace after the `ip` commands of `setup`, one a line.
fn in_network(setup: &str, test: impl FnOnce() + Send + 'static) {
    let setup = setup.to_owned();
    let thread = std::thread::spawn(move || {
        // SAFETY: concerns this thread alone.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            eprintln!("skipped: no right to make network namespaces");
            return;
        }
        ip("link set lo up");
        for line in setup.lines().map(str::trim).filter(|l| !l.is_empty()) {
            ip(line);
        }
        test();
    });
    thread.join().expect("the test in its namespace");
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.expect("iproute2").success(), "ip {arguments}");
}

/// Waits until the kernel has detected a device's carrier, which it does in the background.
fn until_running(name: &str) {
    let began = Instant::now();
    while !names(&devices(&[("TCP_BRIDGE_ENABLE", "y")])).contains(&name) {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{name} has no carrier"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn options(pairs: &[(&str, &str)]) -> Options {
    let mut options = Options::default();
    for (name, value) in pairs {
        options.set(name, value).expect("an option");
    }
    options
}

fn devices(pairs: &[(&str, &str)]) -> Vec<TcpDevice> {
    device::usable(&options(pairs), &[]).expect("netlink")
}

fn names(devices: &[TcpDevice]) -> Vec<&str> {
    devices.iter().map(|d| d.name.as_str()).collect()
}

fn addr(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn remote(text: &str) -> ListenAddress {
    ListenAddress {
        addr: addr(text),
        mbps: 10_000,
    }
}

/// Name of the device and of the remote address, for each route.
fn named<'a>(
    devices: &'a [TcpDevice],
    remotes: &[ListenAddress],
    paths: &[RoutePath],
) -> Vec<(&'a str, IpAddr)> {
    paths
        .iter()
        .map(|w| (devices[w.device].name.as_str(), remotes[w.remote].addr))
        .collect()
}

const THREE: &str = "
    link add e0 type veth peer name p0
    link add e1 type veth peer name p1
    link add e2 type veth peer name p2
    addr add 10.1.0.1/24 dev e0
    addr add 10.2.0.1/24 dev e1
    addr add 10.3.0.1/24 dev e2
    link set e0 up
    link set p0 up
    link set e1 up
    link set p1 up
    link set e2 up";

#[test]
fn interfaces_without_carrier_are_left_out() {
    in_network(THREE, || {
        // The other end of e2 is down.
        assert_eq!(names(&devices(&[])), ["e0", "e1", "lo"]);
        ip("link set e1 down");
        assert_eq!(names(&devices(&[])), ["e0", "lo"]);
        ip("link set p0 down");
        assert_eq!(names(&devices(&[])), ["lo"]);
        assert_eq!(names(device::advertised(&devices(&[]))), ["lo"]);
    });
}

#[test]
fn the_user_chooses() {
    in_network(THREE, || {
        let only = |text| devices(&[("NET_DEVICES", text)]);
        assert_eq!(names(&only("e1")), ["e1"]);
        assert_eq!(names(&only("e[0-1]")), ["e0", "e1"]);
        assert_eq!(names(&only("^e0")), ["e1", "lo"]);
        assert_eq!(names(&only("lo")), ["lo"]);
        assert_eq!(names(&only("e7")), [""; 0]);
        assert_eq!(names(device::advertised(&only("^e0"))), ["e1"]);
    });
}

#[test]
fn bridges_count_if_they_lead_somewhere() {
    let setup = &[
        THREE,
        "
        link add docker0 type bridge
        addr add 172.17.0.1/16 dev docker0
        link set docker0 up
        link add c0 type veth peer name c1
        link set c0 master docker0 up
        link set c1 up",
    ]
    .concat();
    in_network(setup, || {
        until_running("docker0");
        // Containers only.
        assert_eq!(names(&devices(&[])), ["e0", "e1", "lo"]);
        assert_eq!(names(&devices(&[("NET_DEVICES", "^e0")])), ["e1", "lo"]);
        // Unless it is selected.
        assert!(names(&devices(&[("TCP_BRIDGE_ENABLE", "y")])).contains(&"docker0"));
        assert_eq!(names(&devices(&[("NET_DEVICES", "docker0")])), ["docker0"]);
        // A port that may lead out: here a tunnel stands for a network card.
        ip("link add x0 type vxlan id 7 dstport 4789 remote 10.1.0.2");
        ip("link set x0 master docker0 up");
        assert!(names(&devices(&[])).contains(&"docker0"));
    });
}

#[test]
fn addresses_of_both_families() {
    let setup = "
        link add e0 type veth peer name p0
        link set e0 up
        link set p0 up
        addr add 10.1.0.1/24 dev e0
        addr add 10.1.0.9/24 dev e0
        addr add fd01::1/64 dev e0 nodad";
    in_network(setup, || {
        let found = devices(&[("NET_DEVICES", "e0")]);
        assert_eq!(found[0].addrs, [addr("10.1.0.1"), addr("fd01::1")]);
        assert_eq!(found[0].mbps, Some(10_000), "a veth says 10 Gb/s");
        let found = devices(&[("NET_DEVICES", "e0"), ("TCP_AF_PRIO", "inet6")]);
        assert_eq!(found[0].addrs, [addr("fd01::1")]);
        ip("addr del fd01::1/64 dev e0");
        ip("addr add fe80::7/64 dev e0 nodad");
        let found = devices(&[("NET_DEVICES", "e0"), ("TCP_AF_PRIO", "inet6")]);
        assert!(route::is_link_local(found[0].addrs[0]));
        let remotes = [remote("fe80::8")];
        let paths = route::paths(&found, &remotes, false);
        assert_eq!(paths.len(), 1);
        assert_eq!(paths[0].scope, found[0].index);
    });
}

#[test]
fn the_kernel_decides_what_is_routable() {
    in_network(THREE, || {
        let found = devices(&[]);
        let remotes = [remote("10.2.0.2"), remote("10.1.0.2"), remote("10.9.0.2")];
        let paths = route::paths(&found, &remotes, false);
        let all = named(&found, &remotes, &paths);
        assert_eq!(all, [("e0", addr("10.1.0.2")), ("e1", addr("10.2.0.2"))]);
        assert!(paths.iter().all(|w| !w.bind_device));
        // A default route makes the rest reachable, by its device alone.
        ip("route add default via 10.1.0.254");
        let paths = route::paths(&found, &remotes, false);
        let all = named(&found, &remotes, &paths);
        assert_eq!(
            all,
            [
                ("e0", addr("10.1.0.2")),
                ("e1", addr("10.2.0.2")),
                ("e0", addr("10.9.0.2")),
                // It is reachable by the router, which is used only without any other route.
                ("e0", addr("10.2.0.2")),
            ]
        );
        assert!(devices(&[])[0].default_route);
        ip("route add unreachable 10.9.0.0/24");
        let paths = route::paths(&found, &remotes[2..], false);
        assert_eq!(paths, []);
    });
}

#[test]
fn docker_bridge_addresses_are_not_the_peer() {
    let setup = &[
        THREE,
        "
        link add docker0 type bridge
        addr add 172.17.0.1/16 dev docker0
        link set docker0 up
        link add c0 type veth peer name c1
        link set c0 master docker0 up
        link set c1 up",
    ]
    .concat();
    in_network(setup, || {
        until_running("docker0");
        let found = devices(&[("TCP_BRIDGE_ENABLE", "y")]);
        let remotes = [
            remote("172.17.0.1"),
            remote("10.2.0.2"),
            remote("127.0.0.1"),
        ];
        let paths = route::paths(&found, &remotes, false);
        let all = named(&found, &remotes, &paths);
        assert_eq!(all, [("e1", addr("10.2.0.2"))], "on another host");
        let remotes = [
            remote("172.17.0.1"),
            remote("10.2.0.1"),
            remote("127.0.0.1"),
        ];
        let paths = route::paths(&found, &remotes, true);
        let all = named(&found, &remotes, &paths);
        assert_eq!(
            all,
            [
                ("e1", addr("10.2.0.1")),
                ("docker0", addr("172.17.0.1")),
                ("lo", addr("127.0.0.1"))
            ],
            "in this very network"
        );
    });
}

#[test]
fn two_devices_in_one_subnet_are_two_ways() {
    let setup = "
        link add e0 type veth peer name p0
        link add e1 type veth peer name p1
        addr add 10.1.0.1/24 dev e0
        addr add 10.1.0.2/24 dev e1
        link set e0 up
        link set p0 up
        link set e1 up
        link set p1 up";
    in_network(setup, || {
        let found = devices(&[]);
        let remotes = [remote("10.1.0.7")];
        let paths = route::paths(&found, &remotes, false);
        let all = named(&found, &remotes, &paths);
        assert_eq!(all, [("e0", addr("10.1.0.7")), ("e1", addr("10.1.0.7"))]);
        assert_eq!((paths[0].bind_device, paths[1].bind_device), (false, true));
        // The faster one comes first.
        let mut faster = found.clone();
        faster[1].mbps = Some(100_000);
        let fast = [ListenAddress {
            mbps: 100_000,
            ..remotes[0]
        }];
        let paths = route::paths(&faster, &fast, false);
        assert_eq!(named(&faster, &fast, &paths)[0].0, "e1");
    });
}
