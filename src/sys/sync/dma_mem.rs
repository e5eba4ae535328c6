//! Memory that adapters read and write, by address. In loom tests a test registers it, and every access is checked; the
//! library itself accesses plain memory at no cost.

#[cfg(not(loom))]
use super::Ordering;
use super::{AtomicU32, AtomicU64};

/// The word at this address.
///
/// # Safety
/// Aligned, valid for as long as the reference is used, and accessed only as an atomic.
#[cfg(not(loom))]
#[inline(always)]
pub unsafe fn word_at<'a>(ptr: *mut u8) -> &'a AtomicU64 {
    // SAFETY: the caller's promise.
    unsafe { &*ptr.cast::<AtomicU64>() }
}

/// Announces a read of so many bytes to loom.
#[cfg(not(loom))]
#[inline(always)]
pub fn reads(_ptr: *const u8, _len: usize) {}

/// Announces a write of so many bytes to loom.
#[cfg(not(loom))]
#[inline(always)]
pub fn writes(_ptr: *const u8, _len: usize) {}

/// The value of a word that no thread changes concurrently, which the caller's protocol ensures: loom checks that.
#[cfg(not(loom))]
#[inline(always)]
pub fn settled(word: &AtomicU32) -> u32 {
    // Relaxed: the caller's protocol orders the accesses.
    word.load(Ordering::Relaxed)
}

#[cfg(loom)]
pub use watched::{fresh, is_word, reads, settled, watch, word_at, writes};

#[cfg(loom)]
mod watched {
    use super::{AtomicU32, AtomicU64};
    use loom::cell::UnsafeCell;
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    /// Bytes that loom treats as one: frames begin at multiples of it.
    const BLOCK: usize = 32;

    /// The memory's model in one run. All threads of loom are one thread of the system.
    #[derive(Default)]
    struct Memory {
        // Boxed: their addresses are stable.
        words: BTreeMap<usize, Box<AtomicU64>>,
        blocks: BTreeMap<usize, Box<UnsafeCell<()>>>,
    }

    thread_local! {
        static MEMORY: RefCell<Memory> = RefCell::default();
    }

    /// Begins a run: nothing is checked.
    pub fn fresh() {
        MEMORY.take();
    }

    /// Registers these bytes, which begin at a multiple of [`BLOCK`], before there are other threads.
    pub fn watch(ptr: *const u8, len: usize) {
        assert_eq!(ptr as usize % BLOCK, 0);
        for block in (ptr as usize / BLOCK)..(ptr as usize + len).div_ceil(BLOCK) {
            let cell = Box::new(UnsafeCell::new(()));
            MEMORY.with_borrow_mut(|memory| memory.blocks.insert(block, cell));
        }
    }

    /// Whether [`word_at`] has been called with this address.
    pub fn is_word(ptr: *const u8) -> bool {
        MEMORY.with_borrow(|memory| memory.words.contains_key(&(ptr as usize)))
    }

    /// # Safety
    /// Those of the library's `word_at`. The first call is before there are other threads.
    pub unsafe fn word_at<'a>(ptr: *mut u8) -> &'a AtomicU64 {
        if !is_word(ptr) {
            // SAFETY: the caller's memory.
            let word = Box::new(AtomicU64::new(unsafe { ptr.cast::<u64>().read() }));
            MEMORY.with_borrow_mut(|memory| memory.words.insert(ptr as usize, word));
        }
        // SAFETY: boxed until the next run.
        MEMORY
            .with_borrow(|memory| unsafe { &*std::ptr::from_ref(&*memory.words[&(ptr as usize)]) })
    }

    fn blocks(ptr: *const u8, len: usize) -> Vec<&'static UnsafeCell<()>> {
        let all = (ptr as usize / BLOCK)..(ptr as usize + len).div_ceil(BLOCK);
        MEMORY.with_borrow(|memory| {
            let watched = memory.blocks.range(all).map(|(_, block)| &**block);
            // SAFETY: boxed until the next run.
            watched
                .map(|block| unsafe { &*std::ptr::from_ref(block) })
                .collect()
        })
    }

    pub fn reads(ptr: *const u8, len: usize) {
        blocks(ptr, len).iter().for_each(|block| block.with(|_| ()));
    }

    pub fn writes(ptr: *const u8, len: usize) {
        blocks(ptr, len)
            .iter()
            .for_each(|block| block.with_mut(|_| ()));
    }

    pub fn settled(word: &AtomicU32) -> u32 {
        // SAFETY: loom panics if another thread changes it.
        unsafe { word.unsync_load() }
    }
}
