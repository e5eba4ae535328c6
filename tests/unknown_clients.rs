//! Unknown clients that connect to a worker's port: each costs one closed socket, and peers are not affected.

mod support;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use support::random::Random;
use support::scene::{Scene, endpoint_to};
use support::server::Server;
use ucp::abi::{endpoint, request, tag};
use ucp::ctypes::*;
use ucp::wire::frame;
use ucp::wire::header::Kind;
use ucp::wire::tcp_hello::{Answer, CROSSED, MAGIC, TO_LISTENER, TO_WORKER, TcpHello, WELCOME};

fn port_of(scene: &Scene) -> u16 {
    scene.address.tcp.as_ref().unwrap().port
}

/// A victim whose port accepts unknown clients, and a decent peer that uses TCP.
struct Port {
    scene: Scene,
    at: SocketAddr,
    secret: u64,
}

impl Port {
    fn new() -> Port {
        let scene = Scene::new(&[(c"TLS", c"tcp")]);
        let tcp = scene.address.tcp.as_ref().unwrap();
        let ip = tcp.addresses.iter().map(|a| a.ip).find(IpAddr::is_ipv4);
        Port {
            at: SocketAddr::new(ip.expect("an IPv4 address"), tcp.port),
            secret: tcp.secret,
            scene,
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.at).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    }

    /// Progresses until the victim has closed an unknown client's connection.
    fn until_closed(&self, stream: &mut TcpStream) {
        let mut rest = [0u8; 4096];
        self.scene
            .until("a closed connection", || match stream.read(&mut rest) {
                Ok(n) => n == 0,
                Err(e) => e.kind() != std::io::ErrorKind::WouldBlock,
            });
    }

    fn hello(&self) -> TcpHello {
        TcpHello {
            magic: MAGIC,
            purpose: TO_WORKER,
            losses: 0,
            from: 77,
            to: self.scene.address.uid,
            secret: self.secret,
            client_id: 0,
        }
    }

    /// A connection of a client that has the secret.
    fn insider(&self, from: u64) -> TcpStream {
        let (stream, verdict) = self.insider_again(from, 0);
        assert_eq!(verdict, WELCOME);
        stream
    }

    /// A connection of a client with the secret that has lost this many connections before; and the reply to it.
    fn insider_again(&self, from: u64, losses: u32) -> (TcpStream, u32) {
        let mut stream = self.connect();
        let hello = TcpHello {
            from,
            losses,
            ..self.hello()
        };
        stream.write_all(&hello.encode()).unwrap();
        let mut answer = [0; Answer::SIZE];
        let mut have = 0;
        self.scene.until("an answer", || {
            have += stream.read(&mut answer[have..]).unwrap_or(0);
            have == Answer::SIZE
        });
        (stream, Answer::decode(&answer).unwrap().verdict)
    }

    fn decent_goes_on(&self) {
        self.scene.decent_goes_on(100_000);
    }

    /// Connections and peers that the victim has.
    fn known(&self) -> (usize, usize) {
        let worker = self.scene.worker();
        let rx = worker.rx.lock();
        let connections = rx.tl.tcp.as_ref().unwrap().iter().count();
        (connections, worker.peers.lock().len())
    }
}

/// A peer can detect the end of a connection first, and is accepted again then.
#[test]
fn a_peer_that_lost_a_connection_is_accepted_again() {
    let port = Port::new();
    let mut first = port.insider(88);
    let (mut crossed, verdict) = port.insider_again(88, 0);
    assert_eq!(verdict, CROSSED, "one of two that cross");
    port.until_closed(&mut crossed);
    let (mut second, verdict) = port.insider_again(88, 1);
    assert_eq!(verdict, WELCOME);
    port.until_closed(&mut first);
    // It sent its hello before it received the second one: that connection stays.
    let (_, verdict) = port.insider_again(88, 1);
    assert_eq!(verdict, CROSSED);
    assert_eq!(
        second.read(&mut [0]).unwrap_err().kind(),
        std::io::ErrorKind::WouldBlock
    );
    // Both have detected it.
    drop(second);
    port.scene.settle();
    assert_eq!(port.insider_again(88, 2).1, WELCOME);
    port.decent_goes_on();
}

#[test]
fn a_client_without_the_secret_is_rejected() {
    let port = Port::new();
    port.decent_goes_on();
    let before = port.known();
    let good = port.hello();
    let wrong = [
        TcpHello {
            secret: good.secret ^ 1,
            ..good
        }
        .encode()
        .to_vec(),
        TcpHello {
            to: good.to ^ 1,
            ..good
        }
        .encode()
        .to_vec(),
        TcpHello {
            purpose: TO_LISTENER,
            ..good
        }
        .encode()
        .to_vec(),
        TcpHello { purpose: 9, ..good }.encode().to_vec(),
        TcpHello {
            magic: MAGIC + 1,
            ..good
        }
        .encode()
        .to_vec(),
        b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n".to_vec(),
        b"G".to_vec(),
        vec![0; 1 << 20],
    ];
    for bytes in wrong {
        let mut unknown = port.connect();
        let _ = unknown.write(&bytes);
        port.until_closed(&mut unknown);
        assert_eq!(port.known(), before, "{:?}", &bytes[..bytes.len().min(48)]);
    }
    // A client that closes in the middle of a message, or before the first.
    for n in [0, 1, 8, 47] {
        let mut unknown = port.connect();
        unknown.write_all(&good.encode()[..n]).unwrap();
        drop(unknown);
        port.decent_goes_on();
    }
    port.scene
        .until("all unknown clients closed", || port.known() == before);
}

