//! How a worker sleeps: a pipe that senders write to, a signal of the user's, and an epoll set of both.

use super::worker::WorkerParams;
use crate::tl::shm::inbox::Inbox;
use std::io::{self, Error};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Descriptors of a worker with `UCP_FEATURE_WAKEUP`.
pub struct Wake {
    /// The set that the user waits on; none if he gave his own.
    epoll: Option<OwnedFd>,
    /// Senders write to `pipe.1` when the inbox is armed.
    pipe: (OwnedFd, OwnedFd),
    /// `ucp_worker_signal` writes here.
    signal: OwnedFd,
    /// A signal was given and not yet taken.
    signaled: AtomicBool,
}

impl Wake {
    /// Makes the descriptors and tells the inbox.
    ///
    /// # Errors
    /// `EMFILE` and the like.
    pub fn new(params: &WorkerParams, inbox: Option<&Inbox>) -> io::Result<Self> {
        let mut ends = [0i32; 2];
        // SAFETY: two writable integers.
        check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) })?;
        // SAFETY: two fresh descriptors.
        let pipe = unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
        // SAFETY: no memory involved.
        let signal = unsafe {
            OwnedFd::from_raw_fd(check(libc::eventfd(
                0,
                libc::EFD_NONBLOCK | libc::EFD_CLOEXEC,
            ))?)
        };
        let epoll = match params.event_fd {
            Some(_) => None,
            // SAFETY: no memory involved.
            None => Some(unsafe {
                OwnedFd::from_raw_fd(check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?)
            }),
        };
        let wake = Self {
            epoll,
            pipe,
            signal,
            signaled: AtomicBool::new(false),
        };
        let set = wake
            .epoll
            .as_ref()
            .map_or(params.event_fd.unwrap_or(-1), AsRawFd::as_raw_fd);
        let edge = if params.edge { libc::EPOLLET as u32 } else { 0 };
        for fd in [&wake.pipe.0, &wake.signal] {
            let mut event = libc::epoll_event {
                events: libc::EPOLLIN as u32 | edge,
                u64: params.user_data as u64,
            };
            // SAFETY: `event` is valid; the kernel copies it.
            check(unsafe {
                libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &mut event)
            })?;
        }
        if let Some(inbox) = inbox {
            inbox.enable_wake(wake.pipe.1.as_raw_fd() as u32);
        }
        Ok(wake)
    }

    /// The descriptor to wait on, unless the user brought his own.
    pub fn epoll_fd(&self) -> Option<i32> {
        self.epoll.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Empties the pipe: what it announced is looked at now.
    pub fn drain(&self) {
        let mut bytes = [0u8; 64];
        // SAFETY: the buffer is as long as said; the descriptor does not block.
        while unsafe {
            libc::read(
                self.pipe.0.as_raw_fd(),
                bytes.as_mut_ptr().cast(),
                bytes.len(),
            )
        } > 0
        {}
    }

    /// Wakes the worker once, from any thread.
    pub fn signal(&self) {
        // Release: pairs with the Acquire swap in `take_signal`.
        self.signaled.store(true, Ordering::Release);
        let one = 1u64;
        // SAFETY: 8 readable bytes.
        unsafe { libc::write(self.signal.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Whether there was a signal since the last call.
    pub fn take_signal(&self) -> bool {
        let mut count = 0u64;
        // SAFETY: 8 writable bytes; the descriptor does not block.
        let got = unsafe { libc::read(self.signal.as_raw_fd(), (&raw mut count).cast(), 8) };
        // Acquire: pairs with `signal`.
        self.signaled.swap(false, Ordering::Acquire) || got == 8
    }

    /// Sleeps until something happens; false for an interruption.
    pub fn wait(&self) -> bool {
        let mut fds = [self.pipe.0.as_raw_fd(), self.signal.as_raw_fd()].map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        // SAFETY: two valid entries.
        unsafe { libc::poll(fds.as_mut_ptr(), 2, -1) >= 0 }
    }
}

fn check(ret: i32) -> io::Result<i32> {
    if ret < 0 {
        Err(Error::last_os_error())
    } else {
        Ok(ret)
    }
}
