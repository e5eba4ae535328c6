//! Bytes of the transports' sections, valid and invalid.

use super::*;
use crate::tl::ib::address::IbLocator;
use crate::tl::ib::context::IbContext;
use crate::tl::ofi::address::{Liveness, OfiLocator, OfiLocators};
use crate::tl::ofi::context::OfiContext;
use crate::tl::tcp::address::{MAX_ADDRESSES, NetAddress, TcpLocator, TcpUsage};
use crate::tl::tcp::context::TcpContext;
use crate::tl::tofu::address::TofuLocator;
use crate::tl::tofu::context::TofuContext;
use crate::wire::address::speed_code;
use crate::wire::ib_port::{MAX_PORTS, PortFlags, PortLocator};
use crate::wire::tofu_msg::{MAX_RAILS, RailVcqs};

const MESSAGES: u8 = TcpContext::SECTIONS[0];
const WIREUP: u8 = TcpContext::SECTIONS[1];

const SHM_LOCATOR: ShmLocator = ShmLocator {
    host: 1,
    pid_ns: 2,
    pid: 3,
    fd: 4,
    ino: 5,
    ipc_ns: 8,
    key: 6,
    shm_place: 10,
    flags: 7,
};

fn plain() -> WorkerAddress {
    WorkerAddress {
        uid: 9,
        shm: Some(SHM_LOCATOR),
        ..WorkerAddress::default()
    }
}

/// An address with these sections.
fn with_sections(sections: &[(u8, &[u8])]) -> Vec<u8> {
    let section = |&(kind, body)| AddressSection {
        kind,
        body: Cow::Borrowed(body),
    };
    let packed = PackedAddress {
        uid: 9,
        client_id: None,
        name: None,
        sections: sections.iter().map(section).collect(),
    };
    packed.encode()
}

#[test]
fn an_address_with_shm_is_small() {
    assert_eq!(plain().encode().len(), 59);
}

#[test]
fn an_address_with_shm_and_tcp_is_small() {
    let net = |ip: &str, mbps| NetAddress::new(ip.parse().unwrap(), mbps);
    let with = |addresses| WorkerAddress {
        tcp: Some(TcpLocator {
            usage: TcpUsage::Messages,
            port: 0x1234,
            secret: 7,
            network: 8,
            addresses,
        }),
        ..plain()
    };
    let one = with(vec![net("10.1.2.3", 10_000)]);
    assert_eq!(one.encode().len(), 81);
    let both = with(vec![net("10.1.2.3", 0), net("fd00::1", u32::MAX)]);
    assert_eq!(WorkerAddress::decode(&both.encode()), Ok(both));
    let most = with(vec![net("fd00::1", 64); MAX_ADDRESSES]);
    assert_eq!(WorkerAddress::decode(&most.encode()), Ok(most));
    for mbps in [10, 1000, 25_000, 400_000] {
        let decoded = net("10.1.2.3", mbps).mbps();
        assert!(
            decoded.abs_diff(mbps) * 20 <= mbps,
            "{mbps} became {decoded}"
        );
    }
}

#[test]
fn an_address_names_its_ports() {
    let port = PortLocator {
        flags: PortFlags::ETHERNET | PortFlags::ROCE_V2,
        mtu: 5,
        speed: speed_code(100_000),
        lid: 0,
        qpn: 17,
        gid: u128::from_be_bytes(
            "::ffff:10.0.0.1"
                .parse::<std::net::Ipv6Addr>()
                .unwrap()
                .octets(),
        ),
    };
    let with = |ports| WorkerAddress {
        ib: Some(IbLocator { secret: 7, ports }),
        ..plain()
    };
    let one = with(vec![port]);
    assert_eq!(one.encode().len(), 94);
    assert_eq!(WorkerAddress::decode(&one.encode()), Ok(one));
    let most = with(vec![port; MAX_PORTS]);
    assert_eq!(WorkerAddress::decode(&most.encode()), Ok(most));
    for wrong in [&[0; 7][..], &[0; 9], &[0; 8 + 5 * PortLocator::SIZE]] {
        assert_eq!(
            WorkerAddress::decode(&with_sections(&[(IbContext::SECTIONS[0], wrong)])),
            Err(AddressError::Malformed)
        );
    }
}

