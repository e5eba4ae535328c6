//! Receive buffers into which the provider packs several packets (`FI_MULTI_RECV`).

use super::bindings::{FI_MR_LOCAL, FI_MULTI_RECV, fi_cq_data_entry};
use super::buffers::{MAX_PACKET, STRIDE};
use super::endpoint::{OfiEndpoint, PostError};
use super::op_context::{ContextKind, OpContext};
use crate::sys::mapping::Mapping;
use rustix::mm::MapFlags;
use std::ffi::c_void;
use std::io;
use std::ptr::{NonNull, null_mut};

/// Longest packets for which the smallest buffer has room.
const MIN_PACKETS: u32 = 4;
/// Buffers into which the room is divided: the provider fills one while others are released and posted again.
const BUFFERS: u32 = 4;

/// A buffer, and what libfabric keeps of the receive that uses it.
///
/// `context` is the first member: the receive's context is the address of its buffer.
#[repr(C)]
struct MultiRecv {
    context: OpContext,
    data: *mut u8,
    /// Bytes.
    len: usize,
    desc: *mut c_void,
}

/// A buffer of a [`MultiRecvPool`], which is not freed before the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiRecvRef(NonNull<MultiRecv>);

// SAFETY: a name of memory that its pool keeps; the lock of the worker orders the accesses.
unsafe impl Send for MultiRecvRef {}

impl MultiRecvRef {
    /// The buffer of a receive with this context, which is not null.
    #[inline(always)]
    pub fn of_context(context: *mut c_void) -> Option<MultiRecvRef> {
        NonNull::new(context.cast()).map(MultiRecvRef)
    }

    /// The packet that a completion reports; empty where it does not lie in the buffer.
    ///
    /// # Safety
    /// The completion is of a receive into this buffer. The buffer is not posted again as long as the result, which
    /// ends before the pool.
    #[inline(always)]
    pub unsafe fn packet<'a>(self, entry: &fi_cq_data_entry) -> &'a [u8] {
        // SAFETY: the pool keeps the buffer, whose place does not change.
        let (data, room) = unsafe { ((*self.0.as_ptr()).data, (*self.0.as_ptr()).len) };
        let at = entry.buf.addr().wrapping_sub(data.addr());
        let len = entry.len.min(MAX_PACKET);
        if at > room - len {
            return &[];
        }
        // SAFETY: the bytes are in the buffer, and were written by the provider.
        unsafe { std::slice::from_raw_parts(data.add(at), len) }
    }
}

/// Whether a completion reports a packet.
#[inline(always)]
pub fn has_packet(entry: &fi_cq_data_entry) -> bool {
    entry.flags & !u64::from(FI_MULTI_RECV) != 0
}

/// Whether a completion with these flags reports that the provider has released the buffer.
#[inline(always)]
pub fn is_released(flags: u64) -> bool {
    flags & u64::from(FI_MULTI_RECV) != 0
}

/// The buffers of an endpoint.
#[derive(Default)]
pub struct MultiRecvPool {
    /// What [`MultiRecvRef`] and providers point to.
    all: Vec<NonNull<MultiRecv>>,
    memory: Vec<Mapping>,
}

// SAFETY: the pointers are to memory of the pool's own.
unsafe impl Send for MultiRecvPool {}

impl Drop for MultiRecvPool {
    fn drop(&mut self) {
        for buffer in self.all.drain(..) {
            // SAFETY: made by `add` from a box; the endpoint, whose receives use it, was closed before.
            drop(unsafe { Box::from_raw(buffer.as_ptr()) });
        }
    }
}

impl MultiRecvPool {
    /// How many buffers have room for `packets` of the longest packets, and for how many each has.
    pub fn shape(packets: u32) -> (u32, u32) {
        let each = (packets / BUFFERS).max(MIN_PACKETS);
        (packets.div_ceil(each), each)
    }

    /// Makes `count` buffers with room for `packets` of the longest packets each.
    ///
    /// # Errors
    /// There is no memory, or it cannot be registered.
    pub fn make(
        &mut self,
        ep: &mut OfiEndpoint,
        count: u32,
        packets: u32,
    ) -> io::Result<Vec<MultiRecvRef>> {
        let len = packets as usize * STRIDE;
        // SAFETY: at no fixed address.
        let memory = unsafe { Mapping::anonymous(count as usize * len, MapFlags::PRIVATE, None)? };
        let mut desc = null_mut();
        if ep.device.needs(FI_MR_LOCAL) {
            // SAFETY: the mapping is kept until the pool is dropped, which is after the endpoint; on an error nothing
            // was registered.
            desc = unsafe { ep.register(memory.ptr(), memory.len())? };
        }
        let buffer = |i| {
            NonNull::from(Box::leak(Box::new(MultiRecv {
                context: OpContext::new(ContextKind::MultiRecv),
                data: memory.ptr().wrapping_add(i as usize * len),
                len,
                desc,
            })))
        };
        let first = self.all.len();
        self.all.extend((0..count).map(buffer));
        self.memory.push(memory);
        Ok(self.all[first..]
            .iter()
            .copied()
            .map(MultiRecvRef)
            .collect())
    }

    /// Posts a buffer for packets that arrive.
    ///
    /// # Errors
    /// It was not posted, and is the caller's.
    pub fn post(&mut self, ep: &mut OfiEndpoint, buffer: MultiRecvRef) -> Result<(), PostError> {
        let at = buffer.0.as_ptr();
        // SAFETY: the buffer is the caller's, stays as long as the pool, and is given to the endpoint.
        unsafe { ep.receive_many((*at).data, (*at).len, (*at).desc, at.cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_is_that_of_as_many_single_buffers() {
        assert_eq!(MultiRecvPool::shape(64), (4, 16));
        assert_eq!(MultiRecvPool::shape(8), (2, 4));
        assert_eq!(MultiRecvPool::shape(4096), (4, 1024));
        assert_eq!(MultiRecvPool::shape(1), (1, 4));
    }

    #[test]
    fn a_completion_outside_of_its_buffer_has_no_bytes() {
        // SAFETY: at no fixed address.
        let memory = unsafe { Mapping::anonymous(4 * MAX_PACKET, MapFlags::PRIVATE, None) };
        let memory = memory.expect("memory");
        let (base, end) = (memory.ptr(), memory.len());
        let mut buffer = MultiRecv {
            context: OpContext::new(ContextKind::MultiRecv),
            data: base,
            len: end,
            desc: null_mut(),
        };
        let buffer = MultiRecvRef(NonNull::from(&mut buffer));
        let len_at = |at: usize, len| {
            let entry = fi_cq_data_entry {
                buf: base.wrapping_add(at).cast(),
                len,
                ..fi_cq_data_entry::default()
            };
            // SAFETY: the buffer stays, and its bytes are zero from the beginning.
            unsafe { buffer.packet(&entry) }.len()
        };
        assert_eq!((len_at(0, 20), len_at(end - 20, 20)), (20, 20));
        assert_eq!((len_at(end - 19, 20), len_at(usize::MAX, 20)), (0, 0));
        assert_eq!(len_at(0, usize::MAX), MAX_PACKET);
    }
}
