//! A copy between memory of this process and memory of a device that another process, or this one, has exported,
//! without host memory in between.

use super::context::CudaContext;
use super::ipc::RemoteMemory;
use super::track::Track;
use crate::sys::cuda::{CudaError, Event, MemoryKind, StreamCallback};
use crate::sys::sleeper::Sleeper;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Longest part of a copy from or to memory of the host, bytes: the driver copies memory that is not pinned inside of
/// the call.
const HOST_STEP: usize = 4 << 20;

/// In which direction the bytes move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyDirection {
    FromRemote,
    ToRemote,
}

/// The memory of this process.
#[derive(Clone, Copy, Debug)]
pub struct LocalMemory {
    pub addr: u64,
    /// Bytes.
    pub len: usize,
    pub kind: MemoryKind,
}

/// Wakes the worker when a part of a copy has ended.
struct CopyWaker {
    /// A part has ended since the last one was posted.
    is_due: AtomicBool,
    worker: Arc<Sleeper>,
}

impl StreamCallback for CopyWaker {
    fn reached(&self) {
        // SeqCst: before the fence of `wake`, which pairs with `arm`; after that the worker reads the flag.
        self.is_due.store(true, Ordering::SeqCst);
        self.worker.wake();
    }
}

/// A copy that has begun. Dropped early it waits for its end.
pub struct DirectCopy {
    shared: Arc<CudaContext>,
    /// Keeps the allocation open.
    remote: RemoteMemory,
    local: LocalMemory,
    direction: CopyDirection,
    /// Bytes that were posted.
    posted: usize,
    waker: Option<Arc<CopyWaker>>,
    progress: CopyProgress,
}

enum CopyProgress {
    /// The stream copies up to the mark.
    Running(Track, Event),
    /// Nothing is posted.
    Idle(Track),
    Ended(Result<(), CudaError>),
}

impl DirectCopy {
    /// Begins a copy. `sleeper`: the worker, if it may sleep until the end.
    ///
    /// # Errors
    /// Those of the driver. Nothing copies then.
    ///
    /// # Safety
    /// The local memory is valid until the copy has ended.
    pub unsafe fn begin(
        shared: &Arc<CudaContext>,
        remote: RemoteMemory,
        local: LocalMemory,
        direction: CopyDirection,
        sleeper: Option<&Arc<Sleeper>>,
    ) -> Result<DirectCopy, CudaError> {
        let track = shared.track(remote.ctx)?;
        let waker = sleeper.map(|worker| CopyWaker {
            is_due: AtomicBool::new(false),
            worker: Arc::clone(worker),
        });
        let mut copy = DirectCopy {
            shared: Arc::clone(shared),
            remote,
            local,
            direction,
            posted: 0,
            waker: waker.map(Arc::new),
            progress: CopyProgress::Idle(track),
        };
        // SAFETY: the caller's promise. After an error the drop waits for what was posted.
        unsafe { copy.post_next() }?;
        Ok(copy)
    }

    /// Whether the copy may have ended, or its next part is to be posted, as far as is known without the driver: a
    /// worker that has a waker need not look before.
    pub fn is_due(&self) -> bool {
        // SeqCst: pairs with the store in `reached`.
        let due = |waker: &Arc<CopyWaker>| waker.is_due.load(Ordering::SeqCst);
        self.waker.as_ref().is_none_or(due)
    }

    /// Looks at the copy, and posts its next part. `None`: it has not ended. After its end nothing accesses the memory.
    pub fn poll(&mut self) -> Option<Result<(), CudaError>> {
        let (track, event) = match &self.progress {
            CopyProgress::Running(track, event) => (track, event),
            CopyProgress::Idle(_) => return None,
            CopyProgress::Ended(end) => return Some(*end),
        };
        let cuda = self.shared.cuda;
        let passed = (cuda.enter(track.ctx)).and_then(|_current| cuda.has_passed(event));
        match passed {
            Ok(false) => None,
            Ok(true) => self.go_on(),
            Err(e) => Some(self.end(Err(e))),
        }
    }

    /// Waits for the end of the copy, whose result [`poll`](Self::poll) returns.
    pub fn wait(&mut self) {
        while self.poll().is_none() {
            if let CopyProgress::Running(track, _) = &self.progress
                && let Err(e) = track.drain(self.shared.cuda)
            {
                let _ = self.end(Err(e));
            }
        }
    }

    /// The stream has passed the mark: posts the next part, or ends.
    fn go_on(&mut self) -> Option<Result<(), CudaError>> {
        if let CopyProgress::Running(mut track, event) = self.take() {
            track.put_back(event);
            self.progress = CopyProgress::Idle(track);
        }
        if self.posted == self.local.len {
            return Some(self.end(Ok(())));
        }
        // SAFETY: the memory is valid until the copy has ended.
        let posted = unsafe { self.post_next() };
        posted.err().map(|e| self.end(Err(e)))
    }

    /// Ends: nothing copies any more. Returns the result of the copy.
    fn end(&mut self, result: Result<(), CudaError>) -> Result<(), CudaError> {
        let cuda = self.shared.cuda;
        match std::mem::replace(&mut self.progress, CopyProgress::Ended(result)) {
            CopyProgress::Idle(track) if result.is_ok() => self.shared.keep_track(track),
            CopyProgress::Running(track, _) | CopyProgress::Idle(track) => {
                // An error means that its copies have ended, too.
                let _ = track.drain(cuda);
                track.destroy(cuda);
            }
            CopyProgress::Ended(_) => {}
        }
        result
    }

    fn take(&mut self) -> CopyProgress {
        std::mem::replace(&mut self.progress, CopyProgress::Ended(Ok(())))
    }

    /// Posts the next part, and a mark behind it.
    ///
    /// # Safety
    /// The local memory is valid until the copy has ended.
    unsafe fn post_next(&mut self) -> Result<(), CudaError> {
        let cuda = self.shared.cuda;
        let CopyProgress::Idle(track) = &mut self.progress else {
            return Ok(());
        };
        let step = match self.local.kind {
            MemoryKind::Host => HOST_STEP,
            MemoryKind::Device | MemoryKind::Managed => usize::MAX,
        };
        let (at, len) = (self.posted, step.min(self.local.len - self.posted));
        let (there, here) = (self.remote.addr + at as u64, self.local.addr + at as u64);
        let (to, from) = match self.direction {
            CopyDirection::FromRemote => (here, there),
            CopyDirection::ToRemote => (there, here),
        };
        let _current = cuda.enter(track.ctx)?;
        if let Some(waker) = &self.waker {
            // Relaxed: the stream has done all parts before, and calls back once for each.
            waker.is_due.store(false, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise; the range is inside of the allocation, which stays open.
        unsafe { cuda.copy(to, from, len, &track.stream) }?;
        self.posted += len;
        if let Some(waker) = &self.waker
            && cuda.call_back(&track.stream, waker).is_err()
        {
            // The worker does not sleep meanwhile.
            waker.is_due.store(true, Ordering::Relaxed);
        }
        // Behind the callback: when the mark is passed, that was called.
        let event = track.record_event(cuda)?;
        if let CopyProgress::Idle(track) = self.take() {
            self.progress = CopyProgress::Running(track, event);
        }
        Ok(())
    }
}

impl Drop for DirectCopy {
    fn drop(&mut self) {
        // Also behind an idle stream there may be a copy: one that could not be marked.
        if let CopyProgress::Running(track, _) | CopyProgress::Idle(track) = self.take() {
            // An error means that its copies have ended, too.
            let _ = track.drain(self.shared.cuda);
            track.destroy(self.shared.cuda);
        }
    }
}
