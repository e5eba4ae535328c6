//! Puts, gets and atomic operations of a lane: as much is posted at a time as there is room for.
//!
//! Short data are copied through registered buffers: a put completes when its data are copied, a get when they have
//! arrived. Longer data are transferred in place (`zcopy`).

use super::rc::{AmoDesc, RemoteMem};
use super::sender::IbSender;
use crate::tl::rma::{AmoKey, AmoPost, RmaPart, Striping};
use crate::tl::rma_ops::{RmaOps, ZcopyPart};
use crate::tl::rma_pieces::{MAX_REGIONS, RmaPieces};
use crate::tl::{TlContext, TlRkey, Token};
use std::{ptr, slice};

impl IbSender {
    /// Posts a put that one work request carries. False: it has to wait, or is too long.
    ///
    /// # Safety
    /// `len` bytes are readable at `data`.
    #[inline(always)]
    pub unsafe fn put_rkey(&mut self, to: RemoteMem, data: *const u8, len: usize) -> bool {
        // SAFETY: the caller's bytes.
        let fill = |to: *mut u8, n: usize| unsafe { to.copy_from_nonoverlapping(data, n) };
        len <= self.most_at_once() && self.write(to, len, fill) == len
    }
}

impl IbSender {
    /// The memory at this address, which the key contains, by its rkey for the port to which the lane leads.
    #[inline(always)]
    fn known(&self, (key, addr): (&TlRkey, u64)) -> Option<RemoteMem> {
        let key = key.ib.as_ref()?.of_port(self.remote_port())?;
        Some(RemoteMem { addr, key })
    }
}

impl RmaOps for IbSender {
    #[inline(always)]
    unsafe fn rma_bcopy(&mut self, part: RmaPart<'_>) -> Option<bool> {
        if !self.is_connected() {
            return None;
        }
        let RmaPart {
            addr,
            writes,
            token,
            ..
        } = part;
        let key = part.key.of_port(self.remote_port())?;
        let post = |offset, here: *mut u8, left| {
            let addr = addr.wrapping_add(offset);
            let there = RemoteMem { addr, key };
            // SAFETY: `left` bytes of the caller's memory are at `here`.
            unsafe {
                if writes {
                    self.write(there, left, |to, n| to.copy_from_nonoverlapping(here, n))
                } else {
                    self.read(there, here, left, token)
                }
            }
        };
        // SAFETY: the caller's memory.
        Some(unsafe { part.by_copies(post) })
    }

    #[inline(always)]
    unsafe fn rma_zcopy(&mut self, part: ZcopyPart<'_>) -> Option<bool> {
        // SAFETY: the caller's promise.
        unsafe { self.post_part(part) }
    }

    unsafe fn rma_pieces(&mut self, mut pieces: RmaPieces<'_>) -> Option<bool> {
        if !self.is_connected() {
            return None;
        }
        let (one, mut several);
        let port = self.remote_port();
        let rkeys: &[u32] = if let [region] = pieces.regions {
            one = region.key.of_port(port)?;
            slice::from_ref(&one)
        } else {
            several = [0; MAX_REGIONS];
            for (rkey, region) in several.iter_mut().zip(pieces.regions) {
                *rkey = region.key.of_port(port)?;
            }
            &several
        };
        while pieces.next().is_some() {
            // SAFETY: the caller's promise.
            if !unsafe { self.post_pieces(&mut pieces, rkeys) } {
                return Some(false);
            }
        }
        Some(true)
    }

    #[inline(always)]
    fn atomic(&mut self, post: AmoPost) -> Option<bool> {
        let AmoKey::Rkey { rkey, port_mask } = post.key else {
            return None;
        };
        let step = AmoDesc::new(post.amo)?;
        // Only one HCA of the peer executes it, which this connection may not reach.
        let is_behind = port_mask >> self.remote_port() & 1 == 1;
        if !is_behind || !self.has_atomics() {
            return None;
        }
        let at = RemoteMem {
            addr: post.addr,
            key: rkey,
        };
        let (into, owner) = post.reply.unwrap_or((ptr::null_mut(), Token::NONE));
        Some(self.atomic(step, at, into, owner))
    }

    #[inline(always)]
    unsafe fn put_once(&mut self, to: (&TlRkey, u64), data: *const u8, len: usize) -> bool {
        match self.known(to) {
            // SAFETY: the caller's bytes.
            Some(to) => unsafe { self.put_rkey(to, data, len) },
            None => false,
        }
    }

    #[inline(always)]
    unsafe fn put_with_imm(
        &mut self,
        to: (&TlRkey, u64),
        data: *const u8,
        len: usize,
        word: u32,
    ) -> bool {
        // SAFETY: the caller's bytes.
        let fill = |to: *mut u8| unsafe { to.copy_from_nonoverlapping(data, len) };
        match self.known(to) {
            Some(to) if len <= self.most_at_once() => self.write_with_imm(to, len, word, fill),
            _ => false,
        }
    }

    unsafe fn put_zcopy_with_imm(&mut self, part: ZcopyPart<'_>) -> bool {
        // SAFETY: the caller's promise.
        self.is_connected() && unsafe { self.post_with_imm(part) }
    }

    /// Parts on different queue pairs complete in any order.
    fn queues_fence(&self, context: &TlContext, is_pending: bool) -> bool {
        let by_rails_alone = !self.is_connected() && self.zcopy_capable();
        (is_pending || !self.is_drained())
            && (by_rails_alone || context.ib.most_rails(Striping::Rma) > 1)
    }
}
