//! The UD queue pair of an interface: sends that were posted to it, and their buffers.

use super::address::{AddressHandle, begin};
use crate::tl::ib::bindings::*;
use crate::tl::ib::buffers::{Buffer, BufferPool};
use crate::tl::ib::iface::{GRH, IbIface};
use crate::tl::ib::port::Port;
use crate::tl::ib::queues::IbvQp;
use std::collections::VecDeque;
use std::io;

/// Buffers that are allocated together.
const BATCH_ALLOC: usize = 64;
/// One of this many sends is signaled.
const MODERATION: u64 = 16;

/// The sending half of a worker's UD queue pair.
pub struct UdTxQueue {
    /// `None` where the user excludes datagrams: there is room for none.
    pub qp: Option<IbvQp>,
    pub(super) buffers: BufferPool,
    depth: u64,
    posted: u64,
    ended: u64,
    /// Signaled sends that are not completed.
    signals_outstanding: u32,
    /// Buffers that only the device needs, until the send of this number has completed.
    leaving: VecDeque<(u64, Buffer)>,
}

impl UdTxQueue {
    /// Moves the queue pair, if there is one, to RTS.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn new(port: &Port, qp: Option<IbvQp>) -> io::Result<UdTxQueue> {
        let most = port.hca.limits.max_qp_wr.max(1) as u32;
        let depth = match &qp {
            Some(qp) => {
                begin(port, qp)?;
                port.tuning.ud.tx_queue_len.clamp(1, most)
            }
            None => 0,
        };
        Ok(UdTxQueue {
            qp,
            buffers: BufferPool::new(&port.hca, GRH + port.mtu_bytes(), BATCH_ALLOC),
            depth: depth.into(),
            posted: 0,
            ended: 0,
            signals_outstanding: 0,
            leaving: VecDeque::new(),
        })
    }

    /// Number of the queue pair; 0: there is none.
    pub fn number(&self) -> u32 {
        self.qp.as_ref().map_or(0, |qp| qp.number)
    }

    /// Number of sends that can be posted now.
    pub(super) fn room(&self) -> usize {
        (self.depth - (self.posted - self.ended)) as usize
    }

    /// Whether the send of this number has completed: the device does not read its buffer any more.
    pub fn has_ended(&self, number: u64) -> bool {
        self.ended >= number
    }

    /// Posts the first `len` bytes of a buffer; returns the number of the send. The caller has checked that there is
    /// room. None: the device refuses.
    pub(super) fn post(
        &mut self,
        iface: &IbIface,
        ah: &AddressHandle,
        qpn: u32,
        buffer: Buffer,
        len: usize,
    ) -> Option<u64> {
        let mut sge = ibv_sge {
            addr: buffer.ptr as u64,
            length: len as u32,
            lkey: buffer.lkey,
        };
        self.posted += 1;
        let signaled = self.posted % MODERATION == 0 || self.room() <= self.depth as usize / 2;
        let mut wr = ibv_send_wr {
            wr_id: self.posted,
            sg_list: &mut sge,
            num_sge: 1,
            opcode: IBV_WR_SEND,
            send_flags: if signaled { IBV_SEND_SIGNALED } else { 0 },
            ..Default::default()
        };
        ah.direct(&mut wr, qpn);
        let qp = self.qp.as_ref()?;
        // SAFETY: one entry, of a registered buffer, which the caller does not change until the send has completed; the
        // caller has the address handle.
        if !unsafe { qp.post_send(&mut wr) } {
            self.posted -= 1;
            return None;
        }
        if signaled {
            self.signals_outstanding += 1;
            iface.add_signaled(1);
        }
        Some(self.posted)
    }

    /// Sends bytes that are not retransmitted, of wireup or an acknowledgment. False if there is no room.
    pub fn send(&mut self, iface: &IbIface, ah: &AddressHandle, qpn: u32, bytes: &[u8]) -> bool {
        if self.room() == 0 {
            return false;
        }
        let Some(buffer) = self.buffers.get() else {
            return false;
        };
        // SAFETY: the buffer is owned by the pool and not posted; it has room for the largest packet, and these bytes
        // are shorter.
        unsafe {
            buffer
                .ptr
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        };
        match self.post(iface, ah, qpn, buffer, bytes.len()) {
            Some(number) => self.leaving.push_back((number, buffer)),
            None => self.buffers.put(buffer),
        }
        true
    }

    /// Frees a buffer that is not retransmitted any more, after the send of that number, its last one, has completed.
    pub(super) fn release(&mut self, buffer: Buffer, number: u64) {
        if self.has_ended(number) {
            self.buffers.put(buffer)
        } else {
            self.leaving.push_back((number, buffer))
        }
    }

    /// Resets the queue pair; all sends count as completed.
    ///
    /// # Errors
    /// Errors of the device: nothing can be sent or received any more.
    pub fn restart_window(&mut self, iface: &IbIface) -> io::Result<()> {
        self.qp.as_ref().map_or(Ok(()), IbvQp::reset)?;
        iface.add_signaled(-(std::mem::take(&mut self.signals_outstanding) as i32));
        self.ended = self.posted;
        self.release_all();
        self.qp.as_ref().map_or(Ok(()), |qp| begin(&iface.port, qp))
    }

    /// Handles the completion of a signaled send: all sends up to it have completed.
    pub fn on_send_completion(&mut self, iface: &IbIface, number: u64) {
        // Completions of sends from before a reset may still arrive.
        if self.has_ended(number) || number > self.posted {
            return;
        }
        self.signals_outstanding -= 1;
        iface.add_signaled(-1);
        self.ended = number;
        self.release_all();
    }

    /// Frees the buffers of sends that have completed.
    fn release_all(&mut self) {
        // The order is not strict: a retransmitted packet has a larger send number than the packets behind it.
        for _ in 0..self.leaving.len() {
            match self.leaving.pop_front() {
                Some((n, buffer)) if n <= self.ended => self.buffers.put(buffer),
                Some(later) => {
                    self.leaving.push_back(later);
                    return;
                }
                None => return,
            }
        }
    }
}
