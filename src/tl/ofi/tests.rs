//! Bytes from other processes: the section of a worker address, hellos, packets.

use super::address::{
    Liveness, MAX_INTERFACES, OfiLocator, OfiLocators, OfiPath, OfiSection, OfiTarget,
};
use super::conn::OfiConn;
use super::endpoint::MAX_NAME;
use super::failover_packet::{Move, Moved};
use super::packet::{
    self, Accept, Grant, HELLO, Hello, MOVE, MOVED, PROBE, PacketHdr, RECORD, bare,
};
use super::sender::OfiSender;
use super::tx_link::OfiTxLink;
use crate::tl::Message;
use proptest::prelude::*;

fn locator(name: &[u8], secret: u64) -> OfiLocator {
    OfiLocator {
        fabric: 1,
        secret,
        liveness: Liveness {
            host: 2,
            locks: 3,
            lock: 4,
        },
        number: 1,
        name: name.to_vec(),
    }
}

fn one(locator: &OfiLocator) -> OfiLocators {
    OfiLocators::new(vec![locator.clone()]).unwrap()
}

fn of_fabric(locator: &OfiLocator, fabric: u64) -> OfiLocator {
    OfiLocator {
        fabric,
        ..locator.clone()
    }
}

#[test]
fn an_address_leads_to_a_worker_of_the_same_fabric() {
    let (own, to) = (locator(&[7; 16], 5), locator(&[8; 16], 6));
    let decoded = OfiLocator::decode(&to.encode()).unwrap();
    let own = one(&own);
    let between = |to: &OfiLocator| OfiTarget::between(Some(&own), Some(&one(to)));
    assert_eq!(between(&decoded), Some(OfiTarget::only(0, to.clone())));
    assert_eq!(between(&of_fabric(&to, 9)), None);
    assert_eq!(OfiTarget::between(None, Some(&one(&to))), None);
    assert_eq!(OfiTarget::between(Some(&own), None), None);
    for len in [1, 15, 17, 28] {
        assert_eq!(between(&locator(&vec![8; len], 6)), None, "another length");
    }
}

