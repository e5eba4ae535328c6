//! Time for periodic work: cheap, coarse, monotonic.

/// Milliseconds since an arbitrary start, with the resolution of the kernel's tick (1 to 10 ms).
/// Reads the vDSO's coarse clock: no system call.
pub fn coarse_ms() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is valid for writes; the clock id is a constant that every Linux knows.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}
