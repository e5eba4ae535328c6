//! Memory that children find zero (`MADV_WIPEONFORK`).

use std::ptr::NonNull;

/// Private memory that children find zero, where the kernel supports it; elsewhere they have a copy.
pub struct Wiped {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the address is only passed to the kernel.
unsafe impl Send for Wiped {}

impl Wiped {
    /// # Safety
    /// `len` bytes at `start` are private anonymous memory until the value is dropped, and hold nothing that children
    /// need.
    pub unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        // SAFETY: the caller's promise.
        unsafe { advise(start, len, libc::MADV_WIPEONFORK) };
        Self { start, len }
    }
}

impl Drop for Wiped {
    fn drop(&mut self) {
        // SAFETY: the promise of `new`.
        unsafe { advise(self.start, self.len, libc::MADV_KEEPONFORK) };
    }
}

/// Whether the kernel applied the advice: not if it does not support it, and not where the memory is no whole pages.
///
/// # Safety
/// The effect of the advice on `len` bytes at `start` is sound.
pub(super) unsafe fn advise(start: NonNull<u8>, len: usize, advice: libc::c_int) -> bool {
    let page = rustix::param::page_size();
    // The kernel would round the length up.
    let whole = start.as_ptr() as usize % page == 0 && len % page == 0;
    // Not by rustix: its `madvise` calls `posix_madvise`, which libc may implement for fewer kinds of advice.
    // SAFETY: the caller's promise; nothing beyond the range.
    whole && unsafe { libc::madvise(start.as_ptr().cast(), len, advice) } == 0
}
