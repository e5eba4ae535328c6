//! Claims, doorbell and wake-up under loom: every order of the steps of senders and receiver.

use super::*;
use crate::sys::sync::Bytes;
use crate::tl::shm::ring::loom_tests::empty_start;
use loom::thread;
use std::sync::Arc;

/// The memory of a table, and a stand-in for the memory of ring 0.
#[repr(C)]
struct Memory {
    front: InboxHeader,
    entries: [Entry; RINGS],
    ring: Bytes<64>,
}

// SAFETY: all fields are atomics but `ring`, whose accesses loom checks.
unsafe impl Sync for Memory {}
// SAFETY: no field depends on a thread.
unsafe impl Send for Memory {}

impl Memory {
    /// Zeroed memory is no valid state of loom's atomics.
    fn new() -> Arc<Self> {
        let (u32_0, u64_0) = (|| AtomicU32::new(0), || AtomicU64::new(0));
        Arc::new(Memory {
            front: InboxHeader {
                magic: u64_0(),
                nonce: u64_0(),
                doorbell: u32_0(),
                wakes: u32_0(),
                armed: u32_0(),
                wake_fd: u32_0(),
                bell: u32_0(),
                ready: std::array::from_fn(|_| u64_0()),
                owners: std::array::from_fn(|_| u32_0()),
                rings: AtomicU32::new(RINGS as u32),
                wants_big_buf: u32_0(),
                rings_wanted: u32_0(),
                next: u32_0(),
                heap: HeapWords::default(),
                parts: std::array::from_fn(|_| u32_0()),
                epochs: OwnLine(u64_0()),
                is_watched: u32_0(),
                progressed_at: OwnLine(u64_0()),
            },
            entries: std::array::from_fn(|_| Entry {
                claim: RingClaim {
                    state: u32_0(),
                    pid: u32_0(),
                    pid_ns: u32_0(),
                    ipc_ns: u32_0(),
                    fd: u32_0(),
                    ino: u32_0(),
                    key: u64_0(),
                    uid: u64_0(),
                    shm_place: u32_0(),
                },
                start: empty_start(),
            }),
            ring: Bytes::new(),
        })
    }

    fn table(&self) -> InboxTable {
        assert_eq!(std::mem::offset_of!(Memory, entries), ENTRIES_AT);
        // SAFETY: `Memory` has the layout of a table, and the tests keep `self` as long as the table.
        unsafe { InboxTable::new(NonNull::from(self).cast()) }
    }
}

fn sender(uid: u64) -> RingOwner {
    let n = uid as u32;
    let id = MemfdId {
        pid: n + 1,
        fd: n + 2,
        ino: n + 3,
    };
    RingOwner {
        uid,
        inbox: InboxLocator {
            pid_ns: n + 5,
            ipc_ns: n + 6,
            id,
            key: uid + 4,
            shm_place: n + 7,
        },
    }
}

fn explore(test: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(test);
}

/// Two senders start their search at the same ring. The receiver looks only after the doorbell was incremented.
#[test]
fn loom_every_announced_ring_is_accepted_once() {
    explore(|| {
        let memory = Memory::new();
        let senders = [64, 128].map(|uid| {
            let memory = memory.clone();
            thread::spawn(move || {
                let index = claim(&memory, uid).expect("a ring for each");
                memory.table().announce(index);
                (index, uid)
            })
        });
        let (mut seen, mut accepted) = (0, Vec::new());
        while accepted.len() < 2 {
            if memory.front.doorbell.load(Ordering::Acquire) == seen {
                thread::yield_now();
                continue;
            }
            let (now, new) = memory.table().accept(RINGS);
            seen = now;
            accepted.extend(new);
        }
        for (index, uid) in senders.map(|sender| sender.join().unwrap()) {
            assert!(
                accepted.contains(&(index, sender(uid))),
                "{uid} in {index}: {accepted:?}"
            );
        }
        assert_ne!(accepted[0].0, accepted[1].0);
        assert_eq!(memory.table().accept(RINGS), (2, Vec::new()));
    });
}

/// The receiver arms and looks once more; of two senders one wakes it unless it saw a message.
#[test]
fn loom_a_sleeper_is_woken_once() {
    explore(|| {
        let memory = Memory::new();
        let senders = [0, 1].map(|index| {
            let memory = memory.clone();
            thread::spawn(move || {
                memory.table().announce(index);
                memory.front.must_wake()
            })
        });
        memory.front.arm();
        let sleeps = memory.front.doorbell.load(Ordering::Acquire) == 0;
        let wakes = senders.map(|sender| sender.join().unwrap());
        assert!(wakes != [true, true], "woken twice");
        assert!(!sleeps || wakes.contains(&true), "slept over a message");
    });
}

fn claim(memory: &Memory, uid: u64) -> Option<usize> {
    let table = memory.table();
    table.claim(&sender(uid), table.begin_search())
}

/// The receiver clears a ring before it frees it; the next claimant writes only then.
#[test]
fn loom_a_ring_is_clean_when_it_is_claimed_again() {
    explore(|| {
        let memory = Memory::new();
        // The table is full: only ring 0 will become free.
        let first = [0, 1].map(|uid| claim(&memory, uid));
        assert_eq!(first, [Some(0), Some(1)]);
        let second = {
            let memory = memory.clone();
            thread::spawn(move || {
                let index = loop {
                    match claim(&memory, 64) {
                        Some(index) => break index,
                        None => thread::yield_now(),
                    }
                };
                // SAFETY: the write is inside of the bytes; loom checks that the receiver has finished with them.
                unsafe { memory.ring.to_write(0, 1).write(1) };
                memory.table().announce(index);
                index
            })
        };
        // SAFETY: the write is inside of the bytes; loom checks that the sender has finished with them.
        unsafe { memory.ring.to_write(0, 64).write_bytes(0, 64) };
        memory.table().unclaim(0);
        assert_eq!(second.join().unwrap(), 0);
        assert_eq!(memory.table().accept(RINGS), (1, vec![(0, sender(64))]));
    });
}
