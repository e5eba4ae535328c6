//! Strangers that connect to a worker's port: each costs one closed socket, and nobody else notices.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::ptr;
use std::time::{Duration, Instant};
use ucp::abi::{address, context, endpoint, request, tag, worker};
use ucp::ctypes::*;
use ucp::engine::worker::Worker;
use ucp::wire::frame;
use ucp::wire::greeting::{Answer, Greeting, MAGIC, TO_LISTENER, TO_WORKER, WELCOME};
use ucp::wire::header::Kind;

/// A generator that gives the same numbers every time (xorshift64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// A victim whose port strangers find, and a decent peer that reaches it by TCP.
struct Scene {
    context: ucp_context_h,
    victim: ucp_worker_h,
    decent: ucp_worker_h,
    to_victim: ucp_ep_h,
    port: SocketAddr,
    uid: u64,
    secret: u64,
}

impl Scene {
    fn new() -> Scene {
        // SAFETY: zeroed parameter structures with masks that name what is set.
        unsafe {
            let mut config = ptr::null_mut();
            assert_eq!(
                ucp::abi::config::ucp_config_read(ptr::null(), ptr::null(), &mut config),
                UCS_OK
            );
            assert_eq!(
                ucp::abi::config::ucp_config_modify(config, c"TLS".as_ptr(), c"tcp".as_ptr()),
                UCS_OK
            );
            let mut params: ucp_params_t = std::mem::zeroed();
            params.field_mask = UCP_PARAM_FIELD_FEATURES as u64;
            params.features =
                UCP_FEATURE_TAG as u64 | UCP_FEATURE_RMA as u64 | UCP_FEATURE_AM as u64;
            let mut ctx = ptr::null_mut();
            assert_eq!(
                context::ucp_init_version(1, 22, &params, config, &mut ctx),
                UCS_OK
            );
            ucp::abi::config::ucp_config_release(config);
            let worker_params: ucp_worker_params_t = std::mem::zeroed();
            let (mut victim, mut decent) = (ptr::null_mut(), ptr::null_mut());
            for w in [&mut victim, &mut decent] {
                assert_eq!(worker::ucp_worker_create(ctx, &worker_params, w), UCS_OK);
            }
            let (mut blob, mut len) = (ptr::null_mut(), 0);
            assert_eq!(
                address::ucp_worker_get_address(victim, &mut blob, &mut len),
                UCS_OK
            );
            let told = address::decode(blob).unwrap();
            let tcp = told.tcp.unwrap();
            let mut ep_params: ucp_ep_params_t = std::mem::zeroed();
            ep_params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS as u64;
            ep_params.address = blob;
            let mut to_victim = ptr::null_mut();
            assert_eq!(
                endpoint::ucp_ep_create(decent, &ep_params, &mut to_victim),
                UCS_OK
            );
            address::ucp_worker_release_address(victim, blob);
            let ip = tcp.addresses.iter().map(|a| a.ip).find(IpAddr::is_ipv4);
            Scene {
                context: ctx,
                victim,
                decent,
                to_victim,
                port: SocketAddr::new(ip.expect("an IPv4 address"), tcp.port),
                uid: told.uid,
                secret: tcp.secret,
            }
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.port).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    }

    fn progress(&self) {
        // SAFETY: live workers.
        unsafe {
            worker::ucp_worker_progress(self.victim);
            worker::ucp_worker_progress(self.decent);
        }
    }

    fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let began = Instant::now();
        while !done() {
            assert!(began.elapsed() < Duration::from_secs(60), "in vain: {what}");
            self.progress();
        }
    }

    /// Progresses until the victim has closed a stranger's connection.
    fn until_closed(&self, stream: &mut TcpStream) {
        let mut rest = [0u8; 4096];
        self.until("a closed connection", || match stream.read(&mut rest) {
            Ok(n) => n == 0,
            Err(e) => e.kind() != std::io::ErrorKind::WouldBlock,
        });
    }

    fn greeting(&self) -> Greeting {
        Greeting {
            magic: MAGIC,
            purpose: TO_WORKER,
            flags: 0,
            from: 77,
            to: self.uid,
            secret: self.secret,
            client_id: 0,
        }
    }

    /// A connection of one that knows the secret.
    fn insider(&self, from: u64) -> TcpStream {
        let mut stream = self.connect();
        let greeting = Greeting {
            from,
            ..self.greeting()
        };
        stream.write_all(&greeting.encode()).unwrap();
        let mut answer = [0; Answer::SIZE];
        let mut have = 0;
        self.until("an answer", || {
            have += stream.read(&mut answer[have..]).unwrap_or(0);
            have == Answer::SIZE
        });
        assert_eq!(Answer::decode(&answer).unwrap().verdict, WELCOME);
        stream
    }

    /// The decent peer's message arrives.
    fn decent_goes_on(&self) {
        // SAFETY: live handles and buffers.
        unsafe {
            let param: ucp_request_param_t = std::mem::zeroed();
            let (mut got, sent) = ([0u8; 100_000], [5u8; 100_000]);
            let r = tag::ucp_tag_recv_nbx(
                self.victim,
                got.as_mut_ptr().cast(),
                got.len(),
                9,
                !0,
                &param,
            );
            let s =
                tag::ucp_tag_send_nbx(self.to_victim, sent.as_ptr().cast(), sent.len(), 9, &param);
            for req in [r, s] {
                if !req.is_null() {
                    self.until("a decent message", || {
                        request::ucp_request_check_status(req) != UCS_INPROGRESS
                    });
                    assert_eq!(request::ucp_request_check_status(req), UCS_OK);
                    request::ucp_request_free(req);
                }
            }
            assert!(got == sent);
        }
    }

    /// Connections and peers that the victim knows of.
    fn known(&self) -> (usize, usize) {
        // SAFETY: a live worker of this library; nothing else touches it.
        let worker = unsafe { &*self.victim.cast::<Worker>() };
        let rx = worker.rx.lock();
        let connections = rx.sockets.as_ref().unwrap().iter().count();
        (connections, worker.peers.lock().len())
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // SAFETY: created in `new`, used no more.
        unsafe {
            worker::ucp_worker_destroy(self.decent);
            worker::ucp_worker_destroy(self.victim);
            context::ucp_cleanup(self.context);
        }
    }
}

