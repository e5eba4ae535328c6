//! Whole messages through a ring into a worker: an attacker sends what it likes, and names what the worker tells it,
//! while the worker's program receives, sends and accesses memory. Everything ends, and nobody else notices.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use ucp::ctypes::ucp_context_h;
use ucp::tl::shm::outbox::Outbox;
use ucp_fuzz::program::Program;
use ucp_fuzz::script::{self, Heard, Step};
use ucp_fuzz::support::impostor::Impostor;
use ucp_fuzz::support::scene::{Scene, new_context};

/// Whom the attacker claims to be.
const UID: u64 = 7;
/// A kind that no message has.
const NONSENSE: u8 = 0xFF;

thread_local! {
    /// The fuzzer has one thread.
    static IMPOSTOR: RefCell<Impostor> = RefCell::new(Impostor::new());
    /// With and without the right to copy from process to process, with messages that are and are not long.
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

fn attack(impostor: &mut Impostor, bytes: &[u8]) {
    let Some((&how, bytes)) = bytes.split_first() else {
        return;
    };
    let scene = Scene::within(CONTEXTS.with(|all| all[usize::from(how) % 4]));
    let address = impostor.address(UID, scene.address.shm.map_or(0, |shm| shm.host));
    let mut outbox = impostor.outbox(&scene.address, UID);
    let mut program = Program::new(&scene, &address);
    let mut heard = Heard::default();
    for step in script::steps(bytes) {
        match step {
            Step::Send(message) => {
                let (imm, record) =
                    script::message(&message, &heard, program.region(), impostor.memory());
                send(&mut outbox, message.kind, message.aux, imm, &record);
            }
            Step::Act { what, len } => program.act(what, len),
            Step::Poke { at, word } => impostor.poke(at, word),
            Step::Progress => {
                scene.progress();
                impostor.hear(|m, record| heard.note(m.imm, record));
            }
        }
    }
    scene.settle();
    impostor.hear(|_, _| {});
    // Whatever went before, one that breaks the rules is talked to no more.
    send(&mut outbox, NONSENSE, 0, 0, &[]);
    scene.settle();
    impostor.hear(|_, _| {});
    program.end();
    scene.decent_goes_on(8);
    scene.decent_goes_on(100_000);
    drop((outbox, scene));
    impostor.forget();
}

fuzz_target!(|bytes: &[u8]| IMPOSTOR.with_borrow_mut(|impostor| attack(impostor, bytes)));
