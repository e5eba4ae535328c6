//! Writes that carry a word, which the peer gets behind the data.

use super::{Held, Reliable, Remote};
use crate::tl::ib::bindings::*;
use crate::tl::ib::buffers::Buffer;

impl Reliable {
    /// Writes bytes, which are copied at once, and a word. There is room, and they are no more than a work request
    /// takes so. False: the device refuses.
    pub fn write_inline_with_word(&mut self, bytes: &[u8], to: Remote, word: u32) -> bool {
        let sge = ibv_sge {
            addr: bytes.as_ptr() as u64,
            length: bytes.len() as u32,
            lkey: 0,
        };
        self.post_word(sge, IBV_SEND_INLINE, to, word)
    }

    /// Writes a buffer, which comes back to the interface afterwards, and a word. There is room. False: the device
    /// refuses.
    pub fn write_buffer_with_word(
        &mut self,
        buffer: Buffer,
        len: usize,
        to: Remote,
        word: u32,
    ) -> bool {
        let sge = ibv_sge {
            addr: buffer.ptr as u64,
            length: len as u32,
            lkey: buffer.lkey,
        };
        self.silent += 1;
        self.held.push_back((self.posted + 1, Held::Out(buffer)));
        self.post_word(sge, 0, to, word)
    }

    fn post_word(&mut self, mut sge: ibv_sge, flags: u32, to: Remote, word: u32) -> bool {
        let tells = self.is_to_tell();
        let opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        self.post_work(std::slice::from_mut(&mut sge), opcode, flags, tells, |wr| {
            (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey) = (to.addr, to.key);
            wr.__bindgen_anon_1.imm_data = word.to_be();
        })
    }
}
