//! An epoll set of sockets: which of them are readable or writable.

use crate::sys::descriptor::OwnedDescriptor;
use std::io::{self, Error};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Maximum number of events fetched in one call.
const BATCH: usize = 32;

/// An epoll set, level-triggered: what is not read is reported again.
pub struct Epoll {
    fd: OwnedDescriptor<OwnedFd>,
    /// Number of sockets that are watched for writability.
    pub writing: AtomicUsize,
    /// Number of progress calls that polled the sockets, wraps. Only the progress thread changes it. Relaxed: it orders
    /// no other memory.
    pub turn: AtomicU32,
}

/// Readiness of one socket.
#[derive(Clone, Copy, Debug)]
pub struct SocketEvent {
    pub token: u64,
    /// There is data to read, or an end or error that a read returns.
    pub read: bool,
    /// There is room to write, or an error that a write returns.
    pub write: bool,
}

impl Epoll {
    /// # Errors
    /// `EMFILE` and the like.
    pub fn new() -> io::Result<Self> {
        // SAFETY: `epoll_create1` accesses no memory; the descriptor is new and owned by nothing else.
        let fd = unsafe { OwnedFd::from_raw_fd(check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?) };
        Ok(Self {
            fd: OwnedDescriptor::new(fd),
            writing: AtomicUsize::new(0),
            turn: AtomicU32::new(0),
        })
    }

    /// The descriptor of the set: readable while one of its sockets is ready.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Starts to watch a socket for reading, and if `write` also for writability. The kernel removes it from the set
    /// when it is closed.
    ///
    /// # Errors
    /// `ENOSPC`, `ENOMEM`.
    pub fn add(&self, fd: RawFd, token: u64, write: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, write)?;
        if write {
            self.writing.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Starts or stops to watch for writability. The caller passes the opposite of the present state.
    pub fn watch_room(&self, fd: RawFd, token: u64, write: bool) {
        // This fails only for a descriptor that is not in the set, and this one is.
        let _ = self.control(libc::EPOLL_CTL_MOD, fd, token, write);
        if write {
            self.writing.fetch_add(1, Ordering::Relaxed);
        } else {
            self.writing.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Stops watching. `write`: the socket was watched for writability.
    pub fn remove(&self, fd: RawFd, write: bool) {
        let _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, false);
        if write {
            self.writing.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn control(&self, how: i32, fd: RawFd, token: u64, write: bool) -> io::Result<()> {
        let room = if write { libc::EPOLLOUT as u32 } else { 0 };
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32 | room,
            u64: token,
        };
        // SAFETY: `event` is valid during the call; the kernel copies it.
        check(unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), how, fd, &mut event) }).map(|_| ())
    }

    /// The sockets that are ready, without waiting. `None`: the program has closed the descriptor of the set, and
    /// therefore probably those of the sockets.
    pub fn poll(&self) -> Option<impl Iterator<Item = SocketEvent> + use<>> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; BATCH];
        // SAFETY: `events` is writable for `BATCH` entries.
        let got =
            unsafe { libc::epoll_wait(self.fd.as_raw_fd(), events.as_mut_ptr(), BATCH as i32, 0) };
        let errno = || Error::last_os_error().raw_os_error();
        if got < 0 && matches!(errno(), Some(libc::EBADF | libc::EINVAL)) {
            return None;
        }
        let ended = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
        let ready = events.into_iter().take(got.max(0) as usize);
        Some(ready.map(move |e| SocketEvent {
            token: e.u64,
            read: e.events & (libc::EPOLLIN as u32 | ended) != 0,
            write: e.events & (libc::EPOLLOUT as u32 | ended) != 0,
        }))
    }
}

fn check(ret: i32) -> io::Result<i32> {
    if ret < 0 {
        Err(Error::last_os_error())
    } else {
        Ok(ret)
    }
}
