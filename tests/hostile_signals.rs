//! Forged signals: no entry is added, no flag is changed, and decent peers are not affected.

mod support;

use std::ptr;
use support::raw_peer::RawPeer;
use support::scene::Scene;
use ucp::abi::{cq, memory};
use ucp::ctypes::*;
use ucp::tl::shm::outbox::Outbox;
use ucp::wire::header::{Kind, NoteHdr, SignalHdr};

/// Registered memory of the victim, and a queue.
struct Prey {
    scene: Scene,
    region: Box<[u64; 512]>,
    memh: ucp_mem_h,
    cq: ucpx_cq_h,
}

impl Prey {
    fn new() -> Prey {
        let scene = Scene::new(&[]);
        let mut region = Box::new([7u64; 512]);
        let (mut memh, mut cq) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: live handles, memory that outlives the mapping, a zeroed structure whose mask names what is set.
        unsafe {
            let mut params: ucp_mem_map_params_t = std::mem::zeroed();
            params.field_mask =
                UCP_MEM_MAP_PARAM_FIELD_ADDRESS as u64 | UCP_MEM_MAP_PARAM_FIELD_LENGTH as u64;
            (params.address, params.length) = (region.as_mut_ptr().cast(), size_of_val(&*region));
            let mapped = memory::ucp_mem_map(scene.context, &params, &mut memh);
            let created = cq::ucpx_cq_create(scene.victim, ptr::null(), &mut cq);
            assert_eq!((mapped, created), (UCS_OK, UCS_OK));
        }
        Prey {
            scene,
            region,
            memh,
            cq,
        }
    }

    fn addr(&self, offset: u64) -> u64 {
        self.region.as_ptr() as u64 + offset
    }

    /// Data outside of the region.
    fn elsewhere(&self) -> [(u64, u64); 6] {
        [
            (self.addr(0) - 8, 16),
            (self.addr(0), 4097),
            (self.addr(4095), 2),
            (self.addr(8), u64::MAX),
            (u64::MAX, 1),
            (0, 1),
        ]
    }

    /// A signal of the attacker, of which only the first bytes are sent.
    fn attack(&self, outbox: &mut Outbox, h: SignalHdr, len: usize) {
        send(outbox, Kind::Signal, &h.encode()[..len]);
    }

    /// The victim's reply to a whole one, and whether it adds an entry.
    fn answer(&self, attacker: &mut Attacker, h: SignalHdr) -> (i8, bool) {
        self.attack(&mut attacker.outbox, h, SignalHdr::SIZE);
        let mut answer = None;
        self.scene.until("an answer", || {
            attacker.raw_peer.receive(|m, _| {
                if m.kind == Kind::PutAck as u8 {
                    answer = Some(m.aux as i8);
                }
            });
            answer.is_some()
        });
        (answer.unwrap(), self.next().is_some())
    }

    fn next(&self) -> Option<ucpx_cq_entry_t> {
        let mut entry = std::mem::MaybeUninit::uninit();
        // SAFETY: a live queue, room for one entry.
        unsafe {
            let n = cq::ucpx_cq_poll(self.cq, entry.as_mut_ptr(), 1);
            (n == 1).then(|| entry.assume_init())
        }
    }
}

