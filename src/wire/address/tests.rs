//! Bytes of worker addresses, valid and invalid.

use super::*;
use crate::wire::tofu_msg::MAX_RAILS;

const SHM_LOCATOR: ShmLocator = ShmLocator {
    host: 1,
    pid_ns: 2,
    pid: 3,
    fd: 4,
    ino: 5,
    ipc_ns: 8,
    key: 6,
    liveness_place: 10,
    flags: 7,
};
const PLAIN: WorkerAddress = WorkerAddress {
    uid: 9,
    client_id: None,
    name: None,
    shm: Some(SHM_LOCATOR),
    ib: None,
    tofu: None,
    tcp: None,
    wireup_tcp: None,
};

fn sealed(sections: &[u8]) -> Vec<u8> {
    seal([&[0; PREFIX], &9u64.to_le_bytes()[..], sections].concat())
}

#[test]
fn an_address_with_shm_is_small() {
    assert_eq!(PLAIN.encode().len(), 59);
}

#[test]
fn an_address_with_shm_and_tcp_is_small() {
    let net = |ip: &str, mbps| NetAddress::new(ip.parse().unwrap(), mbps);
    let with = |addresses| WorkerAddress {
        tcp: Some(TcpLocator {
            port: 0x1234,
            secret: 7,
            network: 8,
            addresses,
        }),
        ..PLAIN
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
        ..PLAIN
    };
    let one = with(vec![port]);
    assert_eq!(one.encode().len(), 94);
    assert_eq!(WorkerAddress::decode(&one.encode()), Ok(one));
    let most = with(vec![port; MAX_PORTS]);
    assert_eq!(WorkerAddress::decode(&most.encode()), Ok(most));
    for wrong in [&[0; 7][..], &[0; 9], &[0; 8 + 5 * PortLocator::SIZE]] {
        let section = [&[IB, wrong.len() as u8][..], wrong].concat();
        assert_eq!(
            WorkerAddress::decode(&sealed(&section)),
            Err(AddressError::Malformed)
        );
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
        ..PLAIN
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
            ..PLAIN
        };
        assert_eq!(address.encode().len(), 87 + 8 * count);
        assert_eq!(WorkerAddress::decode(&address.encode()), Ok(address));
    }
    let section = [&[TOFU, 25][..], &[0; 25]].concat();
    assert_eq!(
        WorkerAddress::decode(&sealed(&section)),
        Err(AddressError::Malformed)
    );
}

#[test]
fn unknown_sections_and_longer_bodies_are_skipped() {
    let shm = SHM_LOCATOR.encode();
    let sections = [&[200, 3, 1, 2, 3, SHM, 44], &shm[..], &[1, 2, 3, 200, 0]].concat();
    assert_eq!(WorkerAddress::decode(&sealed(&sections)), Ok(PLAIN));
}

#[test]
fn sections_that_make_no_sense_are_refused() {
    let wrong: [&[u8]; 9] = [
        &[200],
        &[200, 1],
        &[CLIENT_ID, 2, 0, 0],
        &[NAME, 1, 0xFF],
        &[SHM, 0],
        &[0, 0, 0],
        &[TCP, 2, 0, 0],
        &[TCP, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1],
        &[
            TCP, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 1, 2, 3, 4,
        ],
    ];
    for sections in wrong {
        assert_eq!(
            WorkerAddress::decode(&sealed(sections)),
            Err(AddressError::Malformed),
            "{sections:?}"
        );
    }
}

#[test]
fn names_are_cut_between_characters() {
    let named = |name: &str| WorkerAddress {
        name: Some(name.into()),
        ..PLAIN
    };
    let long = format!("x{}", "ü".repeat(100));
    let cut = format!("x{}", "ü".repeat(31));
    assert_eq!(
        WorkerAddress::decode(&named(&long).encode()),
        Ok(named(&cut))
    );
}

#[test]
fn the_prefix_shows_the_error() {
    let word = |magic: u32, version: u32, len: u32, inverted: u32| {
        total_len(&(magic | version << 8 | len << 12 | inverted << 22).to_le_bytes())
    };
    let inverted = |len: u32| len ^ 1023;
    assert_eq!(word(MAGIC, VERSION, 16, inverted(16)), Ok(16));
    assert_eq!(word(MAGIC, VERSION, 1023, inverted(1023)), Ok(1023));
    assert_eq!(
        word(MAGIC, VERSION, 15, inverted(15)),
        Err(AddressError::Length)
    );
    assert_eq!(
        word(MAGIC, VERSION, 16, inverted(17)),
        Err(AddressError::Length)
    );
    assert_eq!(
        word(MAGIC, VERSION + 1, 16, inverted(16)),
        Err(AddressError::Version)
    );
    assert_eq!(
        word(0, VERSION, 16, inverted(16)),
        Err(AddressError::Foreign)
    );
}
