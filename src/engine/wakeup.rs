//! How a worker sleeps: a pipe that senders write to, an eventfd for `ucp_worker_signal`, descriptors of other
//! transports, and an epoll set of all of them.

#[cfg(not(loom))]
use super::futex_waker::FutexWaker;
use super::peer_monitor::PeerMonitor;
use super::worker::WorkerParams;
use crate::sys::descriptor::OwnedDescriptor;
use crate::sys::sync::OnceLock;
use crate::tl::shm::inbox::Inbox;
use parking_lot::Mutex;
use std::io::{self, Error};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Descriptors of a worker with `UCP_FEATURE_WAKEUP`.
pub struct Wakeup {
    /// First field: its thread ends before the pipe is closed.
    #[cfg(not(loom))]
    futex_waker: OnceLock<FutexWaker>,
    /// The epoll set that the user waits on; `None` if the user supplied one.
    epoll: Option<OwnedDescriptor<OwnedFd>>,
    /// Senders write to `pipe.1` when the inbox is armed.
    pipe: (OwnedDescriptor<OwnedFd>, OwnedDescriptor<OwnedFd>),
    /// `ucp_worker_signal` writes here.
    signal: OwnedDescriptor<OwnedFd>,
    /// A signal was given and not yet taken.
    signaled: AtomicBool,
    /// The worker is armed: a thread that leaves work for it wakes it.
    asleep: AtomicBool,
    /// The user's epoll set, if supplied.
    user_set: Option<RawFd>,
    edge: bool,
    /// Data of each event in the user's set.
    user_data: u64,
    /// Descriptors added by [`add`](Self::add). Their owners close them.
    others: Mutex<Vec<RawFd>>,
    /// Made with the first endpoint that handles errors.
    watch: OnceLock<PeerMonitor>,
}

