//! Descriptors of this library in programs that close all descriptors, as daemons do: a file that the program opens
//! afterwards may get the same number, and must not be closed instead.

use super::fork::{self, FileIdentity};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Closes its descriptor on drop, if that still names the same file. Epoll sets, timers and events have one inode: they
/// are distinguished from files, pipes and sockets, but not from each other. Forked children get an inert descriptor in
/// place of files, pipes and sockets.
pub struct OwnedDescriptor<T: AsRawFd> {
    inner: ManuallyDrop<T>,
    /// `None`: the system call for it failed.
    identity: Option<FileIdentity>,
    in_children: Option<fork::InertInChild>,
}

impl<T: AsRawFd> OwnedDescriptor<T> {
    /// Takes ownership of a descriptor that was just opened.
    pub fn new(inner: T) -> Self {
        let fd = inner.as_raw_fd();
        let identity = FileIdentity::of(fd);
        Self {
            inner: ManuallyDrop::new(inner),
            identity,
            in_children: identity.and_then(|identity| fork::InertInChild::new(fd, identity)),
        }
    }

    /// Whether the descriptor still names the same file.
    pub fn is_intact(&self) -> bool {
        self.identity.is_some() && FileIdentity::of(self.inner.as_raw_fd()) == self.identity
    }
}

impl<T: AsRawFd> Deref for OwnedDescriptor<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: AsRawFd + AsFd> AsFd for OwnedDescriptor<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl<T: AsRawFd> Drop for OwnedDescriptor<T> {
    fn drop(&mut self) {
        self.in_children = None;
        if self.is_intact() {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.inner) };
        }
    }
}

/// Has system calls with a descriptor of another library return `EAGAIN` where they would wait.
///
/// # Errors
/// `EBADF`.
pub fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, pipe};

    #[test]
    fn closed_on_drop() {
        let (mut read, write) = pipe().unwrap();
        let write = OwnedDescriptor::new(write);
        assert!(write.is_intact());
        drop(write);
        assert_eq!(read.read(&mut [0]).unwrap(), 0, "the writing end is open");
    }

    #[test]
    fn a_reused_descriptor_stays_open() {
        let (mut read, write) = pipe().unwrap();
        let file = OwnedDescriptor::new(File::open("/dev/null").unwrap());
        let fd = file.as_raw_fd();
        // SAFETY: no memory involved; the descriptor is the file's.
        unsafe { libc::dup2(write.as_raw_fd(), fd) };
        drop(write);
        assert!(!file.is_intact());
        drop(file);
        // SAFETY: the pipe's end, which stayed open: one readable byte.
        unsafe { libc::write(fd, [7u8].as_ptr().cast(), 1) };
        let mut byte = [0];
        read.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [7]);
        // SAFETY: the test is its only owner.
        unsafe { libc::close(fd) };
    }
}
