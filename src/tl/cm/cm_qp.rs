//! The queue pair of a connection: carries a few records as a stream of bytes.

use super::id::CmId;
use crate::tl::ib::bindings::*;
use crate::tl::ib::buffers::{Buffer, BufferPool};
use crate::tl::ib::port::Port;
use crate::tl::ib::queues::{CompChannel, IbvCq, IbvQp, QpInit};
use crate::tl::ib::rc::timeout_code;
use crate::wire::cm_msg::MAX_MSG_LEN;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Each end sends two records: its hello or reply, and its disconnect record.
const RECORDS: usize = 2;

/// Work request ids of sends and of probes; smaller ids are receive buffers.
const SEND: u64 = RECORDS as u64;
const PROBE: u64 = SEND + 1;

/// Bytes of both records: the disconnect record has one byte.
const ROOM: usize = MAX_MSG_LEN + 1;

/// Field order: the queue pair is dropped before its completion queue, and both before the buffers.
pub struct CmQp {
    qp: IbvQp,
    cq: Arc<IbvCq>,
    channel: Arc<CompChannel>,
    received: [Buffer; RECORDS],
    send_buffer: Buffer,
    _buffers: BufferPool,
    /// Bytes of the send buffer that were sent.
    sent: usize,
    /// Sends whose completion has not been polled.
    unconfirmed: usize,
    /// A probe is posted and not completed.
    probing: bool,
    /// Received bytes that were not read.
    unread: Vec<u8>,
    /// The local ACK timeout, in the encoding of the device.
    timeout: u8,
    /// No more records arrive.
    pub ended: bool,
}

impl CmQp {
    /// Creates a queue pair on the port to which the identifier is bound, with its receives posted (state INIT).
    ///
    /// # Errors
    /// Errors of the device; limits of memory and descriptors.
    pub fn new(port: &Arc<Port>, id: &CmId) -> io::Result<CmQp> {
        let hca = &port.hca;
        let channel = CompChannel::new(hca)?;
        let cq = IbvCq::new(hca, 2 * RECORDS as u32 + 1, Some(&channel))?;
        let parts = QpInit {
            kind: IBV_QPT_RC,
            send_cq: &cq,
            recv_cq: &cq,
            srq: None,
            sends: RECORDS as u32 + 1,
            receives: RECORDS as u32,
            inline: 0,
            pieces: 1,
        };
        let qp = IbvQp::new(hca, &parts)?;
        let mut buffers = BufferPool::new(hca, ROOM, RECORDS + 1);
        let mut buffer = || buffers.get().ok_or(ErrorKind::OutOfMemory);
        let (received, send_buffer) = ([buffer()?, buffer()?], buffer()?);
        let mut queue = CmQp {
            qp,
            cq,
            channel,
            received,
            send_buffer,
            _buffers: buffers,
            sent: 0,
            unconfirmed: 0,
            probing: false,
            unread: Vec::new(),
            timeout: timeout_code(port.tuning.rc.timeout),
            ended: false,
        };
        queue.enter(id, IBV_QPS_INIT)?;
        queue.cq.arm();
        queue.listen()?;
        Ok(queue)
    }

    /// Moves the queue pair to a state, with the attributes that the identifier has of the remote end.
    ///
    /// # Errors
    /// The remote end has closed the connection.
    pub fn enter(&mut self, id: &CmId, state: ibv_qp_state) -> io::Result<()> {
        let (mut attr, mask) = id.attributes(state)?;
        // The connection manager's timeout is seconds where a path may be long.
        attr.timeout = self.timeout;
        // A probe is a write of 0 bytes, which needs no key; this connection sends no key for other writes.
        attr.qp_access_flags |= IBV_ACCESS_REMOTE_WRITE;
        self.qp.modify(&mut attr, mask)
    }

    fn listen(&mut self) -> io::Result<()> {
        for (i, buffer) in self.received.iter().enumerate() {
            let mut sge = ibv_sge {
                addr: buffer.ptr as u64,
                length: ROOM as u32,
                lkey: buffer.lkey,
            };
            let mut wr = ibv_recv_wr {
                wr_id: i as u64,
                sg_list: &mut sge,
                num_sge: 1,
                ..Default::default()
            };
            // SAFETY: the buffer is registered, and only the device accesses it until the receive completes.
            let ret = unsafe { self.qp.post_receives(&mut wr, &mut std::ptr::null_mut()) };
            if ret != 0 {
                return Err(io::Error::from_raw_os_error(ret.abs()));
            }
        }
        Ok(())
    }

