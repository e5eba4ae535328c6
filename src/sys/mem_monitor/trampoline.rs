//! Pages of thunks near libc, and changes of code while other threads run it.

use crate::sys::arch::code::{self, BLOCK, Block, REACH, THUNK};
use std::ffi::c_void;
use std::io;

/// Distance between the addresses that are tried, bytes.
const STEP: usize = 16 << 20;

/// A page of thunks within reach of the short jumps at libc's entries. It is never unmapped.
pub struct TrampolinePage {
    page: usize,
    /// The functions that the thunks lead to.
    targets: Vec<usize>,
}

impl TrampolinePage {
    /// Thunks to these functions, near `place`. Libc has a few MB, so that they are near all of it. All are made at
    /// once: a page that is executable is not writable.
    pub fn to(place: usize, targets: Vec<usize>) -> Option<Self> {
        let len = super::page_size();
        assert!(targets.len() * THUNK <= len);
        let page = map_near(place, len)?;
        protect(page, len, libc::PROT_READ | libc::PROT_WRITE).ok()?;
        for (index, target) in targets.iter().enumerate() {
            let at = (page + index * THUNK) as *mut [u8; THUNK];
            // SAFETY: in the new page, to which no other reference exists.
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
    // Usually the kernel itself chooses an address near other mappings.
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
    // SAFETY: a fresh mapping, at an address that the kernel chooses.
    let page = unsafe { libc::syscall(libc::SYS_mmap, hint, len, prot, flags, -1, 0) };
    (page != -1).then_some(page as usize)
}

fn protect(page: usize, len: usize, prot: i32) -> io::Result<()> {
    // SAFETY: pages of this library, or of code that stays executable.
    match unsafe { libc::syscall(libc::SYS_mprotect, page, len, prot) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Replaces `old` by `new` in code that other threads may run meanwhile: it stays executable, and they see either. It
/// is writable for a short time.
///
/// # Errors
/// The system forbids it (`EACCES`, `EPERM`); `EBUSY`: other code changes it at the same time.
///
/// # Safety
/// A block of code at `at`, in whose changed part no thread can be but at the beginning; `new` has the effect of `old`.
pub unsafe fn write_code(at: usize, old: Block, new: Block) -> io::Result<()> {
    if old == new {
        return Ok(());
    }
    let size = super::page_size();
    let page = at & !(size - 1);
    let len = (at + BLOCK).next_multiple_of(size) - page;
    let code = libc::PROT_READ | libc::PROT_EXEC;
    protect(page, len, code | libc::PROT_WRITE)?;
    // SAFETY: the caller's promise; the pages are writable.
    let exchanged = unsafe { code::exchange(at, old, new) };
    protect(page, len, code)?;
    if exchanged {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EBUSY))
    }
}

/// Makes all cores that run this process fetch code again. Without kernel support they do so soon by themselves.
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
