//! Time for periodic work: cheap, coarse, monotonic.

/// Milliseconds since an arbitrary start, with the resolution of the kernel's tick (1 to 10 ms).
/// Reads the vDSO's coarse clock: no system call.
pub fn coarse_ms() -> u64 {
    let now = read(libc::CLOCK_MONOTONIC_COARSE);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Nanoseconds since an arbitrary start, the same one for all processes of a time namespace. No system call.
pub fn monotonic_ns() -> u64 {
    let now = read(libc::CLOCK_MONOTONIC);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A clock that every Linux supports. Not by rustix, which checks for an error: progress calls this.
fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is valid for writes.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now
}
