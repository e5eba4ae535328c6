//! Receiving end of an endpoint's byte stream: unread bytes, and receives that wait for more.
//!
//! All of it is guarded by `Worker::streams`. No function here calls a function of the user.

use super::datatype::Data;
use super::endpoint::{Endpoint, EndpointRef};
use super::request::{Op, Request};
use crate::ctypes::*;
use crate::sys::copy;
use std::collections::{HashMap, VecDeque};

/// Bytes of the first chunk of small messages; each further one is twice as long.
const FIRST_CHUNK: usize = 256;
/// Longest chunk that this doubling reaches.
const CHUNK: usize = 64 << 10;

/// Longest chunk that is kept for reuse.
const MAX_SPARE: usize = 32 << 10;

/// Most message ends for which a chunk kept for reuse keeps its memory: after messages of one byte each that memory is
/// eight times the chunk's own.
const MAX_SPARE_ENDS: usize = 512;

/// Received bytes, in order. The allocation never grows: pointers into it stay valid.
pub struct StreamChunk {
    bytes: Vec<u8>,
    /// Bytes at the front that have been read.
    taken: usize,
    /// Where the messages in it end. A chunk that the user holds is never of two messages: `ucx_perftest` relies on it.
    ends: VecDeque<usize>,
}

impl StreamChunk {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    fn room(&self) -> usize {
        self.bytes.capacity() - self.bytes.len()
    }

    fn new(capacity: usize) -> StreamChunk {
        StreamChunk {
            bytes: Vec::with_capacity(capacity),
            taken: 0,
            ends: VecDeque::new(),
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.taken = 0;
        self.ends.clear();
        if self.ends.capacity() > MAX_SPARE_ENDS {
            self.ends = VecDeque::new();
        }
    }

    /// `n` more bytes are read.
    fn advance(&mut self, n: usize) {
        self.taken += n;
        while self.ends.front().is_some_and(|&end| end <= self.taken) {
            self.ends.pop_front();
        }
    }

    /// Splits off the first of the messages that share the chunk.
    fn split_first(&mut self) -> StreamChunk {
        let end = self.ends.front().copied().unwrap_or(self.bytes.len());
        let mut first = StreamChunk::new(end - self.taken);
        first.bytes.extend_from_slice(&self.bytes[self.taken..end]);
        self.advance(end - self.taken);
        first
    }
}

/// Receive state of an endpoint's stream.
#[derive(Default)]
pub struct RxStream {
    chunks: VecDeque<StreamChunk>,
    /// Bytes in `chunks`.
    bytes: usize,
    /// Receives that wait, in order.
    posted: VecDeque<*mut Request>,
    /// The first receive is out of `posted`: progress is filling it, with the user's functions.
    filling: bool,
    /// In `StreamQueue::ready`.
    in_ready_list: bool,
    /// The endpoint has failed: no bytes arrive any more.
    ended: Option<ucs_status_t>,
    /// A chunk for reuse.
    spare: Option<StreamChunk>,
}

/// Stream state of a worker.
#[derive(Default)]
pub struct StreamQueue {
    /// Endpoints with bytes that `ucp_stream_worker_poll` has not returned.
    ready: VecDeque<EndpointRef>,
    /// Chunks that the user holds, by the address that the user was given.
    taken: HashMap<usize, StreamChunk>,
}

// SAFETY: endpoints and requests of the worker that owns this, used under its lock.
unsafe impl Send for StreamQueue {}

/// How many of the `bytes` of one message a stream receive takes now: whole elements, or anything if it waits for all.
#[inline]
pub fn wanted(r: &Request, bytes: usize) -> usize {
    fitting(bytes, room(r), element(r))
}

/// [`wanted`] for a receive with so much room that takes whole elements of so many bytes.
#[inline]
fn fitting(bytes: usize, room: usize, element: usize) -> usize {
    let n = bytes.min(room);
    if element == 1 { n } else { n - n % element }
}

/// Whether a stream receive is complete.
#[inline]
pub fn is_done(r: &Request) -> bool {
    let least = if waits_for_all(r) {
        r.data.len() as u64
    } else {
        1
    };
    r.offset >= least
}

/// Sets what a stream receive waits for: elements of so many bytes, not 0, or `all`.
pub fn expect(r: &mut Request, element: usize, all: bool) {
    r.op = if all {
        Op::StreamRecvAll
    } else {
        Op::StreamRecv { element }
    };
}

/// Bytes that a stream receive has room for.
fn room(r: &Request) -> usize {
    r.data.len() - r.offset as usize
}

/// Bytes of the elements that a stream receive takes whole: 1 if it waits for all.
fn element(r: &Request) -> usize {
    match r.op {
        Op::StreamRecv { element } => element,
        _ => 1,
    }
}

fn waits_for_all(r: &Request) -> bool {
    matches!(r.op, Op::StreamRecvAll)
}

impl RxStream {
    /// Unread bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Length of the first unread messages: of as many as have `least` bytes together, of all if they have fewer.
    fn first_messages(&self, least: usize) -> usize {
        let mut bytes = 0;
        for chunk in &self.chunks {
            for end in &chunk.ends {
                let with_this = bytes + end - chunk.taken;
                if with_this >= least {
                    return with_this;
                }
            }
            bytes += chunk.rest().len();
        }
        bytes
    }

