//! Identifies the process among its ancestors: a number in a page that the kernel zeroes in children
//! (`MADV_WIPEONFORK`), so that a child without its own number is detected however it was made.

use super::disable_inherited;
use super::wiped::advise;
use crate::sys::arch;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Whole pages for one number, with nothing else in them.
type Pages = arch::OwnPages<AtomicU32>;

/// This process's number; 0 in a child that has not begun its own yet. Without an initial value it is not in a file:
/// the kernel zeroes only private anonymous memory.
static PAGES: Pages = arch::OwnPages(AtomicU32::new(0));

/// The last number that was begun by this process or an ancestor. A child inherits it.
static LAST: AtomicU32 = AtomicU32::new(0);

/// The process in which something was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin(u32);

impl Origin {
    /// This process.
    pub fn here() -> Self {
        settle();
        Self(number())
    }

    /// Whether a parent of this process made it.
    #[inline]
    pub fn is_inherited(self) -> bool {
        self.0 != number()
    }
}

/// Relaxed: changes only while the process has a single thread.
#[inline]
fn number() -> u32 {
    PAGES.0.load(Ordering::Relaxed)
}

/// Begins the number of the first process, when the library is loaded. Where the kernel does not support such pages
/// children keep their parent's number until `fork`'s handler has run.
pub(super) fn start() {
    begin_number();
    // SAFETY: whole pages that hold nothing but the number, which this module expects to be zero in children.
    unsafe {
        advise(
            NonNull::from(&PAGES).cast(),
            size_of::<Pages>(),
            libc::MADV_WIPEONFORK,
        )
    };
}

fn begin_number() {
    let next = LAST.load(Ordering::Relaxed).wrapping_add(1).max(1);
    LAST.store(next, Ordering::Relaxed);
    PAGES.0.store(next, Ordering::Relaxed);
}

/// Begins this process's own number, and disables what it has inherited.
pub(super) fn begin() {
    begin_number();
    disable_inherited();
}

/// Begins this process's own number, unless that was done.
#[inline]
pub(super) fn settle() {
    if number() == 0 {
        settle_now();
    }
}

#[cold]
#[inline(never)]
fn settle_now() {
    /// Whether a thread of a child made without `fork` does so.
    static UNDER_WAY: AtomicBool = AtomicBool::new(false);
    // Acquire: pairs with the Release store below, so that one thread finds what the other has done.
    while UNDER_WAY.swap(true, Ordering::Acquire) {
        std::thread::yield_now();
    }
    if number() == 0 {
        begin();
    }
    UNDER_WAY.store(false, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exit status with which a child reports its result.
    fn in_child_of(make: impl Fn() -> libc::pid_t, answer: impl Fn() -> bool) -> bool {
        let child = make();
        if child == 0 {
            // SAFETY: ends the child at once, with nothing of the test's run.
            unsafe { libc::_exit(i32::from(!answer())) };
        }
        let mut status = -1;
        // SAFETY: the child above, and a number to write to.
        let ended = unsafe { libc::waitpid(child, &mut status, 0) };
        child > 0 && ended == child && status == 0
    }

    fn fork() -> libc::pid_t {
        // SAFETY: the child only reads numbers.
        unsafe { libc::fork() }
    }

    fn bare_clone() -> libc::pid_t {
        let none = 0usize;
        // SAFETY: a child with memory of its own, as `fork` makes it; it calls nothing that needs the other threads.
        unsafe {
            libc::syscall(libc::SYS_clone, libc::SIGCHLD, none, none, none, none) as libc::pid_t
        }
    }

    #[test]
    fn a_child_is_known_whether_handlers_run_or_not() {
        let here = Origin::here();
        assert!(!here.is_inherited());
        assert!(in_child_of(fork, || here.is_inherited()));
        assert!(in_child_of(bare_clone, || here.is_inherited()));
        assert!(!here.is_inherited());
    }
}
