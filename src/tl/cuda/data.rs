//! The bytes of one operation in memory of GPUs.
//!
//! They are copied by way of pinned host memory, in fragments. A source is read ahead: while the processor takes bytes
//! out of one fragment, devices fill the next ones. A target is written behind: while devices take bytes out of
//! fragments, the processor fills the next one. So the slower of the two sets the pace.

use super::context::CudaContext;
use super::fragment::{Fragment, Phase};
use super::lookup::Lookup;
use super::pieces::DevicePieces;
use super::track::Track;
use crate::ctypes::*;
use crate::sys::cuda::{CopyBatch, CudaError, MemoryInfo, MemoryKind, Pinned};
use crate::sys::log;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Fragments of one operation that are copied at once.
const DEPTH: usize = 3;

/// The memory of one operation. Its methods may be called by several threads, one after the other.
pub struct DeviceData {
    pieces: DevicePieces,
    /// Bytes.
    len: usize,
    /// Memory of a device among it.
    memory: MemoryInfo,
    /// Adapters may write to it. Relaxed: set and read by the threads that own the operation, one after the other.
    by_adapters: AtomicBool,
    state: Mutex<State>,
}

// SAFETY: the user's list and memory are valid until the operation completes, whichever thread progresses it.
unsafe impl Send for DeviceData {}
// SAFETY: the pieces do not change, and all else is behind the lock.
unsafe impl Sync for DeviceData {}

struct State {
    shared: Arc<CudaContext>,
    lookup: Lookup,
    tracks: Vec<Track>,
    /// In the order of their bytes.
    fragments: VecDeque<Fragment>,
    /// The first copy that has failed: nothing is copied after it.
    failed: Option<Failure>,
}

/// Why no more bytes are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    Driver(CudaError),
    /// The system gives no memory for a fragment.
    Memory,
}

impl From<CudaError> for Failure {
    fn from(e: CudaError) -> Failure {
        Failure::Driver(e)
    }
}

/// In which direction devices copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copies {
    FromDevice,
    ToDevice,
}

impl DeviceData {
    /// The data of an operation of `len` bytes. `lookup`: the driver's answers up to now; `memory`: memory of a device
    /// among the pieces.
    pub fn new(
        shared: &Arc<CudaContext>,
        (pieces, len): (DevicePieces, usize),
        lookup: Lookup,
        memory: MemoryInfo,
    ) -> DeviceData {
        DeviceData {
            pieces,
            len,
            memory,
            by_adapters: AtomicBool::new(false),
            state: Mutex::new(State {
                shared: Arc::clone(shared),
                lookup,
                tracks: Vec::new(),
                fragments: VecDeque::new(),
                failed: None,
            }),
        }
    }

    /// The memory, if it is one piece: its address, and what the driver knows of it.
    pub fn as_contig(&self) -> Option<(u64, MemoryInfo)> {
        match self.pieces {
            DevicePieces::Contig { addr } => Some((addr, self.memory)),
            DevicePieces::Iov { .. } => None,
        }
    }

    /// Whether peers may be offered a handle of it.
    pub fn is_exportable(&self) -> bool {
        self.as_contig().is_some() && self.state.lock().shared.has_ipc()
    }