    /// Number of unread bytes for a receive of `room` bytes: all that fit, if it waits for `all`, else whole elements
    /// of the first message, and of further ones only if that has less than one element. A receive that ends with a
    /// message lets programs that know where their messages begin go on receiving one by one.
    #[inline]
    fn portion(&self, room: usize, element: usize, all: bool) -> usize {
        if all {
            self.bytes.min(room)
        } else {
            fitting(self.first_messages(element), room, element)
        }
    }

    /// Number of unread bytes that a receive takes now.
    #[inline]
    pub fn wanted(&self, r: &Request) -> usize {
        self.portion(room(r), element(r), waits_for_all(r))
    }

    /// Number of unread bytes that complete a new receive of `room` bytes at once: elements of so many, or `all`.
    #[inline]
    pub fn at_once(&self, room: usize, element: usize, all: bool) -> Option<usize> {
        let n = self.portion(room, element, all);
        (n > 0 && (n == room || !all)).then_some(n)
    }

    /// Whether a receive would have to wait for others before it.
    #[inline]
    pub fn contended(&self) -> bool {
        self.filling || !self.posted.is_empty()
    }

    /// The first waiting receive, if bytes that arrive may be copied into it: no unread bytes precede them, and
    /// progress fills no receive.
    pub fn direct(&self) -> Option<*mut Request> {
        let is_free = self.bytes == 0 && !self.filling;
        is_free.then(|| self.first_posted()).flatten()
    }

    /// The first waiting receive.
    pub fn first_posted(&self) -> Option<*mut Request> {
        self.posted.front().copied()
    }

    /// Adds a receive, which waits behind all others.
    pub fn post(&mut self, req: *mut Request) {
        self.posted.push_back(req);
    }

    /// Removes the first waiting receive, which is complete.
    pub fn unpost(&mut self) {
        self.posted.pop_front();
    }

    /// Removes the first waiting receive, which progress fills with the user's functions, until
    /// [`end_filling`](Self::end_filling).
    pub fn begin_filling(&mut self) {
        self.posted.pop_front();
        self.filling = true;
    }

    /// Progress has filled the first receive. `done`: its status if it is complete; else it waits again, unless the
    /// endpoint has failed. Returns the status with which it ends now.
    pub fn end_filling(
        &mut self,
        req: *mut Request,
        done: Option<ucs_status_t>,
    ) -> Option<ucs_status_t> {
        self.filling = false;
        let end = done.or(self.ended);
        if end.is_none() {
            self.posted.push_front(req);
        }
        end
    }

    /// The endpoint has failed: no bytes arrive any more. Takes out the waiting receives, without the one that progress
    /// is filling.
    pub fn end(&mut self, status: ucs_status_t) -> Vec<*mut Request> {
        self.ended = Some(status);
        self.drain()
    }

