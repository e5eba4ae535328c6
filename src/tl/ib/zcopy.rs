//! Puts and gets of registered memory, which the device accesses directly, in one work request or several.

use super::iov;
use super::rc::{RemoteMem, ZcopyDesc};
use super::sender::IbSender;
use super::stripe;
use crate::tl::TlZcopy;
use crate::tl::rma::RmaPart;
use crate::tl::rma_ops::ZcopyPart;
use std::ptr;

impl IbSender {
    /// Posts as much of a transfer as there is room for. True: all of it; `None`: the lane cannot execute it.
    ///
    /// # Safety
    /// The memory is valid until the request completes.
    pub(super) unsafe fn post_part(&mut self, mut part: ZcopyPart<'_>) -> Option<bool> {
        let RmaPart { data, len, .. } = part.rma;
        // Without a queue pair of the connection's own, rails move all of it.
        let key = if self.is_connected() {
            Some(part.rma.key.of_port(self.remote_port())?)
        } else if self.zcopy_capable() {
            None
        } else {
            return None;
        };
        if *part.rma.offset == 0 && !data.is_null() && !stripe::begin(self, &mut part) {
            return Some(false);
        }
        if *part.on_rails {
            return stripe::share_out(self, part);
        }
        let key = key?;
        let RmaPart { offset, .. } = part.rma;
        let TlZcopy::Ib(zcopy) = part.tl else {
            return None;
        };
        while (*offset as usize) < len {
            let here = ZcopyDesc {
                ptr: if data.is_null() {
                    ptr::null_mut()
                } else {
                    data.wrapping_add(*offset as usize)
                },
                len: len - *offset as usize,
                key: zcopy
                    .memory
                    .first()?
                    .region()
                    .local_key(self.local_port())?,
                reads: !part.rma.writes,
                owner: part.rma.token,
            };
            let there = RemoteMem {
                addr: part.rma.addr.wrapping_add(*offset),
                key,
            };
            let n = match part.pieces {
                None => self.post_zcopy(here, there, part.word),
                Some(pieces) => {
                    let pieces = (pieces, &zcopy.memory[..]);
                    iov::post(self, pieces, *offset, here, there, part.word)?
                }
            };
            if n == 0 {
                return Some(false);
            }
            *offset += n as u64;
            *part.rma.outstanding += 1;
        }
        Some(true)
    }

    /// Posts a put in one work request with an immediate. False: it needs more, or there is no room now.
    ///
    /// # Safety
    /// As for [`post_part`](Self::post_part); the memory is contiguous.
    pub(super) unsafe fn post_with_imm(&mut self, part: ZcopyPart<'_>) -> bool {
        let one = part.rma.len <= self.zcopy_limits().bytes && stripe::one_suffices(&part);
        let rma = part.rma;
        let memory = match &*part.tl {
            TlZcopy::Ib(zcopy) => zcopy.memory.first(),
            TlZcopy::Tofu(_) | TlZcopy::Ofi(_) | TlZcopy::Driver => None,
        };
        let local = memory.and_then(|memory| memory.region().local_key(self.local_port()));
        let theirs = rma.key.of_port(self.remote_port());
        let (Some(key), Some(there), true) = (local, theirs, one) else {
            return false;
        };
        let here = ZcopyDesc {
            ptr: rma.data,
            len: rma.len,
            key,
            reads: false,
            owner: rma.token,
        };
        let to = RemoteMem {
            addr: rma.addr,
            key: there,
        };
        if self.post_zcopy(here, to, part.word) == 0 {
            return false;
        }
        (*rma.outstanding, *rma.offset) = (1, rma.len as u64);
        true
    }
}
