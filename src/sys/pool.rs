//! A pool of equal elements that never move and are handed out again.

use super::fork;
use super::memfd::PAGE;
use super::populate::{PageAccess, populate};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

/// Elements of one size in chunks. A free element holds the pointer to the next free one at byte `LINK`, a multiple of
/// a pointer's size; the rest of it stays as its last user left it. Not thread-safe: a shared pool is behind a lock.
pub struct Pool<const LINK: usize = 0> {
    element: Layout,
    per_chunk: usize,
    free: *mut u8,
    chunks: Vec<NonNull<u8>>,
    /// Disables the elements of a chunk in forked children.
    disable: Option<fork::Disable>,
    /// One for each chunk, if `disable` is set.
    disabled: Vec<fork::DisabledInChild>,
    /// Elements handed out at present; written under the pool's lock alone.
    in_use: NonNull<AtomicU64>,
    /// The counter, unless [`count_in`](Self::count_in) has set another one.
    _own_count: Box<AtomicU64>,
}

/// The elements of a new chunk.
pub struct NewChunk {
    chunk: NonNull<u8>,
    size: usize,
    count: usize,
}

impl NewChunk {
    /// Pointers to the elements.
    pub fn elements(&self) -> impl DoubleEndedIterator<Item = *mut u8> {
        // SAFETY: a chunk holds `count` elements.
        (0..self.count).map(|i| unsafe { self.chunk.as_ptr().add(i * self.size) })
    }
}

// SAFETY: the pool owns its chunks; raw pointers carry no thread affinity.
unsafe impl<const LINK: usize> Send for Pool<LINK> {}

impl<const LINK: usize> Pool<LINK> {
    /// `size` bytes per element (at least the pointer at `LINK`), aligned to `align` (a power of two),
    /// `per_chunk` elements allocated together. Allocates nothing yet.
    pub fn new(size: usize, align: usize, per_chunk: usize) -> Self {
        const { assert!(LINK % align_of::<*mut u8>() == 0) };
        let align = align.max(align_of::<*mut u8>());
        let element = Layout::from_size_align(size.max(LINK + size_of::<*mut u8>()), align)
            .expect("element sizes come from this library, not from input")
            .pad_to_align();
        let own_count = Box::new(AtomicU64::new(0));
        Self {
            element,
            per_chunk,
            free: ptr::null_mut(),
            chunks: Vec::new(),
            disable: None,
            disabled: Vec::new(),
            in_use: NonNull::from(&*own_count),
            _own_count: own_count,
        }
    }

    /// Counts the elements that are handed out in `counter`, which other processes may read.
    ///
    /// # Safety
    /// `counter` outlives the pool's use, and nothing else writes it.
    pub unsafe fn count_in(mut self, counter: &AtomicU64) -> Self {
        self.in_use = NonNull::from(counter);
        self
    }

    /// Disables every element in forked children, handed out or not: `disable` gets a chunk of them, and the bytes of
    /// each.
    ///
    /// # Safety
    /// It touches the elements in a way that is sound for those that are handed out, for free ones and for zero bytes.
    pub unsafe fn disabled_in_children(mut self, disable: fork::Disable) -> Self {
        self.disable = Some(disable);
        self
    }

    /// Relaxed: the lock of the pool orders its users; readers in other processes need any recent value.
    #[inline(always)]
    fn count(&self, by: u64) {
        // SAFETY: the own counter, or one that outlives the pool.
        let counter = unsafe { self.in_use.as_ref() };
        let n = counter.load(Ordering::Relaxed).wrapping_add(by);
        counter.store(n, Ordering::Relaxed);
    }

    /// An element. `init` runs once for each element, when its chunk is made.
    #[inline]
    pub fn get(&mut self, mut init: impl FnMut(*mut u8)) -> NonNull<u8> {
        loop {
            if let Some(element) = self.pop() {
                return element;
            }
            let fresh = self.allocate();
            fresh.elements().for_each(&mut init);
            self.add(fresh);
        }
    }