    /// Stores received bytes. Small messages share a chunk: an unread stream takes about as much memory as was sent.
    ///
    /// # Safety
    /// `len` bytes are readable at `src`; another process may be writing there.
    pub unsafe fn push(&mut self, src: *const u8, len: usize) {
        if self.chunks.back().is_none_or(|c| c.room() < len) {
            let chunk = self.new_chunk(len);
            // Only a single chunk may be empty.
            if self.bytes == 0 {
                self.chunks.clear();
            }
            self.chunks.push_back(chunk);
        }
        let Some(tail) = self.chunks.back_mut() else {
            return;
        };
        let old = tail.bytes.len();
        // SAFETY: there is room for `len` bytes behind the old ones.
        unsafe {
            copy::from_shared(tail.bytes.as_mut_ptr().add(old), src, len);
            tail.bytes.set_len(old + len);
        }
        tail.ends.push_back(old + len);
        self.bytes += len;
    }

    fn new_chunk(&mut self, len: usize) -> StreamChunk {
        if let Some(spare) = self.spare.take_if(|s| s.room() >= len) {
            return spare;
        }
        let before = self
            .chunks
            .back()
            .map_or(FIRST_CHUNK / 2, |c| c.bytes.capacity());
        StreamChunk::new((2 * before).min(CHUNK).max(len))
    }

    /// Moves `n` unread bytes into a receive that the processor fills in place.
    ///
    /// # Safety
    /// At least `n` bytes are unread, and the receive has room for them in valid memory of the user.
    pub unsafe fn fill(&mut self, r: &mut Request, n: usize) {
        self.take(n, |part| {
            // SAFETY: inside of the receive. Memory that the processor fills cannot fail.
            let _ = unsafe { r.data.unpack(r.offset as usize, part.as_ptr(), part.len()) };
            r.offset += part.len() as u64;
        });
    }

    /// Moves `n` unread bytes to contiguous memory.
    ///
    /// # Safety
    /// `n` bytes are writable at `dst`.
    pub unsafe fn copy_to(&mut self, mut dst: *mut u8, n: usize) {
        self.take(n, |part| {
            // SAFETY: the parts together are `n` bytes.
            unsafe {
                copy::short(dst, part.as_ptr(), part.len());
                dst = dst.add(part.len());
            }
        });
    }

    /// Takes out `n` unread bytes, for a receive of a generic datatype.
    pub fn take_out(&mut self, n: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(n);
        self.take(n, |part| out.extend_from_slice(part));
        out
    }

    fn take(&mut self, mut n: usize, mut f: impl FnMut(&[u8])) {
        self.bytes -= n;
        while n > 0 {
            let Some(chunk) = self.chunks.front_mut() else {
                return;
            };
            let part = n.min(chunk.rest().len());
            f(&chunk.rest()[..part]);
            chunk.advance(part);
            n -= part;
            if !chunk.rest().is_empty() {
                return;
            }
            if n == 0 && self.bytes == 0 && chunk.bytes.capacity() <= MAX_SPARE {
                // The last chunk: it is filled next.
                return chunk.clear();
            }
            if let Some(chunk) = self.chunks.pop_front() {
                self.recycle(chunk);
            }
        }
    }

    fn recycle(&mut self, mut chunk: StreamChunk) {
        let capacity = chunk.bytes.capacity();
        if capacity <= MAX_SPARE
            && self
                .spare
                .as_ref()
                .is_none_or(|s| s.bytes.capacity() < capacity)
        {
            chunk.clear();
            self.spare = Some(chunk);
        }
    }

    /// Takes out the waiting receives, without the one that progress is filling: that one sees `ended`.
    fn drain(&mut self) -> Vec<*mut Request> {
        self.posted.drain(..).collect()
    }
}

impl StreamQueue {
    /// The stream of an endpoint, made if there is none.
    ///
    /// # Safety
    /// A live endpoint of the worker whose streams these are.
    #[inline]
    pub unsafe fn of(&mut self, ep: &Endpoint) -> &mut RxStream {
        // SAFETY: the field is touched under the lock that guards `self`.
        unsafe { (*ep.stream.get()).get_or_insert_default() }
    }

