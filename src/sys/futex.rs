//! Sleeping on a word of memory that processes share, whatever their namespaces.

use super::sync::AtomicU32;

/// Sleeps as long as the word has this value; wakes up without a reason, too.
pub fn wait(word: &AtomicU32, value: u32) {
    let no_limit = std::ptr::null::<libc::timespec>();
    // SAFETY: the word lives during the call. Not a private futex: other processes wake it.
    unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, value, no_limit) };
}

/// Wakes all that sleep on the word.
pub fn wake(word: &AtomicU32) {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, i32::MAX) };
}