#[test]
fn an_address_has_a_section_for_each_interface_to_a_fabric() {
    let ofi = |fabric| OfiLocator {
        fabric,
        secret: 1,
        liveness: Liveness {
            host: 2,
            locks: 3,
            lock: 4,
        },
        number: 5,
        name: vec![6; 16],
    };
    let two = WorkerAddress {
        ofi: OfiLocators::new(vec![ofi(7), ofi(8)]),
        ..plain()
    };
    assert_eq!(WorkerAddress::decode(&two.encode()), Ok(two));
    let bodies = [7, 8, 9, 10].map(|fabric| ofi(fabric).encode());
    let decoded = |bodies: &[&[u8]]| {
        let section = |body: &&[u8]| (OfiContext::SECTIONS[0], body.to_vec());
        let all: Vec<_> = bodies.iter().map(section).collect();
        let all: Vec<_> = all.iter().map(|(kind, body)| (*kind, &body[..])).collect();
        WorkerAddress::decode(&with_sections(&all))
    };
    assert!(decoded(&[&bodies[0], &bodies[1], &bodies[2]]).is_ok());
    assert!(decoded(&[&bodies[0], &bodies[0]]).is_ok(), "a rail");
    for wrong in [
        // One of them is cut.
        &[&bodies[0][..], &bodies[1][..20]][..],
        &[&[], &bodies[1]],
        // One fabric three times, and too many.
        &[&bodies[0], &bodies[0], &bodies[0]],
        &[&bodies[0], &bodies[1], &bodies[2], &bodies[3]],
    ] {
        assert_eq!(decoded(wrong), Err(AddressError::Malformed));
    }
}

#[test]
fn an_address_names_its_ticket_queue() {
    let tofu = TofuLocator {
        secret: 7,
        vcq: 8,
        ticket_queue: 9,
        number: 10,
        rails: RailVcqs::default(),
    };
    let address = WorkerAddress {
        tofu: Some(tofu),
        ..plain()
    };
    assert_eq!(address.encode().len(), 87);
    assert_eq!(WorkerAddress::decode(&address.encode()), Ok(address));
    for count in 1..=MAX_RAILS {
        let tofu = TofuLocator {
            rails: RailVcqs::of((1..=count as u64).map(|n| n << 40)),
            ..tofu
        };
        let address = WorkerAddress {
            tofu: Some(tofu),
            ..plain()
        };
        assert_eq!(address.encode().len(), 87 + 8 * count);
        assert_eq!(WorkerAddress::decode(&address.encode()), Ok(address));
    }
    assert_eq!(
        WorkerAddress::decode(&with_sections(&[(TofuContext::SECTIONS[0], &[0; 25])])),
        Err(AddressError::Malformed)
    );
}

#[test]
fn rails_end_with_the_first_that_has_no_vcq() {
    let body = |rails: [u64; 3]| [&[7; 26][..], &rails.map(u64::to_le_bytes).concat()].concat();
    let (gap, one) = (body([5, 0, 6]), body([5, 0, 0]));
    let decoded = |body: &[u8]| {
        WorkerAddress::decode(&with_sections(&[(TofuContext::SECTIONS[0], body)])).unwrap()
    };
    assert_eq!(decoded(&gap), decoded(&one));
    let again = WorkerAddress::decode(&decoded(&gap).encode());
    assert_eq!(again, Ok(decoded(&gap)));
}

#[test]
fn unknown_sections_and_longer_bodies_are_skipped() {
    let shm = [&SHM_LOCATOR.encode()[..], &[1, 2, 3]].concat();
    let blob = with_sections(&[(200, &[1, 2, 3]), (SHM, &shm), (200, &[])]);
    assert_eq!(WorkerAddress::decode(&blob), Ok(plain()));
}

#[test]
fn the_last_section_of_a_kind_counts() {
    let other = ShmLocator {
        pid: 8,
        ..SHM_LOCATOR
    };
    let (first, last) = (other.encode(), SHM_LOCATOR.encode());
    let blob = with_sections(&[(SHM, &first), (SHM, &last)]);
    assert_eq!(WorkerAddress::decode(&blob), Ok(plain()));
}

#[test]
fn sections_that_make_no_sense_are_refused() {
    let wrong: [(u8, &[u8]); 4] = [
        (SHM, &[]),
        (MESSAGES, &[0, 0]),
        (
            MESSAGES,
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1],
        ),
        (
            MESSAGES,
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 1, 2, 3, 4],
        ),
    ];
    for (kind, body) in wrong {
        let of_messages = with_sections(&[(kind, body)]);
        let of_wireup = with_sections(&[(WIREUP, body)]);
        for blob in [of_messages, of_wireup] {
            assert_eq!(
                WorkerAddress::decode(&blob),
                Err(AddressError::Malformed),
                "{kind} {body:?}"
            );
        }
    }
}