    /// Whether an endpoint has a stream.
    ///
    /// # Safety
    /// A live endpoint of the worker whose streams these are.
    pub unsafe fn has(&self, ep: &Endpoint) -> bool {
        // SAFETY: the field is touched under the lock that guards `self`.
        unsafe { (*ep.stream.get()).is_some() }
    }

    /// The first waiting receive of an endpoint.
    ///
    /// # Safety
    /// A live endpoint of the worker whose streams these are.
    pub unsafe fn first_posted(&self, ep: &Endpoint) -> Option<*mut Request> {
        // SAFETY: the field is touched under the lock that guards `self`.
        unsafe { (*ep.stream.get()).as_ref() }.and_then(|stream| stream.first_posted())
    }

    /// Lists an endpoint with bytes that no receive waits for. An internal endpoint is listed when the user adopts it.
    ///
    /// # Safety
    /// A live endpoint of the worker whose streams these are.
    pub unsafe fn announce(&mut self, ep: &Endpoint) {
        // SAFETY: the caller's promise.
        let stream = unsafe { self.of(ep) };
        if stream.bytes > 0 && !stream.contended() && !stream.in_ready_list && !ep.is_internal() {
            stream.in_ready_list = true;
            // SAFETY: `close` takes the endpoint out before it is freed.
            self.ready.push_back(unsafe { EndpointRef::new(ep) });
        }
    }

    /// Removes and returns the next listed endpoint; it is listed again when more bytes arrive.
    pub fn next_ready(&mut self) -> Option<EndpointRef> {
        while let Some(ep) = self.ready.pop_front() {
            // SAFETY: closed endpoints are taken out by `close`.
            let stream = unsafe { self.of(ep.get()) };
            stream.in_ready_list = false;
            if stream.bytes > 0 && !stream.contended() {
                return Some(ep);
            }
        }
        None
    }

    /// Gives the user the received bytes of the first message, until [`give_back`](Self::give_back).
    ///
    /// # Safety
    /// A live endpoint of the worker whose streams these are.
    pub unsafe fn take_message(&mut self, ep: &Endpoint) -> Option<(*const u8, usize)> {
        // SAFETY: the caller's promise.
        let stream = unsafe { self.of(ep) };
        if stream.contended() || stream.bytes == 0 {
            return None;
        }
        let first = stream.chunks.front_mut()?;
        let chunk = if first.ends.len() > 1 {
            first.split_first()
        } else {
            stream.chunks.pop_front()?
        };
        let (at, len) = (chunk.rest().as_ptr(), chunk.rest().len());
        stream.bytes -= len;
        self.taken.insert(at as usize, chunk);
        Some((at, len))
    }

    /// Frees a chunk that the user held; false if `data` is no such chunk.
    ///
    /// # Safety
    /// A live endpoint of the worker whose streams these are.
    pub unsafe fn give_back(&mut self, ep: &Endpoint, data: usize) -> bool {
        let Some(chunk) = self.taken.remove(&data) else {
            return false;
        };
        // SAFETY: the caller's promise.
        unsafe { self.of(ep) }.recycle(chunk);
        true
    }

    /// Removes the stream of an endpoint that is closed: drops its bytes and returns its receives.
    ///
    /// # Safety
    /// A live endpoint of the worker whose streams these are.
    pub unsafe fn close(&mut self, ep: &Endpoint) -> Vec<*mut Request> {
        // SAFETY: the field is touched under the lock that guards `self`.
        let Some(mut stream) = (unsafe { (*ep.stream.get()).take() }) else {
            return Vec::new();
        };
        if stream.in_ready_list {
            self.ready.retain(|other| !other.is(ep));
        }
        stream.drain()
    }
}

/// Whether a receive is of a generic datatype, whose functions run under no lock, or of memory that devices copy, for
/// which others would wait.
#[inline]
pub fn is_packed(data: &Data) -> bool {
    matches!(data, Data::Generic { .. } | Data::Device { .. })
}

#[cfg(test)]
mod tests;
