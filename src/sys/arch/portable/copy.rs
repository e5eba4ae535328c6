//! Copies as any processor does them: without hints, by `memcpy`.

/// Whether [`ahead`] may be called: never.
#[inline(always)]
pub fn has_ahead() -> bool {
    false
}

/// A copy without hints.
///
/// # Safety
/// `n` bytes are readable at `src` and writable at `dst`, not overlapping.
pub unsafe fn ahead<const WRITE: bool>(dst: *mut u8, src: *const u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(src, dst, n) };
}

/// Does nothing.
#[inline(always)]
pub fn prefetch_to_write<T>(_line: *const T) {}

/// Does nothing.
#[inline(always)]
pub fn prefetch_to_read<T>(_line: *const T) {}