fn send(outbox: &mut Outbox, kind: Kind, bytes: &[u8]) {
    // SAFETY: the record has room for them.
    let fill = |dst: *mut u8| unsafe { dst.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    let sent = outbox.send(kind as u8, 0, 9, bytes.len(), fill);
    assert!(matches!(sent, Ok(true)));
}

struct Attacker {
    raw_peer: RawPeer,
    outbox: Box<Outbox>,
}

impl Attacker {
    fn new(prey: &Prey) -> Attacker {
        let raw_peer = RawPeer::new();
        let outbox = Box::new(raw_peer.outbox(&prey.scene.address, 1));
        Attacker { raw_peer, outbox }
    }
}

impl Drop for Prey {
    fn drop(&mut self) {
        // SAFETY: of this scene, which lives.
        unsafe {
            cq::ucpx_cq_destroy(self.cq);
            let unmapped = memory::ucp_mem_unmap(self.scene.context, self.memh);
            assert_eq!(unmapped, UCS_OK);
        }
    }
}

const NOTIFY: SignalHdr = SignalHdr {
    addr: 0,
    len: 0,
    flag: 0,
    op: SignalHdr::NOTIFY,
    cq: 0,
};

#[test]
fn valid_ones_are_signaled() {
    let prey = Prey::new();
    let mut attacker = Attacker::new(&prey);
    let behind = SignalHdr {
        addr: prey.addr(16),
        len: 4000,
        ..NOTIFY
    };
    for h in [NOTIFY, behind] {
        assert_eq!(prey.answer(&mut attacker, h), (UCS_OK as i8, true));
    }
}

#[test]
fn short_or_unknown_signals_end_the_ring() {
    let prey = Prey::new();
    let mut raw_peer = RawPeer::new();
    let short = [0, 1, 8, SignalHdr::SIZE - 1].map(|len| (SignalHdr::NOTIFY, len));
    let unknown = [SignalHdr::ADD + 1, 0xFF].map(|op| (op, SignalHdr::SIZE));
    for (uid, (op, len)) in (1..).zip([&short[..], &unknown[..]].concat()) {
        let mut outbox = raw_peer.outbox(&prey.scene.address, uid);
        prey.attack(&mut outbox, SignalHdr { op, ..NOTIFY }, len);
        prey.scene.settle();
        raw_peer.receive(|m, _| assert_ne!(m.kind, Kind::PutAck as u8));
        assert!(prey.next().is_none());
    }
    prey.scene.decent_goes_on(100);
}

#[test]
fn data_elsewhere_has_no_signal() {
    let prey = Prey::new();
    let mut attacker = Attacker::new(&prey);
    for (addr, len) in prey.elsewhere() {
        for op in [SignalHdr::NOTIFY, SignalHdr::SET, SignalHdr::ADD] {
            let h = SignalHdr {
                addr,
                len,
                op,
                flag: prey.addr(64),
                ..NOTIFY
            };
            let answer = prey.answer(&mut attacker, h);
            assert_eq!(answer, (UCS_ERR_INVALID_ADDR as i8, false));
        }
    }
    assert!(prey.region.iter().all(|&word| word == 7));
    prey.scene.decent_goes_on(100);
}

#[test]
fn signals_of_data_elsewhere_add_no_entry() {
    let prey = Prey::new();
    let mut attacker = Attacker::new(&prey);
    let decent = (prey.addr(16), 4000);
    for (addr, len) in prey.elsewhere().into_iter().chain([decent]) {
        let note = NoteHdr { addr, len };
        send(&mut attacker.outbox, Kind::Note, &note.encode());
    }
    let mut signaled = None;
    prey.scene.until("an entry", || {
        signaled = prey.next();
        signaled.is_some()
    });
    let entry = signaled.unwrap();
    assert_eq!(
        (entry.value, entry.address, entry.length),
        (9, decent.0, 4000)
    );
    assert!(prey.next().is_none());
    // Nor is a truncated signal a valid one.
    send(&mut attacker.outbox, Kind::Note, &[0; NoteHdr::SIZE - 1]);
    prey.scene.settle();
    assert!(prey.next().is_none());
    prey.scene.decent_goes_on(100);
}

#[test]
fn flags_elsewhere_are_left_alone() {
    let prey = Prey::new();
    let mut attacker = Attacker::new(&prey);
    for flag in [prey.addr(4), prey.addr(4096), prey.addr(0) - 8, 0, u64::MAX] {
        for op in [SignalHdr::SET, SignalHdr::ADD] {
            let h = SignalHdr { op, flag, ..NOTIFY };
            let answer = prey.answer(&mut attacker, h);
            assert_eq!(answer, (UCS_ERR_INVALID_ADDR as i8, false));
        }
    }
    assert!(prey.region.iter().all(|&word| word == 7));
    let h = SignalHdr {
        op: SignalHdr::ADD,
        flag: prey.addr(4088),
        ..NOTIFY
    };
    assert_eq!(prey.answer(&mut attacker, h), (UCS_OK as i8, false));
    // SAFETY: memory of the test's own, which the library has changed.
    let changed = unsafe { prey.region.as_ptr().add(511).read_volatile() };
    assert_eq!(changed, 7 + 9);
}
