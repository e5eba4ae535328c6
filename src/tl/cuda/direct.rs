//! A copy between memory of this process and memory of a device that another process, or this one, has exported,
//! without host memory in between: of one piece, or of many.

use super::choice::DevicePair;
use super::context::CudaContext;
use super::ipc::{OpenedAllocation, RemoteMemory};
use super::timer::CopyTimer;
use super::track::Track;
use crate::sys::cuda::{CopyBatch, CuContext, CudaError, Event, MemoryKind, StreamCallback};
use crate::sys::sleeper::Sleeper;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

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

/// Allocations of other processes that a copy uses. On drop those that do not stay open without a copy are closed.
struct HeldAllocations {
    shared: Arc<CudaContext>,
    open: Vec<Arc<OpenedAllocation>>,
}

impl HeldAllocations {
    fn new(shared: &Arc<CudaContext>) -> HeldAllocations {
        HeldAllocations {
            shared: Arc::clone(shared),
            open: Vec::new(),
        }
    }
}

impl Drop for HeldAllocations {
    fn drop(&mut self) {
        if let (false, Some(ipc)) = (self.open.is_empty(), &self.shared.ipc) {
            self.open.clear();
            ipc.close_excess();
        }
    }
}

/// Pieces of memory of devices that one context copies, in any order.
pub struct CopyPieces {
    ctx: CuContext,
    batch: CopyBatch,
    /// Bytes.
    len: usize,
    /// Those that the pieces lie in.
    held: HeldAllocations,
}

impl CopyPieces {
    /// No pieces, to be copied in this context.
    pub fn new(shared: &Arc<CudaContext>, ctx: CuContext) -> CopyPieces {
        CopyPieces {
            ctx,
            batch: CopyBatch::default(),
            len: 0,
            held: HeldAllocations::new(shared),
        }
    }

    /// Keeps an allocation open that pieces lie in.
    pub fn hold(&mut self, open: Arc<OpenedAllocation>) {
        self.held.open.push(open);
    }

    /// Adds `len` bytes between the local address `here` and the remote memory, at `there` in this process.
    pub fn push(&mut self, direction: CopyDirection, here: u64, there: u64, len: usize) {
        let (to, from) = direction.order(here, there);
        self.batch.push(to, from, len);
        self.len += len;
    }
}

impl CopyDirection {
    /// Target and source of a copy between a local and a remote address.
    fn order(self, here: u64, there: u64) -> (u64, u64) {
        match self {
            CopyDirection::FromRemote => (here, there),
            CopyDirection::ToRemote => (there, here),
        }
    }
}

