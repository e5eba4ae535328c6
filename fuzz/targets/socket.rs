//! A connection to a worker: hellos of unknown peers, and frames of peers that have the secret, in pieces of any
//! length.
#![no_main]

use libfuzzer_sys::fuzz_target;
use socket2::{Domain, Socket, Type};
use std::io::Read;
use ucp::ctypes::ucp_context_h;
use ucp::tl::IfaceKind;
use ucp::tl::tcp::conn::TcpConnPhase;
use ucp::wire::frame;
use ucp::wire::tcp_hello::{TcpHello, MAGIC, TO_WORKER};
use ucp_fuzz::program::Program;
use ucp_fuzz::script::{self, Seen, Step};
use ucp_fuzz::support::scene::{Scene, new_context};

/// The peer that the attacker claims to be.
const UID: u64 = 7;

/// The attacker's end of a connection; received bytes are dropped except for numbers that it can use.
struct Attacker {
    socket: Socket,
    received: Vec<u8>,
}

impl Attacker {
    /// Connects to the target. A pair of local sockets: the worker does not check the kind of its sockets.
    fn new(scene: &Scene) -> Attacker {
        let (ours, theirs) =
            Socket::pair(Domain::UNIX, Type::STREAM, None).expect("two descriptors");
        for socket in [&ours, &theirs] {
            socket.set_nonblocking(true).expect("always possible");
        }
        let worker = scene.worker();
        let mut rx = worker.rx.lock();
        let sockets = rx.tl.tcp.as_deref_mut().expect("a worker with TCP");
        let half_open = TcpConnPhase::HalfOpen { until: u64::MAX };
        sockets
            .add(theirs, half_open, None, false)
            .expect("room for a connection");
        drop(rx);
        worker.progress_flags.raise(IfaceKind::Tcp);
        Attacker {
            socket: ours,
            received: Vec::new(),
        }
    }

    /// Sends as many bytes as there is room for; the rest is lost, and later bytes arrive at the wrong offset.
    fn send(&mut self, bytes: &[u8]) {
        let _ = self.socket.send_with_flags(bytes, libc::MSG_NOSIGNAL);
    }

    /// The bytes received since the last call.
    fn receive(&mut self, seen: &mut Seen) {
        let mut part = [0; 4096];
        while let Ok(n @ 1..) = self.socket.read(&mut part) {
            self.received.extend_from_slice(&part[..n]);
        }
        let words = self.received.chunks_exact(8).rev().take(8);
        for word in words {
            seen.note(
                u64::from_le_bytes(*word.first_chunk().expect("8 bytes")),
                &[],
            );
        }
        self.received.clear();
    }

    /// Whether the target has closed its end.
    fn is_closed(&mut self) -> bool {
        let mut part = [0; 4096];
        loop {
            match self.socket.read(&mut part) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(e) => return e.kind() != std::io::ErrorKind::WouldBlock,
            }
        }
    }
}

/// Connections of the target.
fn connections(scene: &Scene) -> usize {
    let rx = scene.worker().rx.lock();
    rx.tl.tcp.as_ref().map_or(0, |s| s.iter().count())
}

thread_local! {
    /// The fuzzer has one thread.
    static CONTEXT: ucp_context_h = new_context(&[(c"TLS", c"tcp"), (c"NET_DEVICES", c"lo")]);
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&how, bytes)) = bytes.split_first() else {
        return;
    };
    let scene = Scene::within(CONTEXT.with(|c| *c));
    let tcp = scene.address.tcp.as_ref().expect("an address for TCP");
    let mut attacker = Attacker::new(&scene);
    if how & 1 == 0 {
        // An unknown peer: only a valid hello is accepted, and that needs the secret.
        attacker.send(bytes);
        scene.settle();
        let magic = MAGIC.to_le_bytes();
        let n = bytes.len().min(8);
        let waits = bytes.len() < TcpHello::SIZE && bytes[..n] == magic[..n];
        assert_eq!(attacker.is_closed(), !waits);
        drop(attacker);
        scene.settle();
        assert_eq!(connections(&scene), 0);
        return;
    }
    let hello = TcpHello {
        magic: MAGIC,
        purpose: TO_WORKER,
        losses: 0,
        from: UID,
        to: scene.address.uid,
        secret: tcp.secret,
        client_id: 0,
    };
    attacker.send(&hello.encode());
    scene.settle();
    let mut address = scene.address.clone();
    address.uid = UID;
    // A peer that is to be connected to again does not exist: nothing waits for it.
    if let Some(tcp) = &mut address.tcp {
        tcp.port = 1;
    }
    let mut program = Program::new(&scene, &address);
    let mut seen = Seen::default();
    for step in script::steps(bytes) {
        match step {
            Step::Send(message) => {
                let (imm, record) = script::message(&message, &seen, program.region(), 0);
                let header = frame::encode(message.kind, message.aux, imm, record.len());
                let whole = [&header[..], &record].concat();
                // In two pieces, cut anywhere.
                let (first, second) = whole.split_at(usize::from(message.aux) % whole.len());
                attacker.send(first);
                if message.aux % 3 == 0 {
                    scene.progress();
                }
                attacker.send(second);
            }
            Step::Act { what, len } => program.act(what, len),
            Step::Poke { .. } => {}
            Step::Progress => {
                scene.progress();
                attacker.receive(&mut seen);
            }
        }
    }
    scene.settle();
    drop(attacker);
    scene.settle();
    program.end();
    assert_eq!(connections(&scene), 0);
    scene.decent_goes_on(100);
});
