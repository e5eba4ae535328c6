//! The queue pair of a connection: what few records it carries, as a stream of bytes.

use super::id::CmId;
use crate::tl::ib::bindings::*;
use crate::tl::ib::buffers::{Buffer, BufferPool};
use crate::tl::ib::port::Port;
use crate::tl::ib::queues::{CompChannel, IbvCq, IbvQp, QpInit};
use crate::tl::ib::rc::timeout_code;
use crate::wire::cm_msg::LONGEST;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Each end speaks twice: who it is, and farewell.
const RECORDS: usize = 2;

/// What completions are called: of records that were said, and of probes.
const SAID: u64 = RECORDS as u64;
const PROBE: u64 = SAID + 1;

/// Bytes of both.
const ROOM: usize = LONGEST + 1;

/// Field order: queue pairs go before their queues, and before the buffers.
pub struct CmQp {
    qp: IbvQp,
    cq: Arc<IbvCq>,
    channel: Arc<CompChannel>,
    received: [Buffer; RECORDS],
    spoken: Buffer,
    _buffers: BufferPool,
    /// Bytes of `spoken` that were said.
    said: usize,
    /// Records that the other end has not confirmed.
    unconfirmed: usize,
    /// A probe is under way.
    probing: bool,
    /// What has come and was not read.
    unread: Vec<u8>,
    /// Until a packet is sent again, as the device counts.
    timeout: u8,
    /// Nothing comes any more.
    pub ended: bool,
}

impl CmQp {
    /// On the port to which the identifier is bound, ready to be connected.
    ///
    /// # Errors
    /// What the device says; limits of memory and descriptors.
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
        let (received, spoken) = ([buffer()?, buffer()?], buffer()?);
        let mut queue = CmQp {
            qp,
            cq,
            channel,
            received,
            spoken,
            _buffers: buffers,
            said: 0,
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

    /// Gets into a state by what the identifier knows of the other end.
    ///
    /// # Errors
    /// The other end has gone.
    pub fn enter(&mut self, id: &CmId, state: ibv_qp_state) -> io::Result<()> {
        let (mut attr, mask) = id.attributes(state)?;
        // The connection manager waits for seconds where a path may be long.
        attr.timeout = self.timeout;
        // A probe writes nothing; nobody is told a key for anything else.
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
            // SAFETY: a registered buffer, which is the device's until it says otherwise.
            let ret = unsafe { self.qp.post_receives(&mut wr, &mut std::ptr::null_mut()) };
            if ret != 0 {
                return Err(io::Error::from_raw_os_error(ret.abs()));
            }
        }
        Ok(())
    }

    pub fn number(&self) -> u32 {
        self.qp.number
    }

    /// Readable when something has come, or the connection is broken.
    pub fn fd(&self) -> i32 {
        self.channel.fd()
    }

    /// Sends a record.
    ///
    /// # Errors
    /// `WriteZero` if it is longer than what an end has to say, `BrokenPipe`.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > ROOM - self.said {
            return Err(ErrorKind::WriteZero.into());
        }
        // SAFETY: there is room; what was said before lies in front of it.
        let at = unsafe { self.spoken.ptr.add(self.said) };
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
        let mut sge = ibv_sge {
            addr: at as u64,
            length: bytes.len() as u32,
            lkey: self.spoken.lkey,
        };
        let mut wr = ibv_send_wr {
            wr_id: SAID,
            sg_list: &mut sge,
            num_sge: 1,
            opcode: IBV_WR_SEND,
            send_flags: IBV_SEND_SIGNALED,
            ..Default::default()
        };
        if self.ended || !self.qp.post_send(&mut wr) {
            return Err(ErrorKind::BrokenPipe.into());
        }
        self.said += bytes.len();
        self.unconfirmed += 1;
        Ok(())
    }

    /// Wants a sign of life of the other end's device, unless one is due anyhow. If none comes the queue ends.
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
        self.probing = self.qp.post_send(&mut wr);
    }

    /// Takes what has come, one record at most, unless some is unread. The descriptor is quiet only when nothing had.
    pub fn recv(&mut self) {
        self.take();
        if self.unread.is_empty() {
            self.channel.drain();
            self.cq.arm();
            self.take();
        }
    }

    /// Takes completions until there is something to read.
    fn take(&mut self) {
        let mut wc = [MaybeUninit::uninit()];
        while self.unread.is_empty() && self.cq.poll(&mut wc) == 1 {
            // SAFETY: the queue has written one.
            let wc = unsafe { wc[0].assume_init_ref() };
            if wc.status != IBV_WC_SUCCESS {
                self.ended = true;
                continue;
            }
            match self.received.get(wc.wr_id as usize) {
                Some(buffer) => {
                    let len = (wc.byte_len as usize).min(ROOM);
                    // SAFETY: the device has written so many bytes, and will not again.
                    let bytes = unsafe { std::slice::from_raw_parts(buffer.ptr, len) };
                    self.unread.extend_from_slice(bytes);
                }
                None if wc.wr_id == PROBE => self.probing = false,
                None => self.unconfirmed -= 1,
            }
        }
    }

    /// Whether something was said that the other end's device has not confirmed.
    pub fn is_unconfirmed(&self) -> bool {
        self.unconfirmed > 0 && !self.ended
    }

    /// Takes confirmations; what has come is nobody's any more.
    pub fn settle(&mut self) {
        self.unread.clear();
        self.recv();
    }

    pub fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Moves what has come: how many bytes.
    pub fn read(&mut self, into: &mut [u8]) -> usize {
        let n = into.len().min(self.unread.len());
        into[..n].copy_from_slice(&self.unread[..n]);
        self.unread.drain(..n);
        n
    }
}