    /// Number of the queue pair, which `rdma_cm` sends to the remote end.
    pub fn number(&self) -> u32 {
        self.qp.number
    }

    /// The descriptor of the completion channel: readable when a record has arrived, or the connection has failed.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// Sends a record.
    ///
    /// # Errors
    /// `WriteZero` if it does not fit into what is left of the buffer, `BrokenPipe` if the connection has failed.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > ROOM - self.sent {
            return Err(ErrorKind::WriteZero.into());
        }
        // SAFETY: the buffer has `ROOM` bytes, of which the first `sent` are used, and `bytes` fits behind them.
        let at = unsafe { self.send_buffer.ptr.add(self.sent) };
        // SAFETY: `at` is writable for `bytes.len()` bytes, and the device reads only the bytes in front of it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
        let mut sge = ibv_sge {
            addr: at as u64,
            length: bytes.len() as u32,
            lkey: self.send_buffer.lkey,
        };
        let mut wr = ibv_send_wr {
            wr_id: SEND,
            sg_list: &mut sge,
            num_sge: 1,
            opcode: IBV_WR_SEND,
            send_flags: IBV_SEND_SIGNALED,
            ..Default::default()
        };
        // SAFETY: one entry, of the registered memory of the records that are sent; later ones are written behind it.
        if self.ended || !unsafe { self.qp.post_send(&mut wr) } {
            return Err(ErrorKind::BrokenPipe.into());
        }
        self.sent += bytes.len();
        self.unconfirmed += 1;
        Ok(())
    }

    /// Requests an acknowledgment from the remote device, unless one is outstanding. If none arrives the queue pair
    /// fails, and the stream ends.
    pub fn probe(&mut self) {
        if self.probing || self.unconfirmed > 0 || self.ended {
            return;
        }
        let mut wr = ibv_send_wr {
            wr_id: PROBE,
            opcode: IBV_WR_RDMA_WRITE,
            send_flags: IBV_SEND_SIGNALED,
            ..Default::default()
        };
        // SAFETY: a write of 0 bytes names no memory.
        self.probing = unsafe { self.qp.post_send(&mut wr) };
    }

    /// Takes at most one record that has arrived, unless one is unread. The completion channel is drained and armed
    /// only if none had arrived.
    pub fn recv(&mut self) {
        self.take();
        if self.unread.is_empty() {
            self.channel.drain();
            self.cq.arm();
            self.take();
        }
    }

    /// Polls completions until there is a record to read.
    fn take(&mut self) {
        let mut wc = [MaybeUninit::uninit()];
        while self.unread.is_empty() && self.cq.poll(&mut wc) == 1 {
            // SAFETY: `poll` returned 1, so it has written the entry.
            let wc = unsafe { wc[0].assume_init_ref() };
            if wc.status != IBV_WC_SUCCESS {
                self.ended = true;
                continue;
            }
            match self.received.get(wc.wr_id as usize) {
                Some(buffer) => {
                    let len = (wc.byte_len as usize).min(ROOM);
                    // SAFETY: the device has written `byte_len` bytes, at most the `ROOM` bytes of the buffer, and does
                    // not write again.
                    let bytes = unsafe { std::slice::from_raw_parts(buffer.ptr, len) };
                    self.unread.extend_from_slice(bytes);
                }
                None if wc.wr_id == PROBE => self.probing = false,
                None => self.unconfirmed -= 1,
            }
        }
    }

    /// Whether the remote device has not acknowledged a record that was sent.
    pub fn is_unconfirmed(&self) -> bool {
        self.unconfirmed > 0 && !self.ended
    }

    /// Polls completions of sends, and discards what was received.
    pub fn settle(&mut self) {
        self.unread.clear();
        self.recv();
    }

    /// Whether [`read`](Self::read) has bytes to return. Polls nothing.
    pub fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Moves received bytes into `into`; returns their number.
    pub fn read(&mut self, into: &mut [u8]) -> usize {
        let n = into.len().min(self.unread.len());
        into[..n].copy_from_slice(&self.unread[..n]);
        self.unread.drain(..n);
        n
    }
}
