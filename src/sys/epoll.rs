//! An epoll set of sockets: which of them are readable or writable.

use crate::sys::descriptor::OwnedDescriptor;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
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
        Ok(Self {
            fd: OwnedDescriptor::new(epoll::create(CreateFlags::CLOEXEC)?),
            writing: AtomicUsize::new(0),
            turn: AtomicU32::new(0),
        })
    }

    /// Starts to watch a socket for reading, and if `write` also for writability. The kernel removes it from the set
    /// when it is closed.
    ///
    /// # Errors
    /// `ENOSPC`, `ENOMEM`.
    pub fn add(&self, fd: impl AsFd, token: u64, write: bool) -> io::Result<()> {
        epoll::add(&self.fd, fd, EventData::new_u64(token), wanted(write))?;
        if write {
            self.writing.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Starts or stops to watch for writability. The caller passes the opposite of the present state.
    pub fn watch_room(&self, fd: impl AsFd, token: u64, write: bool) {
        // This fails only for a descriptor that is not in the set, and this one is.
        let _ = epoll::modify(&self.fd, fd, EventData::new_u64(token), wanted(write));
        if write {
            self.writing.fetch_add(1, Ordering::Relaxed);
        } else {
            self.writing.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Stops watching. `write`: the socket was watched for writability.
    pub fn remove(&self, fd: impl AsFd, write: bool) {
        let _ = epoll::delete(&self.fd, fd);
        if write {
            self.writing.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The sockets that are ready, without waiting. `None`: the program has closed the descriptor of the set, and
    /// therefore probably those of the sockets.
    pub fn poll(&self) -> Option<impl Iterator<Item = SocketEvent> + use<>> {
        let none = Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        };
        let mut events = [none; BATCH];
        let got = match epoll::wait(&self.fd, &mut events, Some(&Timespec::default())) {
            Ok(got) => got,
            Err(Errno::BADF | Errno::INVAL) => return None,
            Err(_) => 0,
        };
        let ended = EventFlags::ERR | EventFlags::HUP;
        Some(events.into_iter().take(got).map(move |event| {
            // A copy: the fields of the kernel's structure are not aligned.
            let Event { flags, data } = event;
            SocketEvent {
                token: data.u64(),
                read: flags.intersects(EventFlags::IN | ended),
                write: flags.intersects(EventFlags::OUT | ended),
            }
        }))
    }
}

impl AsFd for Epoll {
    /// Readable while one of its sockets is ready.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What to watch a socket for. `write`: also for writability.
fn wanted(write: bool) -> EventFlags {
    let mut events = EventFlags::IN;
    events.set(EventFlags::OUT, write);
    events
}
