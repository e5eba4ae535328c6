//! Waits until descriptors are readable.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Number of these descriptors that are readable, after at most so long; `None`: as long as it takes.
///
/// # Errors
/// `Interrupted`: a signal was handled meanwhile.
pub fn wait_readable<'a>(
    fds: impl IntoIterator<Item = BorrowedFd<'a>>,
    timeout: Option<Duration>,
) -> io::Result<usize> {
    let mut fds: Vec<_> = fds.into_iter().map(of).collect();
    // A timeout that the structure cannot hold is none.
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    Ok(poll(&mut fds, timeout.as_ref())?)
}

/// Whether a descriptor is readable now.
pub fn is_readable(fd: BorrowedFd<'_>) -> bool {
    poll(&mut [of(fd)], Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

fn of(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN)
}
