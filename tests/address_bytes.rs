//! The bytes of worker addresses: processes of different builds exchange them, so a change needs a new version.

use std::net::Ipv6Addr;
use ucp::tl::address::WorkerAddress;
use ucp::tl::ib::address::IbLocator;
use ucp::tl::shm::address::ShmLocator;
use ucp::tl::tcp::address::{NetAddress, TcpLocator, TcpUsage};
use ucp::tl::tofu::address::TofuLocator;
use ucp::wire::ib_port::{PortFlags, PortLocator};
use ucp::wire::tofu_msg::RailVcqs;

/// An address with a section of every transport, as hexadecimal digits.
const EVERY_SECTION: &[&str] = &[
    // Prefix, uid.
    "cb05cec7 8877665544332211",
    // Client id.
    "01 08 0807060504030201",
    // Name.
    "02 09 776f726b657220c3bc",
    // Shared memory: host, PID namespace, PID, descriptor, inode, IPC namespace, key, liveness place, flags.
    "03 29 2827262524232221 34333231 44434241 54535251 64636261 74737271 8887868584838281 94939291 00",
    // Tofu: secret, VCQ, ticket queue, number, VCQs of rails.
    "07 2a c8c7c6c5c4c3c2c1 d8d7d6d5d4d3d2d1 e8e7e6e5e4e3e2e1 f2f1",
    "1716151413121110 2726252423222120",
    // InfiniBand: secret, then for each port flags, MTU, speed, LID, QPN, GID.
    "05 3a a8a7a6a5a4a3a2a1",
    "07 05 85 0102 00000000 0100000affff00000000000000000000",
    "08 05 85 0102 b4b3b2b1 010000000000000000000000000080fe",
    // TCP: port, secret, network, then for each address family, speed, address.
    "04 26 3231 4847464544434241 54535251",
    "04 6a 0a010203",
    "06 85 fd000000000000000000000000000001",
    // CRC-32.
    "2a99a845",
];
/// The section of TCP for wireup alone.
const WIREUP: &[&str] = &["06 14 6261 7877767574737271 84838281", "04 00 c0a80001"];
/// An address without sections.
const EMPTY: &[&str] = &["cb05c1fb", "0900000000000000", "c03525b7"];

fn bytes(hex: &[&str]) -> Vec<u8> {
    let digits = hex.concat().replace(' ', "");
    let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(pair).collect()
}

fn empty(uid: u64) -> WorkerAddress {
    WorkerAddress {
        uid,
        ..WorkerAddress::default()
    }
}

fn every_section() -> WorkerAddress {
    let port = |flags, qpn, gid: &str| PortLocator {
        flags,
        mtu: 5,
        speed: 0x85,
        lid: 0x0201,
        qpn,
        gid: u128::from_be_bytes(gid.parse::<Ipv6Addr>().unwrap().octets()),
    };
    let net = |ip: &str, mbps| NetAddress::new(ip.parse().unwrap(), mbps);
    WorkerAddress {
        client_id: Some(0x0102_0304_0506_0708),
        name: Some("worker \u{fc}".to_owned()),
        shm: Some(ShmLocator {
            host: 0x2122_2324_2526_2728,
            pid_ns: 0x3132_3334,
            pid: 0x4142_4344,
            fd: 0x5152_5354,
            ino: 0x6162_6364,
            ipc_ns: 0x7172_7374,
            key: 0x8182_8384_8586_8788,
            shm_place: 0x9192_9394,
            flags: 0,
        }),
        ib: Some(IbLocator {
            secret: 0xA1A2_A3A4_A5A6_A7A8,
            ports: vec![
                port(
                    PortFlags::ETHERNET | PortFlags::ROCE_V2 | PortFlags::QUEUES,
                    0,
                    "::ffff:10.0.0.1",
                ),
                port(PortFlags::DATAGRAMS, 0xB1B2_B3B4, "fe80::1"),
            ],
        }),
        tofu: Some(TofuLocator {
            secret: 0xC1C2_C3C4_C5C6_C7C8,
            vcq: 0xD1D2_D3D4_D5D6_D7D8,
            ticket_queue: 0xE1E2_E3E4_E5E6_E7E8,
            number: 0xF1F2,
            rails: RailVcqs::of([0x1011_1213_1415_1617, 0x2021_2223_2425_2627].into_iter()),
        }),
        tcp: Some(TcpLocator {
            usage: TcpUsage::Messages,
            port: 0x3132,
            secret: 0x4142_4344_4546_4748,
            network: 0x5152_5354,
            addresses: vec![net("10.1.2.3", 10_000), net("fd00::1", 100_000)],
        }),
        ..empty(0x1122_3344_5566_7788)
    }
}

#[test]
fn all_sections_have_their_bytes() {
    let blob = bytes(EVERY_SECTION);
    assert_eq!(every_section().encode(), blob);
    assert_eq!(WorkerAddress::decode(&blob), Ok(every_section()));
}

#[test]
fn an_address_without_sections_has_its_bytes() {
    let blob = bytes(EMPTY);
    assert_eq!(empty(9).encode(), blob);
    assert_eq!(WorkerAddress::decode(&blob), Ok(empty(9)));
}

#[test]
fn a_section_has_the_same_bytes_alone() {
    let all = every_section();
    let section = |first: usize, count: usize| bytes(&EVERY_SECTION[first..first + count]);
    let ports = WorkerAddress {
        ib: all.ib,
        ..empty(9)
    };
    let tcp = WorkerAddress {
        tcp: all.tcp,
        ..empty(9)
    };
    let wireup = WorkerAddress {
        tcp: Some(TcpLocator {
            usage: TcpUsage::Wireup,
            port: 0x6162,
            secret: 0x7172_7374_7576_7778,
            network: 0x8182_8384,
            addresses: vec![NetAddress::new("192.168.0.1".parse().unwrap(), 1)],
        }),
        ..empty(9)
    };
    let tofu = WorkerAddress {
        tofu: all.tofu,
        ..empty(9)
    };
    let shm = WorkerAddress {
        shm: all.shm,
        ..empty(9)
    };
    for (address, expected) in [
        (shm, section(3, 1)),
        (tofu, section(4, 2)),
        (ports, section(6, 3)),
        (tcp, section(9, 3)),
        (wireup, bytes(WIREUP)),
    ] {
        let blob = address.encode();
        assert_eq!(blob[12..blob.len() - 4], expected);
        assert_eq!(WorkerAddress::decode(&blob), Ok(address));
    }
}
