//! A ring whose other end is hostile: memory with any contents, which changes between two loads.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64};
use ucp::tl::shm::big_buf::{BIG_BUF_BYTES, MAX_BIG_BUFS, BigBufs};
use ucp::tl::shm::order::Epoch;
use ucp::tl::shm::ring::{Consumer, MAX_RECORD, Producer, RingMem, START_SLOTS};

/// Memory of a ring, and the writes of a hostile process to it.
struct Hostile(NonNull<RingMem>);

const LAYOUT: Layout = Layout::new::<RingMem>();

impl Hostile {
    fn new() -> Hostile {
        // SAFETY: the layout is not empty.
        let mem = unsafe { alloc_zeroed(LAYOUT) };
        Hostile(NonNull::new(mem.cast()).expect("memory for a ring"))
    }

    /// Writes 8 bytes at any word.
    fn write(&self, at: u16, word: u64) {
        let words = LAYOUT.size() / 8;
        // SAFETY: inside of the memory, aligned; both ends run on this thread.
        unsafe {
            self.0
                .cast::<u64>()
                .add(usize::from(at) * 8 % words)
                .write(word)
        };
    }
}

/// Buffers of which the ring has two: their contents do not matter, only that no access leaves them.
static AREAS_OF_RING: LazyLock<usize> = LazyLock::new(|| {
    let layout = Layout::from_size_align(MAX_BIG_BUFS * BIG_BUF_BYTES, 4096).expect("a layout");
    // SAFETY: the layout is not empty. Never freed.
    unsafe { alloc_zeroed(layout) as usize }
});

fn big_bufs(owners: &[AtomicU32; MAX_BIG_BUFS]) -> BigBufs {
    let memory = NonNull::new(*AREAS_OF_RING as *mut u8).expect("memory for areas");
    // SAFETY: both outlive the ends of the ring.
    unsafe { BigBufs::new(NonNull::from(owners).cast(), memory, 0) }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`.
        unsafe { dealloc(self.0.as_ptr().cast(), LAYOUT) };
    }
}

fuzz_target!(|steps: &[u8]| {
    let (there, here) = (Hostile::new(), Hostile::new());
    let epochs = AtomicU64::new(u64::MAX - 3);
    // SAFETY: zeroed memory that outlives both ends; the address sanitizer reports accesses outside.
    let (consumer, producer) = unsafe {
        let epoch = Epoch::new(NonNull::from(&epochs), true);
        (Consumer::new(there.0), Producer::new(here.0, epoch))
    };
    let owners = [1, 2, 0, 1, 9, 0, 0, u32::MAX].map(AtomicU32::new);
    // SAFETY: zeroed memory that outlives both ends; the address sanitizer reports accesses outside.
    let (mut consumer, mut producer) = unsafe {
        (
            consumer.with_big_bufs(Some(big_bufs(&owners))),
            producer.with_big_bufs(Some(big_bufs(&owners))),
        )
    };
    for step in steps.chunks_exact(12) {
        let at = u16::from_le_bytes([step[2], step[3]]);
        let word = step[4..]
            .first_chunk()
            .map_or(0, |word| u64::from_le_bytes(*word));
        match step[0] % 8 {
            0 => there.write(at, word),
            1 => here.write(at, word),
            // A word that the consumer takes for a message: the lap is right.
            2 => {
                let slot = at % (START_SLOTS as u16 + 128);
                match slot.checked_sub(START_SLOTS as u16) {
                    None => there.write(2 + 2 * slot, word & !0xFFFF | 1),
                    Some(slot) => there.write(48 + 2 * slot, word & !0xFFFF | 2),
                }
            }
            3 => {
                let most = u32::from(step[1]);
                std::hint::black_box((
                    consumer.visible(most),
                    consumer.same_epoch(most),
                    consumer.epoch(),
                ));
            }
            4..=5 => match consumer.peek() {
                Ok(Some(m)) => {
                    assert!(m.len <= MAX_RECORD);
                    // SAFETY: the consumer has checked the length that the message has for its record.
                    let record = unsafe { std::slice::from_raw_parts(m.record, m.len) };
                    std::hint::black_box(record.iter().fold(0u8, |sum, b| sum.wrapping_add(*b)));
                    consumer.advance();
                }
                Ok(None) => consumer.release(),
                Err(_) => return,
            },
            _ => {
                let len = word as usize % (MAX_RECORD + 1);
                // SAFETY: `dst` has room for `len` bytes, or the producer is wrong.
                let fill = |dst: *mut u8| unsafe { dst.write_bytes(step[1], len) };
                if producer.send(step[1], 0, word, len, fill).is_err() {
                    return;
                }
            }
        }
    }
});
