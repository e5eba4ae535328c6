//! Memory that adapters read and write, by its addresses. Loom is told which of it a test watches, and of every access
//! there; the library itself has plain memory and pays nothing.

#[cfg(not(loom))]
use super::Ordering;
use super::{AtomicU32, AtomicU64};

/// The word at this address.
///
/// # Safety
/// Aligned, there for as long as the answer is used, and taken for an atomic by all threads.
#[cfg(not(loom))]
#[inline(always)]
pub unsafe fn word_at<'a>(ptr: *mut u8) -> &'a AtomicU64 {
    // SAFETY: the caller's promise.
    unsafe { &*ptr.cast::<AtomicU64>() }
}

/// So many bytes are about to be read.
#[cfg(not(loom))]
#[inline(always)]
pub fn reads(_ptr: *const u8, _len: usize) {}

/// So many bytes are about to be written.
#[cfg(not(loom))]
#[inline(always)]
pub fn writes(_ptr: *const u8, _len: usize) {}

/// The value of a word that no thread changes meanwhile, as something else sees to: loom checks that.
#[cfg(not(loom))]
#[inline(always)]
pub fn settled(word: &AtomicU32) -> u32 {
    // Relaxed: what sees to that orders it, too.
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

    /// Bytes that loom takes for one: frames begin at multiples of it.
    const BLOCK: usize = 32;

    /// What stands for the memory in one run of a model. Loom's threads are all on one of the system's.
    #[derive(Default)]
    struct Memory {
        // In boxes: they stay in their places.
        words: BTreeMap<usize, Box<AtomicU64>>,
        blocks: BTreeMap<usize, Box<UnsafeCell<()>>>,
    }

    thread_local! {
        static MEMORY: RefCell<Memory> = RefCell::default();
    }

    /// A run begins: nothing is watched.
    pub fn fresh() {
        MEMORY.take();
    }

    /// These bytes, which begin at a multiple of [`BLOCK`], are watched from now on; before there are other threads.
    pub fn watch(ptr: *const u8, len: usize) {
        assert_eq!(ptr as usize % BLOCK, 0);
        for block in (ptr as usize / BLOCK)..(ptr as usize + len).div_ceil(BLOCK) {
            let cell = Box::new(UnsafeCell::new(()));
            MEMORY.with_borrow_mut(|memory| memory.blocks.insert(block, cell));
        }
    }

    /// Whether this address is that of a word of which [`word_at`] has been asked.
    pub fn is_word(ptr: *const u8) -> bool {
        MEMORY.with_borrow(|memory| memory.words.contains_key(&(ptr as usize)))
    }

    /// # Safety
    /// As in the library. Asked first before there are other threads.
    pub unsafe fn word_at<'a>(ptr: *mut u8) -> &'a AtomicU64 {
        if !is_word(ptr) {
            // SAFETY: the caller's memory.
            let word = Box::new(AtomicU64::new(unsafe { ptr.cast::<u64>().read() }));
            MEMORY.with_borrow_mut(|memory| memory.words.insert(ptr as usize, word));
        }
        // SAFETY: in its box until the next run.
        MEMORY
            .with_borrow(|memory| unsafe { &*std::ptr::from_ref(&*memory.words[&(ptr as usize)]) })
    }

    fn blocks(ptr: *const u8, len: usize) -> Vec<&'static UnsafeCell<()>> {
        let all = (ptr as usize / BLOCK)..(ptr as usize + len).div_ceil(BLOCK);
        MEMORY.with_borrow(|memory| {
            let watched = memory.blocks.range(all).map(|(_, block)| &**block);
            // SAFETY: in their boxes until the next run.
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
        // SAFETY: loom panics if somebody changes it.
        unsafe { word.unsync_load() }
    }
}