    /// Adapters may write to the memory until the operation ends.
    pub fn note_adapters(&self) {
        self.by_adapters.store(true, Ordering::Relaxed);
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The kind of the memory of a device among it.
    pub fn kind(&self) -> MemoryKind {
        self.memory.kind
    }

    /// Begins to read the first bytes, and waits for them if they are all that there are.
    ///
    /// # Errors
    /// `UCS_ERR_IO_ERROR` if they cannot be read: nothing of the operation needs to begin.
    ///
    /// # Safety
    /// The memory is the user's, valid until the operation completes.
    pub unsafe fn read_ahead(&self) -> Result<(), ucs_status_t> {
        let mut state = self.state.lock();
        // SAFETY: the caller's promise.
        unsafe { state.read_from(self, 0) };
        if state.fragments.len() == 1 {
            state.wait_for_fragment(0);
        }
        state.status()
    }

    /// Waits until `n` bytes from `offset` on are read, at most a fragment's: [`pack`](Self::pack) of them cannot fail.
    ///
    /// # Errors
    /// `UCS_ERR_IO_ERROR` after a failure.
    ///
    /// # Safety
    /// The range is inside of the data; the memory is the user's, valid until the operation completes.
    pub unsafe fn wait_for(&self, offset: usize, n: usize) -> Result<(), ucs_status_t> {
        let mut state = self.state.lock();
        // SAFETY: the caller's promise.
        unsafe { state.begin_at(self, offset) };
        let end = offset + n;
        let used = (state.fragments.iter()).take_while(|f| f.bytes.start < end);
        for i in 0..used.count() {
            state.wait_for_fragment(i);
        }
        state.status()
    }

    /// Writes `n` bytes from `offset` on to `dst`. Zeros after a failure, which [`finish`](Self::finish) returns.
    ///
    /// # Safety
    /// The range is inside of the data; `dst` has room; the memory is the user's, valid until the operation completes.
    pub unsafe fn pack(&self, mut offset: usize, mut dst: *mut u8, mut n: usize) {
        let mut state = self.state.lock();
        while n > 0 {
            // SAFETY: the caller's promise.
            let part = unsafe { state.source(self, offset, n) };
            let Some(part) = part else {
                // SAFETY: `dst` has room for `n`.
                unsafe { ptr::write_bytes(dst, 0, n) };
                return;
            };
            let len = part.len();
            // SAFETY: bytes of a fragment that no device writes; `dst` has room for `n`, which are no more.
            unsafe {
                ptr::copy_nonoverlapping(part.as_ptr(), dst, len);
                dst = dst.add(len);
            }
            (offset, n) = (offset + len, n - len);
            // SAFETY: the caller's promise.
            unsafe { state.pass(self, offset) };
        }
    }

    /// Stores `n` bytes that belong at `offset`. A failure may be returned by [`finish`](Self::finish) only.
    ///
    /// # Errors
    /// `UCS_ERR_IO_ERROR` after a failure.
    ///
    /// # Safety
    /// The range is inside of the data; `n` bytes are readable at `src`; the memory is the user's, valid until the
    /// operation completes.
    pub unsafe fn unpack(
        &self,
        mut offset: usize,
        mut src: *const u8,
        mut n: usize,
    ) -> Result<(), ucs_status_t> {
        let mut state = self.state.lock();
        while n > 0 {
            // SAFETY: the caller's promise.
            let room = unsafe { state.room_at(self, offset) };
            let Some(room) = room else {
                return Err(UCS_ERR_IO_ERROR);
            };
            let part = room.len().min(n);
            // SAFETY: room in a fragment that no device reads; `src` has `n` bytes.
            unsafe {
                ptr::copy_nonoverlapping(src, room.as_mut_ptr(), part);
                src = src.add(part);
            }
            (offset, n) = (offset + part, n - part);
            state.fill(offset);
        }
        Ok(())
    }

    /// Ends the copies: all bytes that were unpacked are in place. Returns the operation's status, which was `status`
    /// before.
    ///
    /// # Safety
    /// Nothing else of the data is called any more. The memory is the user's, and still valid.
    pub unsafe fn finish(&self, status: ucs_status_t) -> ucs_status_t {
        let mut state = self.state.lock();
        // SAFETY: the caller's promise.
        unsafe { state.write_back(self) };
        state.drain();
        if status == UCS_OK
            && self.by_adapters.load(Ordering::Relaxed)
            && let Err(e) = state.shared.flush_adapter_writes(&self.memory)
        {
            state.fail(Failure::Driver(e));
        }
        match status {
            UCS_OK => state.status().err().unwrap_or(UCS_OK),
            status => status,
        }
    }
}

impl State {
    fn status(&self) -> Result<(), ucs_status_t> {
        match self.failed {
            None => Ok(()),
            Some(_) => Err(UCS_ERR_IO_ERROR),
        }
    }

    /// Remembers the first failure. No device uses a buffer afterwards.
    #[cold]
    fn fail(&mut self, failure: Failure) {
        for track in &self.tracks {
            // An error means that its copies have ended, too.
            let _ = track.drain(self.shared.cuda);
        }
        if self.failed.is_some() {
            return;
        }
        match failure {
            Failure::Driver(e) => log::error!("a copy of a device's memory has failed: {e}"),
            Failure::Memory => log::error!("no memory for a copy of a device's memory"),
        }
        self.failed = Some(failure);
    }

