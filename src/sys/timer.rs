//! A timer with a descriptor.

use super::descriptor::OwnedDescriptor;
use rustix::io::read;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
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
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = OwnedDescriptor::new(timerfd_create(TimerfdClockId::Monotonic, flags)?);
        Ok(Self { fd })
    }

    /// Sets it to expire after `first`, and then every `interval`. `None`: never.
    pub fn set(&self, first: Option<Duration>, interval: Option<Duration>) {
        let time = |d: Option<Duration>| Timespec {
            tv_sec: d.map_or(0, |d| d.as_secs().min(i32::MAX as u64)) as i64,
            tv_nsec: d.map_or(0, |d| d.subsec_nanos()).into(),
        };
        let times = Itimerspec {
            it_interval: time(interval),
            it_value: time(first),
        };
        // Fails only where the program has closed the descriptor.
        let _ = timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &times);
    }

    /// Clears the expiration: it is not readable any more.
    pub fn drain(&self) {
        // Fails where it has not expired: the descriptor does not block.
        let _ = read(&self.fd, &mut [0; 8]);
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
