//! Whole messages through a ring into a worker: an attacker sends any message, and uses numbers that the worker has
//! sent, while the worker's program receives, sends and accesses memory. Every request ends, and other peers are not
//! affected.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use ucp::ctypes::ucp_context_h;
use ucp::tl::shm::outbox::Outbox;
use ucp_fuzz::program::Program;
use ucp_fuzz::script::{self, Seen, Step};
use ucp_fuzz::support::raw_peer::RawPeer;
use ucp_fuzz::support::scene::{Scene, new_context};

/// The peer that the attacker claims to be.
const UID: u64 = 7;
/// A kind that no message has.
const NONSENSE: u8 = 0xFF;

thread_local! {
    /// The fuzzer has one thread.
    static RAW_PEER: RefCell<RawPeer> = RefCell::new(RawPeer::new());
    /// With and without the right to use CMA, with messages that are and are not long.
    static CONTEXTS: [ucp_context_h; 4] = std::array::from_fn(|how| {
        let tls = [c"self,sm", c"self,posix,sysv"][how & 1];
        let thresh = [c"auto", c"64"][how >> 1];
        new_context(&[(c"TLS", tls), (c"RNDV_THRESH", thresh)])
    });
}

fn send(outbox: &mut Outbox, kind: u8, aux: u8, imm: u64, record: &[u8]) -> bool {
    let len = record.len().min(ucp::tl::shm::ring::MAX_RECORD);
    // SAFETY: the ring has room for `len` bytes when it calls this.
    let fill = |dst: *mut u8| unsafe { dst.copy_from_nonoverlapping(record.as_ptr(), len) };
    outbox.send(kind, aux, imm, len, fill) == Ok(true)
}

fn attack(raw_peer: &mut RawPeer, bytes: &[u8]) {
    let Some((&how, bytes)) = bytes.split_first() else {
        return;
    };
    let scene = Scene::within(CONTEXTS.with(|all| all[usize::from(how) % 4]));
    let address = raw_peer.address(UID, scene.address.shm.map_or(0, |shm| shm.host));
    let mut outbox = raw_peer.outbox(&scene.address, UID);
    let mut program = Program::new(&scene, &address);
    let mut seen = Seen::default();
    for step in script::steps(bytes) {
        match step {
            Step::Send(message) => {
                let (imm, record) =
                    script::message(&message, &seen, program.region(), raw_peer.memory());
                send(&mut outbox, message.kind, message.aux, imm, &record);
            }
            Step::Act { what, len } => program.act(what, len),
            Step::Poke { at, word } => raw_peer.poke(at, word),
            Step::Progress => {
                scene.progress();
                raw_peer.receive(|m, record| seen.note(m.imm, record));
            }
        }
    }
    scene.settle();
    raw_peer.receive(|_, _| {});
    // A peer that breaks the rules is disconnected, whatever it sent before.
    send(&mut outbox, NONSENSE, 0, 0, &[]);
    scene.settle();
    raw_peer.receive(|_, _| {});
    program.end();
    scene.decent_goes_on(8);
    scene.decent_goes_on(100_000);
    drop((outbox, scene));
    raw_peer.forget();
}

fuzz_target!(|bytes: &[u8]| RAW_PEER.with_borrow_mut(|raw_peer| attack(raw_peer, bytes)));
