//! Wakes a thread that sleeps in a wait for descriptors, from other threads of the process.

use super::descriptor::OwnedDescriptor;
use rustix::io::write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// What a thread shares with those that wake it.
pub struct Sleeper {
    /// The thread sleeps, or is about to.
    asleep: AtomicBool,
    /// The pipe on whose other end it waits. Does not block.
    pipe: Arc<OwnedDescriptor<OwnedFd>>,
}

impl Sleeper {
    /// One that does not sleep.
    pub fn new(pipe: Arc<OwnedDescriptor<OwnedFd>>) -> Sleeper {
        Sleeper {
            asleep: AtomicBool::new(false),
            pipe,
        }
    }

    /// The pipe.
    pub fn pipe(&self) -> &Arc<OwnedDescriptor<OwnedFd>> {
        &self.pipe
    }

    /// The thread is about to sleep: after this it checks once more for work.
    pub fn arm(&self) {
        // SeqCst: before the check for work. Pairs with the fence in `wake`, which comes after new work.
        self.asleep.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The opposite of [`arm`](Self::arm).
    pub fn disarm(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// There is work: wakes the thread if it sleeps.
    pub fn wake(&self) {
        // SeqCst: pairs with the store in `arm`.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            // A full pipe wakes as well.
            let _ = write(&*self.pipe, &[1]);
        }
    }
}
