//! Populates pages of a shared mapping before they are accessed: one system call instead of a page fault for each page.

#[cfg(not(loom))]
use super::mem_monitor::page_size;

/// How the caller is about to access the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageAccess {
    Read,
    Write,
}

/// Populates the pages that hold `len` bytes at `start`. False where the system cannot (Linux before 5.14, no memory
/// left): the pages are then populated by page faults.
///
/// # Safety
/// The pages are mapped, readable and writable, and stay so meanwhile.
#[cfg(not(loom))]
pub unsafe fn populate(start: *mut u8, len: usize, access: PageAccess) -> bool {
    let advice = match access {
        PageAccess::Read => libc::MADV_POPULATE_READ,
        PageAccess::Write => libc::MADV_POPULATE_WRITE,
    };
    let before = start as usize % page_size();
    // Not by rustix: its `madvise` calls `posix_madvise`, which libc may implement for fewer kinds of advice.
    // SAFETY: whole pages that are mapped; their content stays as it is.
    unsafe { libc::madvise(start.sub(before).cast(), before + len, advice) == 0 }
}

/// Loom's memory is its own.
///
/// # Safety
/// None is needed.
#[cfg(loom)]
pub unsafe fn populate(_: *mut u8, _: usize, _: PageAccess) -> bool {
    false
}
