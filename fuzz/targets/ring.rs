//! A ring whose other end is hostile: memory that holds anything, and changes between two looks.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use ucp::tl::shm::ring::{Consumer, MAX_RECORD, Producer, RingMem};

/// Memory of a ring, and what a hostile process does to it.
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

impl Drop for Hostile {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`.
        unsafe { dealloc(self.0.as_ptr().cast(), LAYOUT) };
    }
}

fuzz_target!(|steps: &[u8]| {
    let (there, here) = (Hostile::new(), Hostile::new());
    // SAFETY: zeroed memory that outlives both ends; the address sanitizer sees what leaves it.
    let (mut consumer, mut producer) = unsafe { (Consumer::new(there.0), Producer::new(here.0)) };
    for step in steps.chunks_exact(12) {
        let at = u16::from_le_bytes([step[2], step[3]]);
        let word = step[4..]
            .first_chunk()
            .map_or(0, |word| u64::from_le_bytes(*word));
        match step[0] % 8 {
            0 => there.write(at, word),
            1 => here.write(at, word),
            // A word that the consumer takes for a message: the lap is right.
            2 => there.write(64 + 2 * (at % 128), word & !0xFFFF | 1),
            3..=5 => match consumer.peek() {
                Ok(Some(m)) => {
                    assert!(m.len <= MAX_RECORD);
                    // SAFETY: what a message says of its record has to be so.
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