impl Wakeup {
    /// Makes the descriptors and enables wakeups by the inbox.
    ///
    /// # Errors
    /// `EMFILE` and the like.
    pub fn new(params: &WorkerParams, inbox: Option<&Inbox>) -> io::Result<Self> {
        let mut ends = [0i32; 2];
        // SAFETY: two writable integers.
        check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) })?;
        // SAFETY: two fresh descriptors.
        let pipe = unsafe {
            (
                OwnedDescriptor::new(OwnedFd::from_raw_fd(ends[0])),
                OwnedDescriptor::new(OwnedFd::from_raw_fd(ends[1])),
            )
        };
        // SAFETY: no memory involved.
        let signal = unsafe {
            OwnedDescriptor::new(OwnedFd::from_raw_fd(check(libc::eventfd(
                0,
                libc::EFD_NONBLOCK | libc::EFD_CLOEXEC,
            ))?))
        };
        let epoll = match params.event_fd {
            Some(_) => None,
            // SAFETY: no memory involved.
            None => Some(unsafe {
                OwnedDescriptor::new(OwnedFd::from_raw_fd(check(libc::epoll_create1(
                    libc::EPOLL_CLOEXEC,
                ))?))
            }),
        };
        let wake = Self {
            #[cfg(not(loom))]
            futex_waker: OnceLock::new(),
            epoll,
            pipe,
            signal,
            signaled: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            user_set: params.event_fd,
            edge: params.edge,
            user_data: params.user_data as u64,
            others: Mutex::default(),
            watch: OnceLock::new(),
        };
        for fd in [&wake.pipe.0, &wake.signal] {
            wake.control(libc::EPOLL_CTL_ADD, fd.as_raw_fd())?;
        }
        if let Some(inbox) = inbox {
            inbox.enable_wake(wake.pipe.1.as_raw_fd() as u32);
        }
        Ok(wake)
    }

    /// Starts the thread for senders that cannot open the pipe. Once; before the first sleep.
    ///
    /// # Safety
    /// The inbox is dropped after `self`.
    pub unsafe fn listen(&self, inbox: &Inbox) {
        #[cfg(not(loom))]
        // SAFETY: the caller's promise; the pipe is dropped after the futex waker.
        self.futex_waker
            .get_or_init(|| unsafe { FutexWaker::new(inbox.bell(), self.pipe.1.as_raw_fd()) });
        #[cfg(loom)]
        let _ = inbox;
    }

    /// Whether the descriptors are still the worker's: the program can have closed them all.
    pub fn is_intact(&self) -> bool {
        self.pipe.0.is_intact()
    }

    /// The worker is about to sleep: after this the caller checks once more for work.
    pub fn arm(&self) {
        // SeqCst: before the check for work. Pairs with the fence in `wake`, which comes after new work.
        self.asleep.store(true, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// The opposite of [`arm`](Self::arm).
    pub fn disarm(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Another thread of this process has left work: wakes the worker if it sleeps.
    pub fn wake(&self) {
        // SeqCst: pairs with the store in `arm`.
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            // SAFETY: a readable byte. A full pipe wakes as well.
            unsafe { libc::write(self.pipe.1.as_raw_fd(), [1u8].as_ptr().cast(), 1) };
        }
    }

    /// The descriptor to wait on, unless the user supplied an epoll set.
    pub fn epoll_fd(&self) -> Option<i32> {
        self.epoll.as_ref().map(|set| set.as_raw_fd())
    }

    /// Adds another descriptor that wakes the worker when it is readable (a nested epoll set, too). While it is
    /// readable, `ucp_worker_arm` returns `UCS_ERR_BUSY`: progress has to drain it. Thread-safe. The caller
    /// [`remove`](Self::remove)s it before closing it.
    ///
    /// # Errors
    /// The errors of `epoll_ctl`.
    pub fn add(&self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd)?;
        self.others.lock().push(fd);
        Ok(())
    }

    /// The opposite of [`add`](Self::add).
    pub fn remove(&self, fd: RawFd) {
        self.others.lock().retain(|&other| other != fd);
        // The user may have closed the epoll set, and with it its entries.
        let _ = self.control(libc::EPOLL_CTL_DEL, fd);
    }

    /// The monitor of the peers' processes, if there is one.
    pub fn watch(&self) -> Option<&PeerMonitor> {
        self.watch.get()
    }

    /// The monitor of the peers' processes, made if there is none.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn make_watch(&self, keepalive: Option<Duration>) -> io::Result<&PeerMonitor> {
        if self.watch.get().is_none() {
            let watch = PeerMonitor::new(keepalive)?;
            let fd = watch.fd();
            // Another thread may have made it meanwhile.
            if self.watch.set(watch).is_ok() {
                self.add(fd)?;
            }
        }
        self.watch.get().ok_or_else(Error::last_os_error)
    }

    /// Whether one of the added descriptors is readable.
    pub fn pending(&self) -> bool {
        let others = self.others.lock().clone();
        !others.is_empty() && poll(&others, 0) > 0
    }

    fn control(&self, what: i32, fd: RawFd) -> io::Result<()> {
        let edge = if self.edge { libc::EPOLLET as u32 } else { 0 };
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32 | edge,
            u64: self.user_data,
        };
        let set = self.epoll_fd().or(self.user_set).unwrap_or(-1);
        // SAFETY: `event` is valid; the kernel copies it.
        check(unsafe { libc::epoll_ctl(set, what, fd, &mut event) }).map(|_| ())
    }

    /// Empties the pipe: the caller handles what it announced.
    pub fn drain(&self) {
        let mut bytes = [0u8; 64];
        // SAFETY: the buffer has the length that is passed; the descriptor does not block.
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
        // Acquire: pairs with the Release store in `signal`.
        self.signaled.swap(false, Ordering::Acquire) || got == 8
    }

    /// Sleeps until an event; false for an interruption. Not in the user's set, which has other descriptors.
    pub fn wait(&self) -> bool {
        let mut fds = vec![self.pipe.0.as_raw_fd(), self.signal.as_raw_fd()];
        fds.extend(self.others.lock().iter());
        poll(&fds, -1) >= 0
    }
}

/// How many of the descriptors are readable, after at most so many milliseconds (-1: as long as it takes).
pub fn poll(fds: &[RawFd], milliseconds: i32) -> i32 {
    let mut fds: Vec<_> = fds
        .iter()
        .map(|&fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    // SAFETY: as many valid entries as passed.
    unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, milliseconds) }
}

fn check(ret: i32) -> io::Result<i32> {
    if ret < 0 {
        Err(Error::last_os_error())
    } else {
        Ok(ret)
    }
}