    /// Up to `n` bytes of the source at `offset`, in a fragment that is read. `None` after a failure.
    unsafe fn source(&mut self, data: &DeviceData, offset: usize, n: usize) -> Option<&[u8]> {
        // SAFETY: the caller's promise.
        unsafe { self.begin_at(data, offset) };
        self.wait_for_fragment(0);
        let front = (self.fragments.front()).filter(|_| self.failed.is_none())?;
        let at = offset - front.bytes.start;
        let len = n.min(front.bytes.end - offset);
        // SAFETY: the buffer holds these bytes, and its copies have ended.
        Some(unsafe { std::slice::from_raw_parts(front.buffer.ptr().add(at), len) })
    }

    /// Makes the first fragment the one with the byte at `offset`.
    unsafe fn begin_at(&mut self, data: &DeviceData, offset: usize) {
        let follows = |f: &Fragment| f.bytes.contains(&offset);
        if !self.fragments.front().is_some_and(follows) {
            // The first bytes, or a new beginning: a record is sent again.
            self.drain();
            // SAFETY: the caller's promise.
            unsafe { self.read_from(data, offset) };
        }
    }

    /// Called when the bytes in front of `offset` were taken: a fragment that has no others makes room.
    unsafe fn pass(&mut self, data: &DeviceData, offset: usize) {
        let is_taken = |f: &Fragment| f.bytes.end == offset;
        if !self.fragments.front().is_some_and(is_taken) {
            return;
        }
        let next = self.fragments.back().map_or(offset, |f| f.bytes.end);
        if let Some(fragment) = self.fragments.pop_front() {
            self.shared.keep_buffer(fragment.buffer);
        }
        // SAFETY: the caller's promise.
        unsafe { self.read_from(data, next) };
    }

    /// Begins to read fragments from `offset` on, as many as may be copied at once.
    unsafe fn read_from(&mut self, data: &DeviceData, offset: usize) {
        let len = CudaContext::fragment(data.len, data.pieces.count());
        let mut begin = offset;
        while begin < data.len && self.fragments.len() < DEPTH && self.failed.is_none() {
            let end = data.len.min(begin + len);
            match self.buffer(data) {
                Ok(buffer) => {
                    let fragment = Fragment::new(buffer, begin..end, Phase::Device);
                    // SAFETY: the caller's promise.
                    unsafe { self.begin(data, fragment, Copies::FromDevice) };
                }
                Err(failure) => self.fail(failure),
            }
            begin = end;
        }
    }

    /// Room in the fragment in which the byte at `offset` is put, at least for one. `None` after a failure.
    unsafe fn room_at(&mut self, data: &DeviceData, offset: usize) -> Option<&mut [u8]> {
        let capacity = CudaContext::fragment(data.len, data.pieces.count());
        let has_room = |f: &Fragment| {
            f.phase == Phase::Processor && f.bytes.end == offset && f.bytes.len() < capacity
        };
        if !self.fragments.back().is_some_and(has_room) {
            // SAFETY: the caller's promise.
            unsafe { self.write_back(data) };
            match self.empty_buffer(data) {
                Ok(buffer) => {
                    let fragment = Fragment::new(buffer, offset..offset, Phase::Processor);
                    self.fragments.push_back(fragment);
                }
                Err(failure) => self.fail(failure),
            }
        }
        let back = (self.fragments.back()).filter(|_| self.failed.is_none())?;
        let filled = back.bytes.len();
        // SAFETY: the buffer has room for `capacity` bytes, and no device uses it.
        Some(unsafe {
            std::slice::from_raw_parts_mut(back.buffer.ptr().add(filled), capacity - filled)
        })
    }

    /// Called when the last fragment has been filled up to `offset`.
    fn fill(&mut self, offset: usize) {
        if let Some(back) = self.fragments.back_mut() {
            back.bytes.end = offset;
        }
    }

    /// Begins to write the last fragment to its place, if the processor has filled it.
    unsafe fn write_back(&mut self, data: &DeviceData) {
        let is_filled = |f: &Fragment| f.phase == Phase::Processor && !f.bytes.is_empty();
        if !self.fragments.back().is_some_and(is_filled) || self.failed.is_some() {
            return;
        }
        if let Some(mut fragment) = self.fragments.pop_back() {
            fragment.phase = Phase::Device;
            // SAFETY: the caller's promise.
            unsafe { self.begin(data, fragment, Copies::ToDevice) };
        }
    }