#[test]
fn a_silent_client_is_closed() {
    let port = Port::new();
    port.decent_goes_on();
    let before = port.known();
    let mut silent: Vec<TcpStream> = (0..300).map(|_| port.connect()).collect();
    // More than there is room for: the oldest are closed at once. The decent peer is served meanwhile.
    for unknown in &mut silent[..20] {
        port.until_closed(unknown);
    }
    assert!(port.known().0 <= before.0 + 256);
    port.decent_goes_on();
    // Half a hello counts as silence, too.
    silent[299].write_all(&port.hello().encode()[..40]).unwrap();
    let began = Instant::now();
    port.scene
        .until("all unknown clients closed", || port.known() == before);
    assert!(began.elapsed() < Duration::from_secs(30));
    port.decent_goes_on();
}

/// No other event would wake the worker, and progress is called only on events.
#[test]
fn a_silent_client_of_a_sleeping_worker_is_closed() {
    let scene = Scene::sleepers(&[(c"TLS", c"tcp")]);
    let server = Server::new(&scene, true);
    let worker = SocketAddr::new([127, 0, 0, 1].into(), port_of(&scene));
    for port_number in [worker, server.port] {
        let mut unknown = TcpStream::connect(port_number).unwrap();
        unknown.set_nonblocking(true).unwrap();
        let (began, mut rest) = (Instant::now(), [0]);
        while unknown.read(&mut rest).is_err() {
            scene.sleep(Duration::from_secs(30));
        }
        // Closed by the timeout, not at once.
        assert!(began.elapsed() > Duration::from_secs(4));
    }
}

#[test]
fn an_insider_that_sends_garbage_loses_its_own_connection() {
    let port = Port::new();
    port.decent_goes_on();
    let before = port.known().0;
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut wrong: Vec<Vec<u8>> = vec![
        vec![0; 64],
        vec![0xFF; 64],
        frame::encode(Kind::TagEager as u8, 0, 0, frame::MAX_RECORD + 1).to_vec(),
        frame::encode(Kind::Data as u8, 0, 0, frame::MAX_BULK + 1).to_vec(),
        frame::encode(Kind::TagRts as u8, 0, 0, 3).to_vec(),
        [
            &frame::encode(Kind::AmEager as u8, 0, 9 << 16, 4)[..],
            &[0; 4],
        ]
        .concat(),
    ];
    wrong.extend((0..200).map(|_| (0..400).map(|_| random.next() as u8).collect()));
    for (i, bytes) in wrong.iter().enumerate() {
        let mut insider = port.insider(1000 + i as u64);
        insider.write_all(bytes).unwrap();
        // Bytes that are a valid frame header wait for the rest of the frame.
        insider.shutdown(std::net::Shutdown::Write).unwrap();
        port.until_closed(&mut insider);
    }
    port.scene
        .until("only decent ones", || port.known().0 == before);
    port.decent_goes_on();
}

#[test]
fn payload_without_target_is_dropped() {
    let port = Port::new();
    port.decent_goes_on();
    let mut target = vec![7u8; 1 << 20];
    let at = target.as_mut_ptr() as u64;
    let len = 256 << 10;
    let mut insider = port.insider(5);
    insider.set_nonblocking(false).unwrap();
    // Memory that is not registered, requests that do not exist: read and dropped, the connection stays.
    let writer = std::thread::spawn(move || {
        for (kind, imm, head) in [
            (Kind::PutReq, at, &[][..]),
            (Kind::PutReq, u64::MAX - 100, &[][..]),
            (Kind::Data, 1 << 32, &[0; 8][..]),
            (Kind::GetRep, 1 << 32, &[0xFF; 8][..]),
        ] {
            let frame = frame::encode(kind as u8, 0, imm, head.len() + len);
            insider.write_all(&frame).unwrap();
            insider.write_all(head).unwrap();
            insider.write_all(&vec![9; len]).unwrap();
        }
        insider
    });
    port.scene.until("everything read", || writer.is_finished());
    let mut insider = writer.join().unwrap();
    insider.set_nonblocking(true).unwrap();
    // Each write is rejected: two acknowledgements of 16 bytes.
    let mut answers = [0; 32];
    let mut have = 0;
    port.scene.until("acknowledgements", || {
        have += insider.read(&mut answers[have..]).unwrap_or(0);
        have == answers.len()
    });
    let ack = frame::decode(answers.first_chunk().unwrap()).unwrap();
    assert_eq!(
        (ack.kind, ack.aux as i8),
        (Kind::PutAck, UCS_ERR_INVALID_ADDR as i8)
    );
    assert!(target.iter().all(|&b| b == 7));
    port.decent_goes_on();
}

/// A flush waits for a connection that is never established: it ends with its endpoint.
#[test]
fn a_forced_close_ends_the_flush_of_its_endpoint() {
    let port = Port::new();
    let mut absent = port.scene.address.clone();
    absent.uid ^= 1;
    let blob = absent.encode();
    // SAFETY: zeroed structures with masks that name what is set; live handles, a buffer that outlives its request.
    unsafe {
        let ep = endpoint_to(port.scene.decent, &blob);
        let mut param: ucp_request_param_t = std::mem::zeroed();
        let word = 1u64;
        let send = tag::ucp_tag_send_nbx(ep, (&raw const word).cast(), 8, 1, &param);
        let flush = endpoint::ucp_ep_flush_nbx(ep, &param);
        assert_eq!(request::ucp_request_check_status(flush), UCS_INPROGRESS);
        port.scene.progress();
        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS as u32;
        param.flags = UCP_EP_CLOSE_FLAG_FORCE as u32;
        assert!(endpoint::ucp_ep_close_nbx(ep, &param).is_null());
        for req in [send, flush] {
            assert_eq!(request::ucp_request_check_status(req), UCS_ERR_CANCELED);
            request::ucp_request_free(req);
        }
    }
    port.decent_goes_on();
}
