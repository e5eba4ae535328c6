//! How a worker sleeps: a pipe that senders write to, an eventfd for `ucp_worker_signal`, descriptors of other
//! transports, and an epoll set of all of them.

#[cfg(not(loom))]
use super::futex_waker::FutexWaker;
use super::peer_monitor::PeerMonitor;
use crate::sys::descriptor::OwnedDescriptor;
use crate::sys::eventfd::EventFd;
use crate::sys::poll::wait_readable;
use crate::sys::sleeper::Sleeper;
#[cfg(not(loom))]
use crate::sys::sync::AtomicU32;
use crate::sys::sync::OnceLock;
use parking_lot::Mutex;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::{Errno, read};
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
#[cfg(not(loom))]
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The pipe by which other processes, and threads of this one, wake a sleeping worker. Neither end blocks.
struct WakePipe {
    read: OwnedDescriptor<OwnedFd>,
    /// Senders write here when the inbox is armed, and so do the thread of the futex waker and other threads of the
    /// process.
    sleeper: Arc<Sleeper>,
}

/// Parameters of a worker that concern its wakeup.
pub struct WakeupParams {
    /// Data of each event in the user's epoll set.
    pub user_data: *mut c_void,
    /// The user's epoll descriptor.
    pub event_fd: Option<i32>,
    /// Events of the user's epoll set are edge-triggered.
    pub edge: bool,
}

/// Descriptors of a worker with `UCP_FEATURE_WAKEUP`.
pub struct Wakeup {
    #[cfg(not(loom))]
    futex_waker: OnceLock<FutexWaker>,
    /// The epoll set that the user waits on; `None` if the user supplied one.
    epoll: Option<OwnedDescriptor<OwnedFd>>,
    pipe: WakePipe,
    /// Set by `ucp_worker_signal`.
    signal: EventFd,
    /// A signal was given and not yet taken.
    signaled: AtomicBool,
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
    /// Makes the descriptors.
    ///
    /// # Errors
    /// `EMFILE` and the like.
    pub fn new(params: &WakeupParams) -> io::Result<Self> {
        let (read_end, write_end) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)?;
        let epoll = match params.event_fd {
            Some(_) => None,
            None => Some(OwnedDescriptor::new(epoll::create(CreateFlags::CLOEXEC)?)),
        };
        let wake = Self {
            #[cfg(not(loom))]
            futex_waker: OnceLock::new(),
            epoll,
            pipe: WakePipe {
                read: OwnedDescriptor::new(read_end),
                sleeper: Arc::new(Sleeper::new(Arc::new(OwnedDescriptor::new(write_end)))),
            },
            signal: EventFd::new()?,
            signaled: AtomicBool::new(false),
            user_set: params.event_fd,
            edge: params.edge,
            user_data: params.user_data as u64,
            others: Mutex::default(),
            watch: OnceLock::new(),
        };
        for fd in [wake.pipe.read.as_fd(), wake.signal.as_fd()] {
            wake.watch_fd(fd)?;
        }
        Ok(wake)
    }

    /// The descriptor that wakes the worker when a sender writes to it.
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.pipe.sleeper.pipe().as_fd()
    }

    /// Starts the thread for senders that cannot open the pipe, and increment and wake this futex instead. Once; before
    /// the first sleep.
    ///
    /// # Safety
    /// The futex outlives `self`.
    #[cfg(not(loom))]
    pub unsafe fn listen(&self, futex: NonNull<AtomicU32>) {
        // SAFETY: the caller's promise.
        self.futex_waker
            .get_or_init(|| unsafe { FutexWaker::new(futex, self.pipe.sleeper.pipe().clone()) });
    }

    /// Whether the descriptors are still the worker's: the program can have closed them all.
    pub fn is_intact(&self) -> bool {
        self.pipe.read.is_intact()
    }

    /// The worker is about to sleep: after this the caller checks once more for work.
    pub fn arm(&self) {
        self.pipe.sleeper.arm();
    }

    /// The opposite of [`arm`](Self::arm).
    pub fn disarm(&self) {
        self.pipe.sleeper.disarm();
    }

    /// Another thread of this process has left work: wakes the worker if it sleeps.
    pub fn wake(&self) {
        self.pipe.sleeper.wake();
    }

    /// What wakes the worker from threads that outlive it.
    pub fn sleeper(&self) -> &Arc<Sleeper> {
        &self.pipe.sleeper
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
    pub fn add(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.watch_fd(fd)?;
        self.others.lock().push(fd.as_raw_fd());
        Ok(())
    }

    /// The opposite of [`add`](Self::add).
    pub fn remove(&self, fd: BorrowedFd<'_>) {
        self.others.lock().retain(|&other| other != fd.as_raw_fd());
        if let Some(set) = self.set() {
            // The user may have closed the epoll set, and with it its entries.
            let _ = epoll::delete(set, fd);
        }
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
            // Another thread may have made it meanwhile.
            if self.watch.set(watch).is_ok()
                && let Some(watch) = self.watch.get()
            {
                self.add(watch.as_fd())?;
            }
        }
        self.watch.get().ok_or_else(|| Errno::NOENT.into())
    }

    /// Whether one of the added descriptors is readable.
    pub fn pending(&self) -> bool {
        let others = self.others.lock().clone();
        let now = Some(Duration::ZERO);
        !others.is_empty()
            && wait_readable(others.into_iter().filter_map(borrowed), now)
                .is_ok_and(|ready| ready > 0)
    }

    /// The epoll set of the worker: its own, or the user's.
    fn set(&self) -> Option<BorrowedFd<'_>> {
        let own = self.epoll.as_ref().map(AsFd::as_fd);
        own.or_else(|| borrowed(self.user_set?))
    }

    /// Adds a descriptor to the epoll set.
    fn watch_fd(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let set = self.set().ok_or(Errno::BADF)?;
        let mut events = EventFlags::IN;
        events.set(EventFlags::ET, self.edge);
        epoll::add(set, fd, EventData::new_u64(self.user_data), events)?;
        Ok(())
    }

    /// Empties the pipe: the caller handles what it announced.
    pub fn drain(&self) {
        let mut bytes = [0u8; 64];
        // The descriptor does not block.
        while read(&self.pipe.read, &mut bytes).is_ok_and(|got| got > 0) {}
    }

    /// Wakes the worker once, from any thread.
    pub fn signal(&self) {
        // Release: pairs with the Acquire swap in `take_signal`.
        self.signaled.store(true, Ordering::Release);
        self.signal.signal();
    }

    /// Whether there was a signal since the last call.
    pub fn take_signal(&self) -> bool {
        let taken = self.signal.take();
        // Acquire: pairs with the Release store in `signal`.
        self.signaled.swap(false, Ordering::Acquire) || taken
    }

    /// Sleeps until an event; false for an interruption. Not in the user's set, which has other descriptors.
    pub fn wait(&self) -> bool {
        let others = self.others.lock().clone();
        let own = [self.pipe.read.as_fd(), self.signal.as_fd()];
        let fds = own
            .into_iter()
            .chain(others.into_iter().filter_map(borrowed));
        wait_readable(fds, None).is_ok()
    }
}

/// A descriptor of another owner: of the user, or one that was added. `None` for a negative number, which names none.
fn borrowed<'a>(fd: RawFd) -> Option<BorrowedFd<'a>> {
    // SAFETY: not -1. Its owner keeps it open as long as the worker uses it, and removes an added one before closing.
    // Where the program has closed it all the same, the system call fails.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}
