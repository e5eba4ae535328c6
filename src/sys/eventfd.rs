//! An event with a descriptor (eventfd).

use super::descriptor::OwnedDescriptor;
use rustix::io::{read, write};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// Readable from [`signal`](Self::signal) to [`take`](Self::take). Neither blocks.
pub struct EventFd {
    fd: OwnedDescriptor<OwnedFd>,
}

impl EventFd {
    /// An event without a signal.
    ///
    /// # Errors
    /// `EMFILE` and the like.
    pub fn new() -> io::Result<Self> {
        // Not by rustix, which makes the system call directly: ThreadSanitizer would miss that the number names another
        // file now.
        // SAFETY: no memory involved.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor, which has no other owner.
        let fd = OwnedDescriptor::new(unsafe { OwnedFd::from_raw_fd(fd) });
        Ok(Self { fd })
    }

    /// Makes it readable.
    pub fn signal(&self) {
        // The write fails if the count is at its maximum, and then it is readable already.
        let _ = write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Takes all signals. Whether there was one.
    pub fn take(&self) -> bool {
        read(&self.fd, &mut [0; 8]) == Ok(8)
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::poll::is_readable;

    #[test]
    fn readable_until_taken() {
        let event = EventFd::new().unwrap();
        assert!(!is_readable(event.as_fd()) && !event.take());
        event.signal();
        event.signal();
        assert!(is_readable(event.as_fd()) && event.take());
        assert!(!is_readable(event.as_fd()) && !event.take());
    }
}
