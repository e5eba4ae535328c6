//! Pages of code: room for thunks near libc, and how code that runs is changed.

use crate::sys::arch::code::{self, BLOCK, Block, REACH, THUNK};
use std::ffi::c_void;
use std::io;

/// Distance between the places that are tried.
const STEP: usize = 16 << 20;

/// A page of thunks within reach of the short jumps at libc's entries. It is never unmapped.
pub struct TrampolinePage {
    page: usize,
    /// The functions that the thunks lead to.
    targets: Vec<usize>,
}

impl TrampolinePage {
    /// Thunks to these functions, near `place`. Libc has a few MB, so that they are near all of it. All are made now:
    /// while code runs in a page it cannot be written.
    pub fn to(place: usize, targets: Vec<usize>) -> Option<Self> {
        let len = super::page_size();
        assert!(targets.len() * THUNK <= len);
        let page = map_near(place, len)?;
        protect(page, len, libc::PROT_READ | libc::PROT_WRITE).ok()?;
        for (index, target) in targets.iter().enumerate() {
            let at = (page + index * THUNK) as *mut [u8; THUNK];
            // SAFETY: in our page, which nobody else knows.
            unsafe { at.write(code::thunk(*target)) };
        }
        protect(page, len, libc::PROT_READ | libc::PROT_EXEC).ok()?;
        code::flush(page, len);
        Some(TrampolinePage { page, targets })
    }

    /// The thunk that jumps to `target`, if it was among those it was made for.
    pub fn thunk(&self, target: usize) -> Option<usize> {
        let index = self.targets.iter().position(|known| *known == target)?;
        Some(self.page + index * THUNK)
    }
}

fn map_near(place: usize, len: usize) -> Option<usize> {
    let hints = (0..REACH / STEP - 1).flat_map(|i| [place - i * STEP, place + i * STEP]);
    // The kernel maps things near each other by itself, as a rule.
    let anywhere = std::iter::once(0);
    for hint in anywhere.chain(hints.map(|hint| hint & !(len - 1))) {
        let page = map(hint, len)?;
        if page.abs_diff(place) < REACH {
            return Some(page);
        }
        // SAFETY: mapped just now.
        unsafe { libc::syscall(libc::SYS_munmap, page, len) };
    }
    None
}

fn map(hint: usize, len: usize) -> Option<usize> {
    let (prot, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping, wherever the kernel puts it.
    let page = unsafe { libc::syscall(libc::SYS_mmap, hint, len, prot, flags, -1, 0) };
    (page != -1).then_some(page as usize)
}

fn protect(page: usize, len: usize, prot: i32) -> io::Result<()> {
    // SAFETY: pages of ours, or of code that stays executable.
    match unsafe { libc::syscall(libc::SYS_mprotect, page, len, prot) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Puts `new` in the place of `old` in code that other threads may run meanwhile: it stays executable, and they see
/// the one or the other. It is writable for a moment.
///
/// # Errors
/// The system forbids it (`EACCES`, `EPERM`); `EBUSY`: somebody else changes it at the same time.
///
/// # Safety
/// A block of code at `at`, in whose changed part no thread can be but at the beginning; `new` does what it did.
pub unsafe fn write_code(at: usize, old: Block, new: Block) -> io::Result<()> {
    if old == new {
        return Ok(());
    }
    let size = super::page_size();
    let page = at & !(size - 1);
    let len = (at + BLOCK).next_multiple_of(size) - page;
    let code = libc::PROT_READ | libc::PROT_EXEC;
    protect(page, len, code | libc::PROT_WRITE)?;
    // SAFETY: the caller's promise; it is writable.
    let exchanged = unsafe { code::exchange(at, old, new) };
    protect(page, len, code)?;
    match exchanged {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::EBUSY)),
    }
}

/// Lets all cores that run this process fetch code again. Where the kernel cannot, they do so soon by themselves.
pub fn synchronise_cores() {
    /// linux/membarrier.h
    const REGISTER_PRIVATE_EXPEDITED_SYNC_CORE: usize = 1 << 6;
    const PRIVATE_EXPEDITED_SYNC_CORE: usize = 1 << 5;
    let (flags, cpu): (usize, usize) = (0, 0);
    let no_memory: *const c_void = std::ptr::null();
    for command in [
        REGISTER_PRIVATE_EXPEDITED_SYNC_CORE,
        PRIVATE_EXPEDITED_SYNC_CORE,
    ] {
        // SAFETY: no memory is passed.
        unsafe { libc::syscall(libc::SYS_membarrier, command, flags, cpu, no_memory) };
    }
}
