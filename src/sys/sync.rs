//! Shared state of lock-free code: atomics, the bytes that they guard, and once-cells; replaced by others under loom
//! and ThreadSanitizer.

pub mod dma_mem;

#[cfg(not(any(loom, tsan)))]
pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

#[cfg(tsan)]
mod tsan;
#[cfg(tsan)]
pub use std::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(tsan)]
pub use tsan::{AtomicU32, AtomicU64};

// Those of the standard library are compiled without instrumentation: ThreadSanitizer would see the write of the value,
// but not its publication.
#[cfg(tsan)]
pub use once_cell::sync::OnceCell as OnceLock;
#[cfg(not(tsan))]
pub use std::sync::OnceLock;

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

/// Lets other threads run, at least for so many microseconds if it is not 0.
#[cfg(not(loom))]
pub fn give_way(us: u32) {
    if us == 0 {
        std::thread::yield_now();
    } else {
        std::thread::sleep(std::time::Duration::from_micros(us.into()));
    }
}

/// Informs loom that this thread waits for another one.
#[cfg(loom)]
pub fn give_way(_us: u32) {
    loom::thread::yield_now();
}

/// Bytes that one side writes and another reads without atomics, in memory that begins as zero. The owner's protocol
/// keeps the accesses apart; loom gets every access and finds those that it does not.
#[repr(C)]
pub struct Bytes<const N: usize> {
    bytes: std::cell::UnsafeCell<[u8; N]>,
    #[cfg(loom)]
    blocks: Vec<loom::cell::UnsafeCell<()>>,
}

#[cfg(not(loom))]
impl<const N: usize> Bytes<N> {
    /// Pointer to `_len` bytes at offset `at`, about to be written. `at` is at most `N`.
    #[inline(always)]
    pub fn to_write(&self, at: usize, _len: usize) -> *mut u8 {
        self.bytes.get().cast::<u8>().wrapping_add(at)
    }

    /// Pointer to `_len` bytes at offset `at`, about to be read. `at` is at most `N`.
    #[inline(always)]
    pub fn to_read(&self, at: usize, _len: usize) -> *const u8 {
        self.bytes.get().cast::<u8>().wrapping_add(at)
    }
}

#[cfg(loom)]
impl<const N: usize> Bytes<N> {
    /// Loom checks cells, not ranges: one for so many bytes.
    const BLOCK: usize = 64;

    pub fn new() -> Self {
        let blocks = (0..N.div_ceil(Self::BLOCK))
            .map(|_| loom::cell::UnsafeCell::new(()))
            .collect();
        Self {
            bytes: std::cell::UnsafeCell::new([0; N]),
            blocks,
        }
    }

    pub fn to_write(&self, at: usize, len: usize) -> *mut u8 {
        self.blocks_of(at, len)
            .for_each(|block| block.with_mut(|_| ()));
        self.bytes.get().cast::<u8>().wrapping_add(at)
    }

    pub fn to_read(&self, at: usize, len: usize) -> *const u8 {
        self.blocks_of(at, len).for_each(|block| block.with(|_| ()));
        self.bytes.get().cast::<u8>().wrapping_add(at)
    }

    fn blocks_of(
        &self,
        at: usize,
        len: usize,
    ) -> impl Iterator<Item = &loom::cell::UnsafeCell<()>> {
        self.blocks[at / Self::BLOCK..(at + len).div_ceil(Self::BLOCK)].iter()
    }
}
