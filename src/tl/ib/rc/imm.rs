//! Writes with immediate: the peer gets the immediate after the data.

use super::{RcEp, RemoteMem, TxDesc};
use crate::tl::ib::bindings::*;
use crate::tl::ib::buffers::Buffer;

impl RcEp {
    /// Writes bytes, which are inline data of at most `max_inline` bytes, with an immediate. The caller has checked
    /// that there is room. False: the device refuses.
    pub fn write_inline_with_imm(&mut self, bytes: &[u8], to: RemoteMem, word: u32) -> bool {
        let sge = ibv_sge {
            addr: bytes.as_ptr() as u64,
            length: bytes.len() as u32,
            lkey: 0,
        };
        self.post_imm(sge, IBV_SEND_INLINE, to, word)
    }

    /// Writes a buffer, which returns to the interface afterwards, with an immediate. The caller has checked that there
    /// is room. False: the device refuses.
    pub fn write_buffer_with_imm(
        &mut self,
        buffer: Buffer,
        len: usize,
        to: RemoteMem,
        word: u32,
    ) -> bool {
        let sge = ibv_sge {
            addr: buffer.ptr as u64,
            length: len as u32,
            lkey: buffer.lkey,
        };
        self.silent += 1;
        self.held.push_back((self.posted + 1, TxDesc::Out(buffer)));
        self.post_imm(sge, 0, to, word)
    }

    fn post_imm(&mut self, mut sge: ibv_sge, flags: u32, to: RemoteMem, word: u32) -> bool {
        let signaled = self.is_signal_due();
        let opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        self.post_work(
            std::slice::from_mut(&mut sge),
            opcode,
            flags,
            signaled,
            |wr| {
                (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey) = (to.addr, to.key);
                wr.__bindgen_anon_1.imm_data = word.to_be();
            },
        )
    }
}
