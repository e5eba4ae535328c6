//! Puts and gets that take several operations: as much is posted at a time as there is room for.

use super::mr;
use super::sender::TofuSender;
use super::stripe::{self, RailShare, TofuZcopy};
use super::utofu::Stadd;
use crate::tl::Token;

/// A put or get that is posted in part.
pub struct TofuRma<'a> {
    /// A put.
    pub writes: bool,
    /// Contiguous memory of the request with this token.
    pub data: *mut u8,
    pub len: usize,
    pub token: Token,
    /// The first byte of the peer's memory.
    pub there: Stadd,
    /// Bytes that are posted.
    pub offset: &'a mut u64,
    /// Posted operations that the lane will report by the token.
    pub outstanding: &'a mut u32,
}

impl TofuSender {
    /// Posts a put that one operation carries. False: it has to wait, or is too long.
    ///
    /// # Safety
    /// `len` bytes are readable at `data`.
    #[inline(always)]
    pub unsafe fn put_once(&mut self, stadd: Stadd, data: *const u8, len: usize) -> bool {
        // SAFETY: the caller's bytes.
        let fill = |to: *mut u8, n: usize| unsafe { to.copy_from_nonoverlapping(data, n) };
        len <= self.max_rma() && self.write(stadd, len, fill) == len
    }

    /// Posts a put or get through buffers. The lane reports gets alone. True: all of it is posted.
    ///
    /// # Safety
    /// The memory is valid until the request completes.
    #[inline(always)]
    pub unsafe fn rma_bcopy(&mut self, rma: TofuRma<'_>) -> bool {
        let TofuRma { offset, .. } = rma;
        while (*offset as usize) < rma.len {
            let (at, left) = (*offset as usize, rma.len - *offset as usize);
            let there = rma.there.wrapping_add(*offset);
            // SAFETY: the part is within the caller's memory.
            let n = unsafe {
                let here = rma.data.add(at);
                if rma.writes {
                    self.write(there, left, |to, n| to.copy_from_nonoverlapping(here, n))
                } else {
                    self.read(there, here, left, rma.token)
                }
            };
            if n == 0 {
                return false;
            }
            *offset += n as u64;
            *rma.outstanding += u32::from(!rma.writes);
        }
        true
    }

    /// Posts a put or get of registered memory, of which rails move their shares. True: all of it is posted; `None`:
    /// the memory is not registered.
    ///
    /// # Safety
    /// The memory is valid until the request completes.
    #[inline(always)]
    pub unsafe fn rma_zcopy(&mut self, rma: TofuRma<'_>, zcopy: &mut TofuZcopy) -> Option<bool> {
        let TofuRma { offset, token, .. } = rma;
        if *offset == 0 {
            zcopy.shares.retain(|share| share.rail < self.rails());
        }
        let part = stripe::part(rma.len, zcopy.shares.len(), self.longest());
        while (*offset as usize) < rma.len {
            let at = rma.data.wrapping_add(*offset as usize);
            let (turn, n) = stripe::next(*offset as usize, rma.len, part, zcopy.shares.len());
            let n = match turn.checked_sub(1) {
                None => {
                    let here = (mr::stadd(zcopy.memory.as_ref()?, at), n);
                    let there = rma.there.wrapping_add(*offset);
                    if rma.writes {
                        self.write_in_place(there, here, token)
                    } else {
                        self.read_in_place(there, here, token)
                    }
                }
                Some(i) => {
                    let RailShare {
                        rail,
                        memory,
                        there,
                    } = &zcopy.shares[i];
                    let here = (mr::stadd(memory, at), n);
                    let there = there.wrapping_add(*offset);
                    if rma.writes {
                        self.write_by_rail(*rail, there, here, token)
                    } else {
                        self.read_by_rail(*rail, there, here, token)
                    }
                }
            };
            if n == 0 {
                return Some(false);
            }
            *offset += n as u64;
            *rma.outstanding += 1;
        }
        Some(true)
    }
}
