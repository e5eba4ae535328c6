//! A timer with a descriptor.

use super::descriptor::OwnedDescriptor;
use std::io::{self, Error};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Readable when it has expired.
pub struct Timer {
    fd: OwnedDescriptor<OwnedFd>,
}

impl Timer {
    /// A timer that is not set.
    ///
    /// # Errors
    /// `EMFILE` and the like.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no memory involved.
        let fd = unsafe {
            libc::timerfd_create(
                libc::CLOCK_MONOTONIC,
                libc::TFD_NONBLOCK | libc::TFD_CLOEXEC,
            )
        };
        if fd < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: a fresh descriptor.
        let fd = OwnedDescriptor::new(unsafe { OwnedFd::from_raw_fd(fd) });
        Ok(Self { fd })
    }

    /// Sets it to expire after `first`, and then every `interval`. `None`: never.
    pub fn set(&self, first: Option<Duration>, interval: Option<Duration>) {
        let time = |d: Option<Duration>| libc::timespec {
            tv_sec: d.map_or(0, |d| d.as_secs().min(i32::MAX as u64)) as libc::time_t,
            tv_nsec: d.map_or(0, |d| d.subsec_nanos()).into(),
        };
        let spec = libc::itimerspec {
            it_interval: time(interval),
            it_value: time(first),
        };
        // SAFETY: a valid structure; the old value is not requested.
        unsafe { libc::timerfd_settime(self.as_raw_fd(), 0, &spec, std::ptr::null_mut()) };
    }

    /// Clears the expiration: it is not readable any more.
    pub fn drain(&self) {
        let mut count = 0u64;
        // SAFETY: 8 writable bytes; the descriptor does not block.
        unsafe { libc::read(self.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
