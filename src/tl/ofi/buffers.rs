//! Buffers of a worker for packets: those that are sent, and those in which packets arrive.

use super::bindings::FI_MR_LOCAL;
use super::endpoint::{OfiEndpoint, PostError};
use super::op_context::{ContextKind, OpContext};
use super::packet::RECORD_HEADER;
use super::tx_link::OfiTxLink;
use crate::sys::mapping::Mapping;
use crate::tl::contract::MAX_BCOPY;
use rustix::mm::MapFlags;
use std::ffi::c_void;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

/// Longest packet, bytes.
pub const MAX_PACKET: usize = RECORD_HEADER + MAX_BCOPY;
/// Bytes from one buffer to the next.
pub(super) const STRIDE: usize = MAX_PACKET.next_multiple_of(64);
/// Buffers that are made at once.
const CHUNK: usize = 32;

/// A buffer, and what libfabric keeps of the operation that uses it.
///
/// `context` is the first member: an operation's context is the address of its buffer.
#[repr(C)]
struct Buffer {
    context: OpContext,
    data: *mut u8,
    desc: *mut c_void,
    /// The connection to which it is sent, until the completion; `None` for a receive.
    link: Option<Arc<OfiTxLink>>,
}

/// A buffer of a [`OfiBufferPool`], which is not freed before the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferRef(NonNull<Buffer>);

// SAFETY: a name of memory that its pool keeps; the lock of the worker orders the accesses.
unsafe impl Send for BufferRef {}

impl BufferRef {
    /// The buffer of an operation with this context. `None`: the provider does not say which operation it was.
    #[inline(always)]
    pub fn of_context(context: *mut c_void) -> Option<BufferRef> {
        NonNull::new(context.cast()).map(BufferRef)
    }

    /// Memory of [`MAX_PACKET`] bytes.
    #[inline(always)]
    pub fn data(self) -> *mut u8 {
        // SAFETY: the pool keeps the buffer; `data` does not change.
        unsafe { (*self.0.as_ptr()).data }
    }

    /// The first `len` bytes of a buffer in which a packet has arrived.
    ///
    /// # Safety
    /// No operation uses the buffer as long as the result, which ends before the pool, and those bytes were written.
    #[inline(always)]
    pub unsafe fn packet<'a>(self, len: usize) -> &'a [u8] {
        // SAFETY: the caller's promise; the length is limited to that of the memory.
        unsafe { std::slice::from_raw_parts(self.data(), len.min(MAX_PACKET)) }
    }

    /// What operations on the memory have to pass.
    pub fn desc(self) -> *mut c_void {
        // SAFETY: the pool keeps the buffer; `desc` does not change.
        unsafe { (*self.0.as_ptr()).desc }
    }

    /// Takes the connection of a send that has ended. `None`: it was a receive.
    ///
    /// # Safety
    /// The operation has ended, and the caller holds the lock of the pool.
    pub unsafe fn take_link(self) -> Option<Arc<OfiTxLink>> {
        let at = self.0.as_ptr();
        // SAFETY: the operation has ended, and nothing else accesses the members.
        unsafe {
            (*at).context.set_kind(ContextKind::Receive);
            (*at).link.take()
        }
    }
}

/// The buffers of an endpoint.
#[derive(Default)]
pub struct OfiBufferPool {
    free: Vec<BufferRef>,
    /// What [`BufferRef`] and providers point to.
    chunks: Vec<NonNull<[Buffer]>>,
    memory: Vec<Mapping>,
}

// SAFETY: the pointers are to memory of the pool's own.
unsafe impl Send for OfiBufferPool {}

impl Drop for OfiBufferPool {
    fn drop(&mut self) {
        for chunk in self.chunks.drain(..) {
            // SAFETY: made by `grow` from a box; the endpoint, whose operations use it, was closed before.
            drop(unsafe { Box::from_raw(chunk.as_ptr()) });
        }
    }
}

impl OfiBufferPool {
    /// Takes a free buffer; makes more if there is none.
    ///
    /// # Errors
    /// There is no memory, or it cannot be registered.
    pub fn take(&mut self, ep: &mut OfiEndpoint) -> io::Result<BufferRef> {
        if let Some(buffer) = self.free.pop() {
            return Ok(buffer);
        }
        self.grow(ep)?;
        self.free.pop().ok_or(io::ErrorKind::OutOfMemory.into())
    }

    /// Gives a buffer back that no operation uses.
    pub fn give_back(&mut self, buffer: BufferRef) {
        self.free.push(buffer);
    }

    #[cold]
    fn grow(&mut self, ep: &mut OfiEndpoint) -> io::Result<()> {
        // SAFETY: at no fixed address.
        let memory = unsafe { Mapping::anonymous(CHUNK * STRIDE, MapFlags::PRIVATE, None)? };
        let mut desc = null_mut();
        if ep.device.needs(FI_MR_LOCAL) {
            // SAFETY: the mapping is kept until the pool is dropped, which is after the endpoint.
            desc = unsafe { ep.register(memory.ptr(), memory.len())? };
        }
        let buffer = |i: usize| Buffer {
            context: OpContext::new(ContextKind::Receive),
            // SAFETY: the mapping has `CHUNK` buffers of this length.
            data: unsafe { memory.ptr().add(i * STRIDE) },
            desc,
            link: None,
        };
        let chunk: Box<[Buffer]> = (0..CHUNK).map(buffer).collect();
        let chunk = NonNull::from(Box::leak(chunk));
        for i in 0..CHUNK {
            // SAFETY: the chunk has `CHUNK` buffers.
            let buffer = unsafe { chunk.cast::<Buffer>().add(i) };
            self.free.push(BufferRef(buffer));
        }
        self.chunks.push(chunk);
        self.memory.push(memory);
        Ok(())
    }

    /// Posts a buffer for the next packet that arrives.
    ///
    /// # Errors
    /// It was not posted, and is the caller's.
    #[inline(always)]
    pub fn post_receive(
        &mut self,
        ep: &mut OfiEndpoint,
        buffer: BufferRef,
    ) -> Result<(), PostError> {
        let at = buffer.0.as_ptr();
        // SAFETY: the buffer is the caller's, stays as long as the pool, and is given to the endpoint.
        unsafe { ep.receive((*at).data, MAX_PACKET, (*at).desc, at.cast()) }
    }

    /// Sends the first `len` bytes of a buffer, which a completion reports.
    ///
    /// # Errors
    /// It was not posted, and is the caller's.
    pub fn post_send(
        &mut self,
        ep: &mut OfiEndpoint,
        buffer: BufferRef,
        len: usize,
        link: &Arc<OfiTxLink>,
    ) -> Result<(), PostError> {
        let at = buffer.0.as_ptr();
        // SAFETY: the buffer is the caller's, stays as long as the pool, and is given to the endpoint. Its connection
        // is set before, because the completion may be there when the call returns.
        unsafe {
            (*at).context.set_kind(ContextKind::Send);
            (*at).link = Some(link.clone());
            let sent = ep.send((*at).data, len, (*at).desc, link.addr, at.cast());
            if sent.is_err() {
                (*at).context.set_kind(ContextKind::Receive);
                (*at).link = None;
            }
            sent
        }
    }
}
