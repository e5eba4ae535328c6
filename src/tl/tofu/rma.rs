//! Puts, gets and atomic operations of a lane: as much is posted at a time as there is room for.

use super::amo::TofuAmo;
use super::mr;
use super::sender::TofuSender;
use super::stripe::{self, RailShare};
use super::tni::PIGGYBACK;
use super::utofu::Stadd;
use crate::tl::rma::{AmoKey, AmoPost, RmaPart};
use crate::tl::rma_ops::{RmaOps, ZcopyPart};
use crate::tl::rma_pieces::{MAX_REGIONS, RmaPieces};
use crate::tl::{TlContext, TlRkey, TlZcopy};

impl TofuSender {
    /// Posts a put that one operation carries. False: it has to wait, or is too long.
    ///
    /// # Safety
    /// `len` bytes are readable at `data`.
    #[inline(always)]
    pub unsafe fn put_stadd(&mut self, stadd: Stadd, data: *const u8, len: usize) -> bool {
        // SAFETY: the caller's bytes.
        let fill = |to: *mut u8, n: usize| unsafe { to.copy_from_nonoverlapping(data, n) };
        len <= self.max_rma() && self.write(stadd, len, fill) == len
    }

    /// Posts as many pieces of a list as there is room for. True: all of them. `stadd`: the steering address of an
    /// address in the region of the piece with this number.
    ///
    /// # Safety
    /// The pieces are valid until the request completes.
    unsafe fn post_pieces(
        &mut self,
        mut pieces: RmaPieces<'_>,
        stadd: impl Fn(usize, u64) -> Stadd + Copy,
    ) -> bool {
        let RmaPieces { writes, token, .. } = pieces;
        while let Some(piece) = pieces.next() {
            if writes && piece.len <= PIGGYBACK {
                // SAFETY: the caller's promise.
                if !unsafe { self.write_pieces(&mut pieces, stadd) } {
                    return false;
                }
                continue;
            }
            if !writes && !piece.is_rest && piece.len <= self.max_rma() {
                if !self.read_pieces(&mut pieces, stadd) {
                    return false;
                }
                continue;
            }
            let there = stadd(pieces.cursor.next, piece.there);
            let n = if writes {
                self.write(there, piece.len, |to, n| {
                    // SAFETY: the caller's piece has `n` bytes, and `write` has room for them.
                    unsafe { to.copy_from_nonoverlapping(piece.here, n) };
                })
            } else {
                self.read(there, piece.here, piece.len, token)
            };
            if n == 0 {
                return false;
            }
            *pieces.outstanding += u32::from(!writes);
            pieces.posted(piece, n);
        }
        true
    }
}

impl RmaOps for TofuSender {
    const ORDERS_PUTS: bool = true;

    #[inline(always)]
    unsafe fn rma_bcopy(&mut self, part: RmaPart<'_>) -> Option<bool> {
        let first = part.key.stadd()?;
        let RmaPart { writes, token, .. } = part;
        let post = |offset, here: *mut u8, left| {
            let there = first.wrapping_add(offset);
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

    /// Rails move their shares, and the connection's own VCQ the rest.
    #[inline(always)]
    unsafe fn rma_zcopy(&mut self, part: ZcopyPart<'_>) -> Option<bool> {
        let TlZcopy::Tofu(zcopy) = part.tl else {
            return None;
        };
        let rma = part.rma;
        let first = rma.key.stadd()?;
        let RmaPart { offset, token, .. } = rma;
        if *offset == 0 {
            zcopy.shares.retain(|share| share.rail < self.rails());
        }
        let part = stripe::part(rma.len, zcopy.shares.len(), self.longest());
        while (*offset as usize) < rma.len {
            let at = rma.data.wrapping_add(*offset as usize);
            let (turn, n) = stripe::next(*offset as usize, rma.len, part, zcopy.shares.len());
            let n = match turn.checked_sub(1) {
                None => {
                    let here = (mr::stadd(&zcopy.memory, at), n);
                    let there = first.wrapping_add(*offset);
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

    unsafe fn rma_pieces(&mut self, pieces: RmaPieces<'_>) -> Option<bool> {
        let mut deltas = [0; MAX_REGIONS];
        for (delta, region) in deltas.iter_mut().zip(pieces.regions) {
            *delta = region.key.stadd()?.wrapping_sub(region.base);
        }
        let numbers = pieces.numbers;
        // SAFETY: the caller's promise.
        Some(unsafe {
            if numbers.is_empty() {
                let delta = deltas[0];
                self.post_pieces(pieces, |_, there| there.wrapping_add(delta))
            } else {
                let stadd = |piece: usize, there: u64| {
                    let number = usize::from(numbers[piece]);
                    there.wrapping_add(deltas[number])
                };
                self.post_pieces(pieces, stadd)
            }
        })
    }

    #[inline(always)]
    fn atomic(&mut self, post: AmoPost) -> Option<bool> {
        let AmoKey::Stadd(stadd) = post.key else {
            return None;
        };
        let step = TofuAmo::new(post.amo)?;
        Some(self.change(step, stadd, post.reply))
    }

    #[inline(always)]
    unsafe fn put_once(&mut self, to: (&TlRkey, u64), data: *const u8, len: usize) -> bool {
        match to.0.tofu.stadd(to.1, len) {
            // SAFETY: the caller's bytes.
            Some(stadd) => unsafe { self.put_stadd(stadd, data, len) },
            None => false,
        }
    }

    /// Reads are not ordered with writes.
    fn queues_fence(&self, _context: &TlContext, is_pending: bool) -> bool {
        is_pending
    }
}