    /// Begins the copies of a fragment, which becomes the last one.
    ///
    /// # Safety
    /// The memory is the user's, valid until the operation completes.
    unsafe fn begin(&mut self, data: &DeviceData, mut fragment: Fragment, copies: Copies) {
        // SAFETY: the caller's promise; nothing else uses the buffer until the marks are passed, or after `fail`.
        let begun = unsafe { self.copy(data, &mut fragment, copies) };
        self.fragments.push_back(fragment);
        if let Err(failure) = begun {
            self.fail(failure);
        }
    }

    /// A buffer for a target: that of the oldest fragment where there are enough.
    fn empty_buffer(&mut self, data: &DeviceData) -> Result<Pinned, Failure> {
        if self.fragments.len() < DEPTH {
            return self.buffer(data);
        }
        self.wait_for_fragment(0);
        let oldest = self.fragments.pop_front().ok_or(Failure::Memory)?;
        Ok(oldest.buffer)
    }

    /// A buffer that nothing uses.
    fn buffer(&mut self, data: &DeviceData) -> Result<Pinned, Failure> {
        let ctx = self.shared.context_of(&data.memory)?;
        self.shared.buffer(ctx).map_err(|_| Failure::Memory)
    }

    /// Copies a fragment from or to its place: what the processor reaches at once, the rest until the marks are passed.
    ///
    /// # Safety
    /// The memory is the user's and valid; nothing else uses the buffer until the marks are passed.
    unsafe fn copy(
        &mut self,
        data: &DeviceData,
        fragment: &mut Fragment,
        copies: Copies,
    ) -> Result<(), Failure> {
        let cuda = self.shared.cuda;
        let mut at = fragment.buffer.ptr();
        // The copies of each stream.
        let mut batches: Vec<(usize, CopyBatch)> = Vec::new();
        let add_piece = |addr: u64, len: usize| {
            let (to, from) = match copies {
                Copies::FromDevice => (at as u64, addr),
                Copies::ToDevice => (addr, at as u64),
            };
            at = at.wrapping_add(len);
            let memory = self.lookup.at(&self.shared, addr);
            if memory.kind == MemoryKind::Host {
                // SAFETY: the caller's promise; the buffer has room for the fragment.
                unsafe { ptr::copy(from as *const u8, to as *mut u8, len) };
                return Ok(());
            }
            let number = self.shared.track_of(&mut self.tracks, &memory)?;
            match batches.iter_mut().find(|(of, _)| *of == number) {
                Some((_, batch)) => batch.push(to, from, len),
                None => {
                    let mut batch = CopyBatch::default();
                    batch.push(to, from, len);
                    batches.push((number, batch));
                }
            }
            Ok::<(), CudaError>(())
        };
        let (start, len) = (fragment.bytes.start, fragment.bytes.len());
        // SAFETY: the operation's list is valid until it completes.
        unsafe { data.pieces.for_range(start, len, add_piece) }?;
        let is_pinned = fragment.buffer.is_pinned();
        for (number, mut batch) in batches {
            let track = &mut self.tracks[number];
            let _current = cuda.enter(track.ctx)?;
            // SAFETY: the caller's promise.
            unsafe { batch.begin(cuda, &track.stream, is_pinned) }?;
            fragment.marks.push((number, track.record_event(cuda)?));
        }
        Ok(())
    }

    /// Waits until no device uses a fragment.
    fn wait_for_fragment(&mut self, i: usize) {
        let Some(fragment) = self.fragments.get_mut(i) else {
            return;
        };
        let cuda = self.shared.cuda;
        let mut ended = Ok(());
        for (number, event) in fragment.marks.drain(..) {
            let track = &mut self.tracks[number];
            let waited = cuda
                .enter(track.ctx)
                .and_then(|_current| track.wait(cuda, event));
            ended = ended.and(waited);
        }
        fragment.phase = Phase::Copied;
        if let Err(e) = ended {
            self.fail(Failure::Driver(e));
        }
    }

    /// Waits for all fragments, and gives back their buffers.
    fn drain(&mut self) {
        while !self.fragments.is_empty() {
            self.wait_for_fragment(0);
            if let Some(fragment) = self.fragments.pop_front() {
                self.shared.keep_buffer(fragment.buffer);
            }
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.drain();
        for track in self.tracks.drain(..) {
            match self.failed {
                None => self.shared.keep_track(track),
                Some(_) => track.destroy(self.shared.cuda),
            }
        }
    }
}
