//! Threads of the library.

/// Blocks all signals in a thread that is made inside: they are the program's.
pub fn without_signals<T>(make: impl FnOnce() -> T) -> T {
    // SAFETY: all-zero sets are valid values; both are valid for writes.
    unsafe {
        let (mut all, mut old): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        let made = make();
        libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut());
        made
    }
}
