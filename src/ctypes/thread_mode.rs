//! How threads may use a worker.

use super::from_raw;

/// How threads may use a worker.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucs_thread_mode {
    /// One thread, always the same.
    UCS_THREAD_MODE_SINGLE,
    /// Several threads, one at a time.
    UCS_THREAD_MODE_SERIALIZED,
    /// Any thread at any time.
    UCS_THREAD_MODE_MULTI,
    /// Number of modes.
    UCS_THREAD_MODE_LAST,
}
pub use ucs_thread_mode::*;
/// How threads may use a worker.
pub type ucs_thread_mode_t = ucs_thread_mode;

from_raw!(ucs_thread_mode: UCS_THREAD_MODE_SINGLE, UCS_THREAD_MODE_SERIALIZED, UCS_THREAD_MODE_MULTI);
