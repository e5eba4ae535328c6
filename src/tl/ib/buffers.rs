//! Registered buffers of one size, allocated in chunks when they are needed.

use super::bindings::*;
use super::hca::{Hca, HcaMr};
use crate::sys::fork::Wiped;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// Buffers start at multiples of a cache line.
const ALIGN: usize = 64;
/// Chunks are whole pages: registration pins whole pages.
const PAGE: usize = 4096;

/// Registered memory for one packet.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    pub ptr: *mut u8,
    pub lkey: u32,
}

// SAFETY: the memory has one owner at a time.
unsafe impl Send for Buffer {}

/// The buffers of one purpose. Buffers that were taken must not be used after the pool is dropped.
pub struct BufferPool {
    hca: Arc<Hca>,
    size: usize,
    per_chunk: usize,
    free: Vec<Buffer>,
    chunks: Vec<BufferChunk>,
}

/// Field order: the memory is deregistered, and inherited by forked children again, before it is freed.
struct BufferChunk {
    _region: HcaMr,
    /// A forked child gets zeroed pages: the parent's packets are not copied to it, and the registered pages are not
    /// subject to copy-on-write.
    _in_children: Wiped,
    _memory: RegisteredChunk,
}

struct RegisteredChunk {
    ptr: *mut u8,
    layout: Layout,
}

// SAFETY: the pointer is only used to free the memory.
unsafe impl Send for RegisteredChunk {}

impl Drop for RegisteredChunk {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.ptr, self.layout) };
    }
}

impl BufferPool {
    /// Creates an empty pool. `size`: bytes of a buffer; `per_chunk`: buffers allocated together.
    pub fn new(hca: &Arc<Hca>, size: usize, per_chunk: usize) -> Self {
        Self {
            hca: hca.clone(),
            size: size.next_multiple_of(ALIGN),
            per_chunk,
            free: Vec::new(),
            chunks: Vec::new(),
        }
    }

    /// Ensures that `n` buffers can be taken; false if no more can be registered.
    #[inline]
    pub fn reserve(&mut self, n: usize) -> bool {
        while self.free.len() < n {
            if !self.grow() {
                return false;
            }
        }
        true
    }

    /// Takes a free buffer; None if no more can be registered.
    #[inline(always)]
    pub fn get(&mut self) -> Option<Buffer> {
        match self.free.pop() {
            None => self.get_fresh(),
            some => some,
        }
    }

    #[cold]
    fn get_fresh(&mut self) -> Option<Buffer> {
        self.grow();
        self.free.pop()
    }

    /// Returns a buffer to the pool.
    #[inline]
    pub fn put(&mut self, buffer: Buffer) {
        self.free.push(buffer);
    }

    #[cold]
    fn grow(&mut self) -> bool {
        match self.chunk() {
            Ok(()) => true,
            Err(e) => {
                let bytes = self.size * self.per_chunk;
                self.hca.report_limit("buffers of a worker", bytes, &e);
                false
            }
        }
    }

    fn chunk(&mut self) -> io::Result<()> {
        let bytes = (self.size * self.per_chunk).next_multiple_of(PAGE);
        let layout = Layout::from_size_align(bytes, PAGE).map_err(io::Error::other)?;
        // SAFETY: `bytes` is not 0.
        let ptr = unsafe { alloc(layout) };
        if ptr.is_null() {
            handle_alloc_error(layout);
        }
        let memory = RegisteredChunk { ptr, layout };
        let start = NonNull::new(ptr).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the pages are allocated and private, and freed after the value is dropped.
        let in_children = unsafe { Wiped::new(start, bytes) };
        // SAFETY: the memory is freed after the region is deregistered.
        let region = unsafe { self.hca.register(ptr, bytes, IBV_ACCESS_LOCAL_WRITE) }?;
        let lkey = region.lkey();
        let buffers = (0..self.per_chunk).rev().map(|i| Buffer {
            // SAFETY: the offset is inside of the chunk.
            ptr: unsafe { ptr.add(i * self.size) },
            lkey,
        });
        self.free.extend(buffers);
        self.chunks.push(BufferChunk {
            _region: region,
            _in_children: in_children,
            _memory: memory,
        });
        Ok(())
    }
}