    /// An element, if one is free.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<NonNull<u8>> {
        let head = NonNull::new(self.free)?;
        // SAFETY: a free element holds the next pointer at `LINK`.
        self.free = unsafe { Self::link(head.as_ptr()).read() };
        self.count(1);
        Some(head)
    }

    /// An element, after [`has_some`](Self::has_some) has returned true.
    ///
    /// # Safety
    /// There is a free one.
    #[inline(always)]
    pub unsafe fn get_some(&mut self) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { self.pop().unwrap_unchecked() }.as_ptr()
    }

    /// Whether an element is free.
    #[inline(always)]
    pub fn has_some(&self) -> bool {
        !self.free.is_null()
    }

    /// Returns an element.
    ///
    /// # Safety
    /// `element` came from `get` of this pool and is not used any more. A pointer is written at `LINK`.
    #[inline(always)]
    pub unsafe fn put(&mut self, element: NonNull<u8>) {
        // SAFETY: the element is the pool's again and large enough for a pointer at `LINK`.
        unsafe { Self::link(element.as_ptr()).write(self.free) };
        self.free = element.as_ptr();
        self.count(1u64.wrapping_neg());
    }

    /// Elements handed out and not returned. Counts the free ones: not for the hot path.
    pub fn in_use(&self) -> usize {
        // SAFETY: as in `count`.
        unsafe { self.in_use.as_ref() }.load(Ordering::Relaxed) as usize
    }

    /// Every element of every chunk, free or not: for clean-up at the end.
    pub fn for_each(&self, mut f: impl FnMut(*mut u8)) {
        for chunk in &self.chunks {
            for i in 0..self.per_chunk {
                // SAFETY: a chunk holds `per_chunk` elements.
                f(unsafe { chunk.as_ptr().add(i * self.element.size()) });
            }
        }
    }

    /// Allocates elements that are not in the pool yet, so that they can be initialised without the lock that guards
    /// it.
    #[cold]
    pub fn allocate(&self) -> NewChunk {
        let layout = self.chunk_layout();
        // SAFETY: the layout is not empty: elements have at least a pointer's size. Zeroed: users see a defined area
        // on first use.
        let Some(chunk) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            handle_alloc_error(layout)
        };
        // Each page of small elements is written when they are added.
        if self.element.size() <= PAGE && layout.size() >= 2 * PAGE {
            // SAFETY: memory that was allocated just now.
            unsafe { populate(chunk.as_ptr(), layout.size(), PageAccess::Write) };
        }
        NewChunk {
            chunk,
            size: self.element.size(),
            count: self.per_chunk,
        }
    }

    /// Adds the elements that [`allocate`](Self::allocate) of this pool returned.
    pub fn add(&mut self, fresh: NewChunk) {
        self.chunks.push(fresh.chunk);
        if let Some(disable) = self.disable {
            // SAFETY: the promise of `disabled_in_children`; the entry is removed before the chunk is freed.
            let disabled = unsafe {
                fork::DisabledInChild::new(fresh.chunk.cast(), self.element.size(), disable)
            };
            self.disabled.push(disabled);
        }
        for element in fresh.elements().rev() {
            // SAFETY: the element is the pool's and large enough for a pointer at `LINK`.
            unsafe { Self::link(element).write(self.free) };
            self.free = element;
        }
    }

    /// Where a free element holds the pointer to the next one.
    #[inline(always)]
    fn link(element: *mut u8) -> *mut *mut u8 {
        element.wrapping_add(LINK).cast()
    }

    fn chunk_layout(&self) -> Layout {
        Layout::from_size_align(self.element.size() * self.per_chunk, self.element.align())
            .expect("a chunk of small elements fits the address space")
    }
}

impl<const LINK: usize> Drop for Pool<LINK> {
    fn drop(&mut self) {
        let layout = self.chunk_layout();
        self.disabled.clear();
        for chunk in &self.chunks {
            // SAFETY: allocated in `grow` with the same layout.
            unsafe { dealloc(chunk.as_ptr(), layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_distinct_initialised_once_and_reused() {
        let mut inits = 0;
        let mut pool = Pool::<0>::new(40, 16, 4);
        let a: Vec<_> = (0..6).map(|_| pool.get(|_| inits += 1)).collect();
        assert_eq!(inits, 8, "two chunks of four");
        let mut sorted: Vec<_> = a.iter().map(|p| p.as_ptr() as usize).collect();
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|w| w[1] - w[0] >= 40), "no overlap");
        assert!(sorted.iter().all(|p| p % 16 == 0));
        // SAFETY: taken above, returned once.
        unsafe { pool.put(a[3]) };
        assert_eq!(
            pool.get(|_| unreachable!()),
            a[3],
            "last returned, first reused"
        );
        assert_eq!(pool.in_use(), 6);
    }
    #[test]
    fn a_free_element_keeps_all_but_its_link() {
        let mut pool = Pool::<16>::new(40, 16, 2);
        let (a, b) = (pool.get(|_| ()), pool.get(|_| ()));
        for element in [a, b] {
            // SAFETY: an element has 40 bytes; it is returned once.
            unsafe {
                element.as_ptr().write_bytes(7, 40);
                pool.put(element);
            }
        }
        for element in [a, b] {
            // SAFETY: 40 bytes of the pool's chunk, which lives.
            let bytes = unsafe { element.cast::<[u8; 40]>().read() };
            assert!((0..40).all(|i| (16..24).contains(&i) || bytes[i] == 7));
        }
        assert_eq!((pool.pop(), pool.pop()), (Some(b), Some(a)));
    }
}