#[test]
fn who_does_not_know_the_secret_is_sent_away() {
    let scene = Scene::new();
    scene.decent_goes_on();
    let before = scene.known();
    let good = scene.greeting();
    let wrong = [
        Greeting {
            secret: good.secret ^ 1,
            ..good
        }
        .encode()
        .to_vec(),
        Greeting {
            to: good.to ^ 1,
            ..good
        }
        .encode()
        .to_vec(),
        Greeting {
            purpose: TO_LISTENER,
            ..good
        }
        .encode()
        .to_vec(),
        Greeting { purpose: 9, ..good }.encode().to_vec(),
        Greeting {
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
        let mut stranger = scene.connect();
        let _ = stranger.write(&bytes);
        scene.until_closed(&mut stranger);
        assert_eq!(scene.known(), before, "{:?}", &bytes[..bytes.len().min(48)]);
    }
    // One that goes in the middle of a word, or before the first.
    for n in [0, 1, 8, 47] {
        let mut stranger = scene.connect();
        stranger.write_all(&good.encode()[..n]).unwrap();
        drop(stranger);
        scene.decent_goes_on();
    }
    scene.until("all strangers gone", || scene.known() == before);
}

#[test]
fn who_says_nothing_does_not_stay() {
    let scene = Scene::new();
    scene.decent_goes_on();
    let before = scene.known();
    let mut silent: Vec<TcpStream> = (0..300).map(|_| scene.connect()).collect();
    // More than there is room for: the oldest have to go at once. The decent one is served meanwhile.
    for stranger in &mut silent[..20] {
        scene.until_closed(stranger);
    }
    assert!(scene.known().0 <= before.0 + 256);
    scene.decent_goes_on();
    // Half a greeting is silence, too.
    silent[299]
        .write_all(&scene.greeting().encode()[..40])
        .unwrap();
    let began = Instant::now();
    scene.until("all strangers gone", || scene.known() == before);
    assert!(began.elapsed() < Duration::from_secs(30));
    scene.decent_goes_on();
}

#[test]
fn an_insider_that_sends_garbage_loses_its_own_connection() {
    let scene = Scene::new();
    scene.decent_goes_on();
    let before = scene.known().0;
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
        let mut insider = scene.insider(1000 + i as u64);
        insider.write_all(bytes).unwrap();
        // What happens to be a frame waits for the rest of it.
        insider.shutdown(std::net::Shutdown::Write).unwrap();
        scene.until_closed(&mut insider);
    }
    scene.until("only decent ones", || scene.known().0 == before);
    scene.decent_goes_on();
}

#[test]
fn payload_for_nobody_goes_nowhere() {
    let scene = Scene::new();
    scene.decent_goes_on();
    let mut target = vec![7u8; 1 << 20];
    let at = target.as_mut_ptr() as u64;
    let len = 256 << 10;
    let mut insider = scene.insider(5);
    insider.set_nonblocking(false).unwrap();
    let port = scene.port;
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
        let _ = port;
        insider
    });
    scene.until("everything read", || writer.is_finished());
    let mut insider = writer.join().unwrap();
    insider.set_nonblocking(true).unwrap();
    // Each write is refused: two acknowledgements of 16 bytes.
    let mut answers = [0; 32];
    let mut have = 0;
    scene.until("acknowledgements", || {
        have += insider.read(&mut answers[have..]).unwrap_or(0);
        have == answers.len()
    });
    let ack = frame::decode(answers.first_chunk().unwrap()).unwrap();
    assert_eq!(
        (ack.kind, ack.aux as i8),
        (Kind::PutAck, UCS_ERR_INVALID_ADDR as i8)
    );
    assert!(target.iter().all(|&b| b == 7));
    scene.decent_goes_on();
}
