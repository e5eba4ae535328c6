//! Receive buffers of an endpoint: made, posted, and posted again when there is room.

use super::buffers::{BufferRef, MAX_PACKET};
use super::endpoint::PostError;
use super::fabric::error;
use super::multi_recv::{MultiRecvPool, MultiRecvRef};
use super::shared_ep::{OfiQueues, OfiSharedEp};
use crate::sys::log;
use std::ffi::c_int;
use std::io;

/// A receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceiveBuffer {
    /// Of one packet.
    Single(BufferRef),
    /// Of several packets.
    Multi(MultiRecvRef),
}

impl OfiSharedEp {
    /// Posts the receive buffers for which there was no room.
    pub fn post_again(&self) {
        let mut queues = self.queues.lock();
        let is_waited_for = !queues.blocked.is_empty() || !queues.failed.is_empty();
        queues.has_work = is_waited_for || !queues.kept.0.is_empty();
        for buffer in std::mem::take(&mut queues.unposted) {
            match buffer {
                ReceiveBuffer::Single(buffer) => queues.post_receive(buffer),
                ReceiveBuffer::Multi(buffer) => queues.post_multi_recv(buffer),
            }
        }
    }

    /// Posts a receive buffer of several packets, which the provider has released, now or when there is room.
    pub fn post_multi_recv(&self, buffer: MultiRecvRef) {
        self.queues.lock().post_multi_recv(buffer);
    }

    /// Posts a receive buffer of one packet, now or when there is room.
    #[inline(always)]
    pub fn post_receive(&self, buffer: BufferRef) {
        // SAFETY: the lock was made for several threads.
        unsafe { (self.queues).with::<true, _>(|queues| queues.post_receive(buffer)) };
    }
}

impl OfiQueues {
    /// Makes the receive buffers, with room for `receives` of the longest packets, and posts them.
    ///
    /// # Errors
    /// There is no memory, or it cannot be registered.
    pub(super) fn post_receives(&mut self, receives: u32) -> io::Result<()> {
        if self.ep.device.has_multi_recv() && self.ep.set_min_room(MAX_PACKET).is_ok() {
            let (count, packets) = MultiRecvPool::shape(receives);
            self.receives = count;
            for buffer in self.multi_recvs.make(&mut self.ep, count, packets)? {
                self.post_multi_recv(buffer);
            }
            if self.receive_error.take().is_none() {
                return Ok(());
            }
        }
        self.receives = receives;
        for _ in 0..receives {
            let buffer = self.buffers.take(&mut self.ep)?;
            self.post_receive(buffer);
        }
        Ok(())
    }

    #[inline(always)]
    fn post_receive(&mut self, buffer: BufferRef) {
        let OfiQueues { ep, buffers, .. } = self;
        match buffers.post_receive(ep, buffer) {
            Ok(()) => {}
            Err(PostError::Again) => self.keep_receive(ReceiveBuffer::Single(buffer)),
            Err(PostError::Failed(e)) => self.lose_receive(ReceiveBuffer::Single(buffer), e),
        }
    }

    fn post_multi_recv(&mut self, buffer: MultiRecvRef) {
        match self.multi_recvs.post(&mut self.ep, buffer) {
            Ok(()) => {}
            Err(PostError::Again) => self.keep_receive(ReceiveBuffer::Multi(buffer)),
            Err(PostError::Failed(e)) => self.lose_receive(ReceiveBuffer::Multi(buffer), e),
        }
    }

    /// The provider has no room for a receive buffer.
    #[cold]
    fn keep_receive(&mut self, buffer: ReceiveBuffer) {
        self.unposted.push(buffer);
        self.has_work = true;
    }

    /// The provider does not take a receive buffer.
    #[cold]
    fn lose_receive(&mut self, buffer: ReceiveBuffer, code: c_int) {
        log::diag!("libfabric takes no receive buffer: {}", error(code));
        if let ReceiveBuffer::Single(buffer) = buffer {
            self.buffers.give_back(buffer);
        }
        self.receives -= 1;
        if self.receives == 0 {
            self.receive_error = Some(code);
        }
    }
}
