//! A thread that turns a word of shared memory into a byte in a pipe: how senders that cannot open the pipe (they are
//! in another PID namespace, or /proc does not let them) wake a worker that sleeps.

use crate::sys::descriptor::OwnedDescriptor;
use crate::sys::sync::AtomicU32;
use crate::sys::thread::without_signals;
use crate::sys::{futex, log};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

/// Bytes of the thread's stack.
const STACK: usize = 64 << 10;

/// The thread. It ends when this is dropped.
pub struct FutexWaker {
    word: Word,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone, Copy)]
struct Word(NonNull<AtomicU32>);

// SAFETY: the word is an atomic, and outlives the thread, as `FutexWaker::new` requires.
unsafe impl Send for Word {}
// SAFETY: the word is an atomic, and outlives the thread.
unsafe impl Sync for Word {}

impl Word {
    fn get(&self) -> &AtomicU32 {
        // SAFETY: the word outlives the thread, as `FutexWaker::new` requires.
        unsafe { self.0.as_ref() }
    }
}

impl FutexWaker {
    /// Starts the thread: from now on, and if the word is not 0 at once, a change of the word is a byte in the pipe.
    ///
    /// # Safety
    /// The word, which other processes change, outlives the value.
    pub unsafe fn new(word: NonNull<AtomicU32>, pipe: Arc<OwnedDescriptor<OwnedFd>>) -> Self {
        let (word, stop) = (Word(word), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let listen = move || {
            let mut seen = 0;
            loop {
                // Acquire: pairs with the Release add of a sender, and with that in `drop`, which stores `stop` before.
                let now = word.get().load(Ordering::Acquire);
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                if now != seen {
                    seen = now;
                    // A full pipe wakes as well.
                    let _ = rustix::io::write(&*pipe, &[1]);
                }
                futex::wait(word.get(), now);
            }
        };
        let builder = Builder::new().name("rucp-waker".into()).stack_size(STACK);
        let thread = without_signals(|| builder.spawn(listen));
        if let Err(e) = &thread {
            log::warn!("no thread for wakeups from other containers: {e}");
        }
        Self {
            word,
            stop,
            thread: thread.ok(),
        }
    }
}

impl Drop for FutexWaker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Release: pairs with the Acquire load of the thread.
        self.word.get().fetch_add(1, Ordering::Release);
        futex::wake(self.word.get());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