#[test]
fn a_peer_is_reached_by_each_fabric_of_both_workers_in_the_order_of_this_one() {
    let shm = locator(b"fi_shm://1:0:0\0", 5);
    let tcp = of_fabric(&locator(&[7; 16], 5), 2);
    let other = of_fabric(&tcp, 3);
    let between = |own: &[&OfiLocator], to: &[&OfiLocator]| {
        let all = |list: &[&OfiLocator]| {
            OfiLocators::new(list.iter().map(|&l| l.clone()).collect()).unwrap()
        };
        let target = OfiTarget::between(Some(&all(own)), Some(&all(to)))?;
        Some(
            target
                .paths()
                .map(|path| (path.iface, path.to.fabric))
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(
        between(&[&shm, &tcp], &[&shm, &tcp]),
        Some(vec![(0, 1), (1, 2)])
    );
    assert_eq!(
        between(&[&shm, &tcp], &[&tcp, &shm]),
        Some(vec![(0, 1), (1, 2)])
    );
    assert_eq!(between(&[&shm, &tcp], &[&tcp]), Some(vec![(1, 2)]));
    assert_eq!(between(&[&tcp], &[&shm, &tcp]), Some(vec![(0, 2)]));
    assert_eq!(between(&[&other, &tcp], &[&shm, &tcp]), Some(vec![(1, 2)]));
    assert_eq!(between(&[&shm, &other], &[&tcp]), None);
}

#[test]
fn the_ways_behind_one_are_those_that_are_left_if_it_fails() {
    let path = |iface| OfiPath {
        iface,
        to: locator(&[7; 16], 5),
    };
    let target = OfiTarget {
        first: path(1),
        others: vec![path(0), path(2)],
        rail: Some(path(3)),
    };
    let behind = |iface, fails_over| -> Vec<usize> {
        let paths = target.lane_paths_behind(iface, fails_over);
        paths.map(|path| path.iface).collect()
    };
    assert_eq!(behind(1, false), [0, 2]);
    assert_eq!((behind(0, false), behind(2, false)), (vec![2], vec![]));
    assert_eq!((behind(0, true), behind(2, true)), (vec![2, 3], vec![3]));
    assert_eq!(behind(3, true), []);
    assert_eq!(behind(9, true), [], "a peer that was known by another way");
}

#[test]
fn the_second_interface_of_a_fabric_is_for_a_rail() {
    let shm = locator(b"fi_shm://1:0:0\0", 5);
    let tcp = |host| of_fabric(&locator(&[host; 16], 5), 2);
    let all = |list: &[OfiLocator]| OfiLocators::new(list.to_vec()).unwrap();
    let rail = |own: &[OfiLocator], to: &[OfiLocator]| {
        let target = OfiTarget::between(Some(&all(own)), Some(&all(to))).unwrap();
        assert!(
            target
                .paths()
                .all(|path| Some(path) != target.rail.as_ref())
        );
        let rail = target.rail?;
        Some((rail.iface, rail.to.name[0]))
    };
    let (own, to) = ([tcp(1), tcp(2)], [tcp(3), tcp(4)]);
    assert_eq!(rail(&own, &to), Some((1, 4)));
    assert_eq!(rail(&own, &to[..1]), None);
    assert_eq!(rail(&own[..1], &to), None);
    let both = [shm.clone(), tcp(1), tcp(2)];
    assert_eq!(rail(&both, &to), Some((2, 4)));
    assert_eq!(rail(&both, &both), None, "memory is first, and has no rail");
}

#[test]
fn an_address_has_few_interfaces_of_each_fabric() {
    let section = |fabric| of_fabric(&locator(&[7; 16], 5), fabric);
    assert_eq!(OfiLocators::new(Vec::new()), None);
    let most = (0..=MAX_INTERFACES as u64).map(section);
    assert_eq!(OfiLocators::new(most.collect()), None);
    let mut all = one(&section(0));
    assert_eq!(all.join(one(&section(0))), Some(()));
    assert_eq!(all.join(one(&section(0))), None, "a third of the fabric");
    for fabric in 2..MAX_INTERFACES as u64 {
        assert_eq!(all.join(one(&section(fabric))), Some(()));
    }
    assert_eq!(all.join(one(&section(99))), None, "there are too many");
}

#[test]
fn strings_end_with_their_only_zero() {
    let own = one(&locator(b"fi_shm://1:0:0\0", 5));
    let between = |name: &[u8]| OfiTarget::between(Some(&own), Some(&one(&locator(name, 6))));
    assert!(between(b"fi_shm://12345:0:0\0").is_some());
    for name in [
        &b"fi_shm://12345:0:0"[..],
        b"fi_shm\0//1\0",
        b"\0",
        b"shm\0",
    ] {
        assert!(between(name).is_none(), "{name:?}");
    }
}

#[test]
fn malformed_sections_are_refused() {
    let bytes = locator(&[7; 16], 5).encode();
    for len in 0..=OfiSection::SIZE {
        assert_eq!(OfiLocator::decode(&bytes[..len]), None, "{len} bytes");
    }
    assert!(OfiLocator::decode(&locator(&[7; MAX_NAME], 5).encode()).is_some());
    assert_eq!(
        OfiLocator::decode(&locator(&[7; MAX_NAME + 1], 5).encode()),
        None
    );
    assert_eq!(OfiLocator::decode(&locator(&[7; 16], 0).encode()), None);
}

#[test]
fn a_peer_takes_little_memory() {
    let conn = size_of::<OfiConn<*const u8>>();
    let all = conn + size_of::<OfiTxLink>() + size_of::<OfiSender>();
    assert!(all <= 344, "{all} bytes, {conn} of the connection");
}

#[test]
fn a_lock_is_seen_where_it_is() {
    let own = locator(&[7; 16], 5).liveness;
    assert_eq!(own.key_here(&own), Some(4));
    assert_eq!(Liveness { lock: 0, ..own }.key_here(&own), None);
    assert_eq!(Liveness { host: 9, ..own }.key_here(&own), None);
    assert_eq!(Liveness { locks: 9, ..own }.key_here(&own), None);
}

#[test]
fn a_hello_is_for_one_worker() {
    let (client, server) = (locator(&[7; 16], 5), locator(&[8; 16], 6));
    let grant = Grant { conn: 3, key: 4 };
    let packet = packet::hello((10, &client, grant), (11, &server), None, (5, 6));
    assert_eq!(PacketHdr::decode(&packet).unwrap().kind, HELLO);
    let body = &packet[PacketHdr::SIZE..];
    let parsed = packet::parse_hello(body, 11, &server).unwrap();
    let hello = parsed.hello;
    assert_eq!((hello.from, hello.grant), (10, grant));
    assert_eq!((hello.session, hello.next), (5, 6));
    assert!(parsed.from == client && parsed.locators.is_none());
    assert!(
        packet::parse_hello(body, 12, &server).is_none(),
        "another worker"
    );
    assert!(
        packet::parse_hello(body, 11, &client).is_none(),
        "another secret"
    );
    for short in 0..body.len() {
        assert!(packet::parse_hello(&body[..short], 11, &server).is_none());
    }
    let long = [body, &[0]].concat();
    assert!(
        packet::parse_hello(&long, 11, &server).is_none(),
        "another length of addresses"
    );
    // Magic, version, the receiver's uid and secret, and the fabric of the sender.
    for at in (0..12).chain(20..36).chain(Hello::SIZE..Hello::SIZE + 8) {
        let mut wrong = body.to_vec();
        wrong[at] ^= 1;
        assert!(
            packet::parse_hello(&wrong, 11, &server).is_none(),
            "byte {at}"
        );
    }
}

#[test]
fn a_hello_with_failover_has_all_interfaces_of_its_sender() {
    let server = locator(&[8; 16], 6);
    let (first, second) = (locator(&[7; 16], 5), of_fabric(&locator(&[6; 16], 7), 2));
    let locators = OfiLocators::new(vec![first.clone(), second]).unwrap();
    let grant = Grant { conn: 3, key: 4 };
    let packet = packet::hello((10, &first, grant), (11, &server), Some(&locators), (4, 0));
    let body = &packet[PacketHdr::SIZE..];
    let parsed = packet::parse_hello(body, 11, &server).unwrap();
    assert_eq!((parsed.from, parsed.locators), (first, Some(locators)));
    for short in 0..body.len() {
        let parsed = packet::parse_hello(&body[..short], 11, &server);
        let is_cut = |locators: OfiLocators| locators.all().len() == 1;
        assert!(
            parsed.is_none_or(|parsed| parsed.locators.is_some_and(is_cut)),
            "cut to {short}"
        );
    }
    let long = [body, &[1, 0, 0]].concat();
    assert!(packet::parse_hello(&long, 11, &server).is_none());
}

#[test]
fn a_request_to_move_is_for_one_worker() {
    let (client, server) = (locator(&[7; 16], 5), locator(&[8; 16], 6));
    let grant = Grant { conn: 3, key: 4 };
    let packet = Move::packet((10, &client, grant), (11, &server), (12, 13, 14));
    assert_eq!(PacketHdr::decode(&packet).unwrap().kind, MOVE);
    let body = &packet[PacketHdr::SIZE..];
    let (request, from) = Move::parse(body, 11, &server).unwrap();
    assert_eq!((request.from, request.grant, from), (10, grant, client));
    assert_eq!(
        (request.session, request.generation, request.next),
        (12, 13, 14)
    );
    assert!(Move::parse(body, 12, &server).is_none(), "another worker");
    assert!(
        Move::parse(body, 11, &locator(&[8; 16], 9)).is_none(),
        "another secret"
    );
    for short in 0..body.len() {
        assert!(Move::parse(&body[..short], 11, &server).is_none());
    }
    let packet = Moved::packet(grant, Grant { conn: 5, key: 6 }, 7);
    assert_eq!(PacketHdr::decode(&packet).unwrap().grant(), grant);
    let moved = Moved::decode(&packet[PacketHdr::SIZE..]).unwrap();
    assert_eq!((moved.grant, moved.next), (Grant { conn: 5, key: 6 }, 7));
}

#[test]
fn packets_name_the_connection_of_the_receiver() {
    let (to, own) = (Grant { conn: 1, key: 2 }, Grant { conn: 3, key: 4 });
    let packet = packet::accept(to, own, Some((5, 6)));
    let hdr = PacketHdr::decode(&packet).unwrap();
    assert_eq!((hdr.conn, hdr.key), (1, 2));
    let accept = Accept::decode(&packet[PacketHdr::SIZE..]).unwrap();
    assert_eq!((accept.grant, accept.fails_over()), (own, true));
    assert_eq!((accept.session, accept.generation), (5, 6));
    let packet = packet::accept(to, own, None);
    let accept = Accept::decode(&packet[PacketHdr::SIZE..]).unwrap();
    assert_eq!((accept.grant, accept.fails_over()), (own, false));
    assert_eq!(PacketHdr::decode(&bare(to, PROBE, 0)).unwrap().kind, PROBE);
    for kind in [0, MOVED + 1, u32::MAX] {
        assert!(PacketHdr::decode(&bare(to, kind, 0)).is_none());
    }
    assert!(PacketHdr::decode(&bare(to, RECORD, 0)[..PacketHdr::SIZE - 1]).is_none());
}

proptest! {
    #[test]
    fn any_bytes_are_parsed(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        let own = locator(&[7; 16], 5);
        if let Some(decoded) = OfiLocator::decode(&bytes) {
            prop_assert_eq!(decoded.encode(), &bytes[..]);
        }
        let _ = packet::parse_hello(&bytes, 11, &own);
        let _ = Move::parse(&bytes, 11, &own);
        let _ = Message::in_packet(&bytes);
    }
}
