//! Copies as any processor does them: without hints, by `memcpy`.

/// Whether [`ahead`] may be called: never.
#[inline(always)]
pub fn has_ahead() -> bool {
    false
}

/// As other processors copy with hints; here as anybody would.
///
/// # Safety
/// `n` bytes are readable at `src` and writable at `dst`, not overlapping.
pub unsafe fn ahead<const WRITE: bool>(dst: *mut u8, src: *const u8, n: usize) {
    // SAFETY: passed on.
    unsafe { std::ptr::copy_nonoverlapping(src, dst, n) };
}

/// Says nothing.
#[inline(always)]
pub fn prefetch_to_write<T>(_line: *const T) {}

/// Says nothing.
#[inline(always)]
pub fn prefetch_to_read<T>(_line: *const T) {}