/// What a copy moves.
enum CopyWork {
    /// One piece, in parts.
    Range {
        /// Address of the remote memory in this process.
        there: u64,
        local: LocalMemory,
        direction: CopyDirection,
        /// That of the remote memory.
        _held: HeldAllocations,
    },
    /// Many, all at once.
    Pieces(CopyPieces),
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
    work: CopyWork,
    /// Bytes.
    len: usize,
    /// Bytes that were posted.
    posted: usize,
    waker: Option<Arc<CopyWaker>>,
    /// Measures the copy for the choice of later ones.
    measure: Option<(DevicePair, CopyTimer)>,
    begun: Instant,
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
        let (what, measured) = ((remote.ctx, local.len), remote.measured);
        let mut held = HeldAllocations::new(shared);
        held.open.extend(remote.open);
        let work = CopyWork::Range {
            there: remote.addr,
            local,
            direction,
            _held: held,
        };
        // SAFETY: the caller's promise.
        unsafe { DirectCopy::start(shared, work, what, measured, sleeper) }
    }

    /// Begins to copy pieces.
    ///
    /// # Errors
    /// Those of the driver. Nothing copies then.
    ///
    /// # Safety
    /// The local memory is valid until the copy has ended.
    pub unsafe fn begin_pieces(
        shared: &Arc<CudaContext>,
        pieces: CopyPieces,
        sleeper: Option<&Arc<Sleeper>>,
    ) -> Result<DirectCopy, CudaError> {
        let what = (pieces.ctx, pieces.len);
        // SAFETY: the caller's promise.
        unsafe { DirectCopy::start(shared, CopyWork::Pieces(pieces), what, None, sleeper) }
    }

    /// Begins to copy `len` bytes in a context. `measured`: the devices, if the time is of interest.
    ///
    /// # Errors
    /// Those of the driver. Nothing copies then.
    ///
    /// # Safety
    /// The local memory is valid until the copy has ended.
    unsafe fn start(
        shared: &Arc<CudaContext>,
        work: CopyWork,
        (ctx, len): (CuContext, usize),
        measured: Option<DevicePair>,
        sleeper: Option<&Arc<Sleeper>>,
    ) -> Result<DirectCopy, CudaError> {
        let track = shared.track(ctx)?;
        let waker = sleeper.map(|worker| CopyWaker {
            is_due: AtomicBool::new(false),
            worker: Arc::clone(worker),
        });
        let mut copy = DirectCopy {
            shared: Arc::clone(shared),
            work,
            len,
            posted: 0,
            waker: waker.map(Arc::new),
            measure: measured.and_then(|pair| measure(shared, ctx, pair)),
            begun: Instant::now(),
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
        if self.posted == self.len {
            self.shared.pace.add(self.len, self.begun.elapsed());
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
            CopyProgress::Idle(track) if result.is_ok() => {
                self.end_measure(&track, true);
                self.shared.keep_track(track);
            }
            CopyProgress::Running(track, _) | CopyProgress::Idle(track) => {
                // An error means that its copies have ended, too.
                let _ = track.drain(cuda);
                self.end_measure(&track, false);
                track.destroy(cuda);
            }
            CopyProgress::Ended(_) => {}
        }
        result
    }

    /// Nothing copies any more. `has_copied`: all was copied.
    fn end_measure(&mut self, track: &Track, has_copied: bool) {
        let (Some((pair, timer)), cuda) = (self.measure.take(), self.shared.cuda) else {
            return;
        };
        // A context that is gone has taken the marks along.
        let Ok(_current) = cuda.enter(track.ctx) else {
            return;
        };
        if let Some(took) = timer.elapsed(cuda).filter(|_| has_copied) {
            self.shared.choices.add(pair, self.len, took);
        }
        timer.destroy(cuda);
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
        let _current = cuda.enter(track.ctx)?;
        if let Some(waker) = &self.waker {
            // Relaxed: the stream has done all parts before, and calls back once for each.
            waker.is_due.store(false, Ordering::Relaxed);
        }
        if let Some((_, timer)) = self.measure.as_ref().filter(|_| self.posted == 0) {
            timer.begin(cuda, track)?;
        }
        match &mut self.work {
            CopyWork::Range {
                there,
                local,
                direction,
                ..
            } => {
                let step = match local.kind {
                    MemoryKind::Host => HOST_STEP,
                    MemoryKind::Device | MemoryKind::Managed => usize::MAX,
                };
                let (at, len) = (self.posted as u64, step.min(self.len - self.posted));
                let (to, from) = direction.order(local.addr + at, *there + at);
                // SAFETY: the caller's promise; the range is inside of the allocation, which stays open.
                unsafe { cuda.copy(to, from, len, &track.stream) }?;
                self.posted += len;
            }
            CopyWork::Pieces(pieces) => {
                // SAFETY: the caller's promise; no piece is the host's; those of the peer are in allocations that stay
                // open.
                unsafe { pieces.batch.begin(cuda, &track.stream, true) }?;
                self.posted = self.len;
            }
        }
        if let Some((_, timer)) = self.measure.as_ref().filter(|_| self.posted == self.len) {
            timer.end(cuda, track)?;
        }
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
            self.end_measure(&track, false);
            track.destroy(self.shared.cuda);
        }
    }
}

/// What measures a copy in a context. `None`: the driver has no marks.
fn measure(
    shared: &CudaContext,
    ctx: CuContext,
    pair: DevicePair,
) -> Option<(DevicePair, CopyTimer)> {
    let _current = shared.cuda.enter(ctx).ok()?;
    Some((pair, CopyTimer::new(shared.cuda).ok()?))
}
