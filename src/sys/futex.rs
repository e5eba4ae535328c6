//! Sleeping on a word of memory that processes share, whatever their namespaces.

// Not by rustix, which takes only the atomics of the standard library: loom and ThreadSanitizer replace them.
use super::sync::AtomicU32;

/// Sleeps while the word has this value; spurious wakeups are possible.
pub fn wait(word: &AtomicU32, value: u32) {
    let no_limit = std::ptr::null::<libc::timespec>();
    // SAFETY: the word lives during the call. Not a private futex: other processes wake it.
    unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, value, no_limit) };
}

/// Wakes all sleepers on the word.
pub fn wake(word: &AtomicU32) {
    // SAFETY: the word lives during the call. Not a private futex: other processes sleep on it.
    unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, i32::MAX) };
}
