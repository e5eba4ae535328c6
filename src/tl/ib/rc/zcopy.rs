//! Transfers of user memory without a copy.

use super::RcEp;
use crate::tl::Token;
use crate::tl::ib::bindings::*;
use crate::tl::ib::desc::{RemoteMem, TxDesc, ZcopyDesc};

/// The zero-copy transfers that a queue pair has not completed.
#[derive(Clone, Copy, Debug)]
pub struct ZcopyLoad {
    /// Their bytes.
    pub bytes: u64,
    /// Speed of the port, Mb/s.
    pub mbps: u32,
}

impl RcEp {
    /// Moves bytes between user memory and the peer's memory. The caller has checked that there is room. `last`: the
    /// request completes with this transfer, so it is signaled. `word`: the immediate that the peer gets after the
    /// bytes. False: the device refuses.
    pub fn post_zcopy(
        &mut self,
        here: ZcopyDesc,
        there: RemoteMem,
        last: bool,
        word: Option<u32>,
    ) -> bool {
        let piece = ibv_sge {
            addr: here.ptr as u64,
            length: here.len as u32,
            lkey: here.key,
        };
        self.post_zcopy_iov(here, &mut [piece], there, last, word)
    }

    /// [`post_zcopy`](Self::post_zcopy) for memory in several ranges, at most as many as a work request can name.
    pub fn post_zcopy_iov(
        &mut self,
        here: ZcopyDesc,
        pieces: &mut [ibv_sge],
        there: RemoteMem,
        last: bool,
        word: Option<u32>,
    ) -> bool {
        let opcode = match (here.reads, word) {
            (true, _) => IBV_WR_RDMA_READ,
            (false, None) => IBV_WR_RDMA_WRITE,
            (false, Some(_)) => IBV_WR_RDMA_WRITE_WITH_IMM,
        };
        let signaled = last || self.is_signal_due();
        if here.reads && self.fenced {
            self.revoke_inline_budget();
        }
        let posted = self.post_work(pieces, opcode, 0, signaled, |wr| {
            (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey) = (there.addr, there.key);
            wr.__bindgen_anon_1.imm_data = word.unwrap_or_default().to_be();
        });
        self.reads += u32::from(here.reads);
        self.zcopy_bytes += here.len as u64;
        self.held.push_back((self.posted, TxDesc::ZcopyDesc(here)));
        posted
    }

    /// The user memory that the device accesses, one entry per work request.
    pub fn zcopy_descs(&self) -> impl Iterator<Item = ZcopyDesc> {
        self.held.iter().filter_map(|(_, held)| match held {
            TxDesc::ZcopyDesc(desc) => Some(*desc),
            _ => None,
        })
    }

    /// Whether a zero-copy transfer has not completed.
    pub fn zcopy_in_flight(&self) -> bool {
        self.zcopy_bytes > 0
    }

    /// The zero-copy transfers that have not completed.
    pub fn load(&self) -> ZcopyLoad {
        ZcopyLoad {
            bytes: self.zcopy_bytes,
            mbps: self.iface.port.mbps.max(1),
        }
    }

    /// Maximum bytes of one work request.
    pub fn longest(&self) -> usize {
        self.iface.port.longest
    }

    /// The owners of user memory that the device accesses, once for each work request.
    pub fn zcopy_owners(&self) -> impl Iterator<Item = Token> {
        self.zcopy_descs().map(|desc| desc.owner)
    }
}
