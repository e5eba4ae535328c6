//! Bytes from other processes; records for which there is no room; connections that end.

use super::hello::Hello;
use super::sender::{ShmtestSender, TxLink};
use super::socket::{self, Received, Socket};
use super::{MAX_PACKET, ShmtestLocator};
use crate::sys::host;
use crate::tl::Message;
use crate::tl::contract::MAX_BCOPY;
use crate::wire::frame;
use crate::wire::header::Kind;
use std::io::ErrorKind;

/// A listening socket, and its name.
fn listen() -> (Socket, u64) {
    let name = host::random_u64();
    (socket::listen(name).unwrap(), name)
}

/// The sending half of a connection, and the socket of the other end.
fn connection() -> (ShmtestSender, Socket) {
    let (listener, name) = listen();
    let sender = ShmtestSender::new(TxLink::new(socket::connect(name).unwrap()));
    (sender, socket::accept(&listener).unwrap())
}

/// The immediate of the next record, which has `len` bytes. `None`: there is none.
fn next(socket: &Socket, len: usize) -> Option<u64> {
    let mut buffer = vec![0; MAX_PACKET];
    match socket::receive(socket, &mut buffer) {
        Received::Packet(packet) => {
            let m = Message::in_packet(packet).unwrap();
            assert_eq!((m.kind, m.aux, m.len), (Kind::TagEager as u8, 3, len));
            let expected = vec![m.imm as u8; len];
            assert_eq!(packet[frame::HEADER..], expected);
            Some(m.imm)
        }
        Received::Nothing | Received::End => None,
        Received::TooLong => panic!("longer than any record"),
    }
}

/// Sends a record that [`next`] expects.
fn send(sender: &mut ShmtestSender, imm: u64, len: usize) -> bool {
    // SAFETY: `fill` gets memory for the record.
    let fill = |record: *mut u8| unsafe { record.write_bytes(imm as u8, len) };
    sender.send(Kind::TagEager as u8, 3, imm, len, fill)
}

#[test]
fn an_address_names_a_worker_of_this_host_and_network_namespace() {
    let own = ShmtestLocator::here(1, 2);
    let to = ShmtestLocator::here(3, 4);
    let decoded = ShmtestLocator::decode(&to.encode()).unwrap();
    let between = |to: &ShmtestLocator| ShmtestLocator::between(Some(&own), Some(to));
    assert_eq!(between(&decoded), Some(to));
    let host = to.host + 1;
    let net_ns = to.net_ns + 1;
    assert_eq!(between(&ShmtestLocator { host, ..to }), None);
    assert_eq!(between(&ShmtestLocator { net_ns, ..to }), None);
    assert_eq!(ShmtestLocator::between(None, Some(&to)), None);
    assert_eq!(ShmtestLocator::between(Some(&own), None), None);
    for short in 0..ShmtestLocator::SIZE {
        assert_eq!(ShmtestLocator::decode(&to.encode()[..short]), None);
    }
    let nameless = ShmtestLocator { name: 0, ..to };
    assert_eq!(ShmtestLocator::decode(&nameless.encode()), None);
}

#[test]
fn a_hello_is_for_one_worker() {
    let (client, server) = (ShmtestLocator::here(1, 2), ShmtestLocator::here(3, 4));
    let bytes = Hello::new((5, &client), (6, &server)).encode();
    let hello = Hello::parse(&bytes, 6, &server).unwrap();
    assert_eq!((hello.from, hello.back()), (5, client));
    assert!(Hello::parse(&bytes, 7, &server).is_none(), "another worker");
    assert!(Hello::parse(&bytes, 6, &client).is_none(), "another secret");
    assert!(Hello::parse(&[&bytes[..], &[0]].concat(), 6, &server).is_none());
    for short in 0..bytes.len() {
        assert!(Hello::parse(&bytes[..short], 6, &server).is_none());
    }
    // Magic, version, the receiver's uid and secret.
    for at in (0..12).chain(20..36) {
        let mut wrong = bytes;
        wrong[at] ^= 1;
        assert!(Hello::parse(&wrong, 6, &server).is_none(), "byte {at}");
    }
}

#[test]
fn records_wait_for_room_and_arrive_in_order() {
    let (mut sender, socket) = connection();
    assert!(!socket::is_hung_up(&socket));
    let mut sent = 0;
    while sender.has_room(MAX_BCOPY) {
        assert!(send(&mut sender, sent, MAX_BCOPY), "there was room");
        sent += 1;
    }
    assert!(!sender.is_drained() && !send(&mut sender, sent, 0));
    for imm in 0..sent {
        assert_eq!(next(&socket, MAX_BCOPY), Some(imm));
        sender.flush();
    }
    assert!(sender.is_drained() && next(&socket, 0).is_none());
    assert!(send(&mut sender, sent, 0) && next(&socket, 0) == Some(sent));
}

#[test]
fn sent_records_outlive_the_connection() {
    let (listener, name) = listen();
    let mut sender = ShmtestSender::new(TxLink::new(socket::connect(name).unwrap()));
    assert!(send(&mut sender, 1, 100) && send(&mut sender, 2, 100) && sender.is_drained());
    drop(sender);
    let socket = socket::accept(&listener).unwrap();
    assert!(socket::is_hung_up(&socket), "unread bytes or not");
    assert!(next(&socket, 100) == Some(1) && next(&socket, 100) == Some(2));
    assert!(matches!(socket::receive(&socket, &mut [0]), Received::End));
}

#[test]
fn the_sender_finds_that_the_receiver_has_ended() {
    let (listener, name) = listen();
    let link = TxLink::new(socket::connect(name).unwrap());
    assert!(!socket::has_ended(&link.socket), "it was not accepted yet");
    let mut sender = ShmtestSender::new(link.clone());
    assert!(send(&mut sender, 1, 100));
    drop(listener);
    assert!(socket::has_ended(&link.socket), "unread bytes or not");
    assert!(send(&mut sender, 2, 100) && !sender.is_drained());
    let refused = socket::connect(name).err().map(|e| e.kind());
    assert_eq!(refused, Some(ErrorKind::ConnectionRefused));
}

#[test]
fn packets_that_are_too_long_are_found() {
    let (listener, name) = listen();
    let client = socket::connect(name).unwrap();
    let server = socket::accept(&listener).unwrap();
    assert!(socket::send_packet(&client, &[0; 9]).unwrap());
    let mut buffer = [0; 8];
    assert!(matches!(
        socket::receive(&server, &mut buffer),
        Received::TooLong
    ));
    assert!(matches!(
        socket::receive(&server, &mut buffer),
        Received::Nothing
    ));
}
