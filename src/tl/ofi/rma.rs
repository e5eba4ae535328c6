//! Puts, gets and atomic operations of a lane: as much is posted at a time as there is room for.
//!
//! Short data are copied, by the provider or through buffers: a put completes when its data are copied, a get when they
//! have arrived. Longer data are transferred in place. Every operation is reported by a completion. Nothing is ordered
//! by the provider: a fence, and a message that has to come behind a put, wait until all operations have taken effect.

use super::device::OfiDelivery;
use super::endpoint_rma::{OfiLocalMem, OfiRemoteMem};
use super::iov::OfiIov;
use super::mr::{OfiZcopy, Unread};
use super::packet::{FLUSH, bare};
use super::rail::{self, MIN_SHARED, OfiRail};
use super::sender::OfiSender;
use crate::tl::rma::{AmoKey, AmoPost, MrKey, RmaPart};
use crate::tl::rma_ops::{RmaOps, ZcopyPart};
use crate::tl::{TlContext, TlZcopy};

impl OfiSender {
    /// Whether all operations on memory of the peer have taken effect.
    #[inline(always)]
    pub fn is_rma_drained(&self) -> bool {
        let rma = &self.link.rma;
        let is_read = |rail: &OfiRail| rail.link.rma.outstanding() == 0;
        rma.outstanding() == 0
            && !(self.awaits_answer() && rma.has_unanswered())
            && self.rail().is_none_or(is_read)
    }

    /// [`is_rma_drained`](Self::is_rma_drained) for a caller that waits for it: asks the peer for an answer behind
    /// writes whose completions do not say that they have arrived.
    pub fn drain_rma(&mut self) -> bool {
        let rma = &self.link.rma;
        if rma.outstanding() == 0
            && self.awaits_answer()
            && let Some(writes) = rma.to_flush()
        {
            match self.ep.send(&bare(self.to, FLUSH, writes), &self.link) {
                Ok(()) => rma.set_asked(writes),
                // The next call tries again.
                Err(_) => self.ep.block(&self.link),
            }
        }
        self.is_rma_drained()
    }

    #[inline(always)]
    fn awaits_answer(&self) -> bool {
        let rma = self.ep.rma();
        rma.is_some_and(|rma| rma.delivery == OfiDelivery::Answer)
    }

    /// Whether the lane puts (`writes`), or gets.
    fn has_rma(&self, writes: bool) -> bool {
        // With failover all but reads in place goes by record: nothing says whether a write, or an atomic operation,
        // was executed before the failure, or is after it.
        let rma = self.ep.rma().filter(|_| !self.has_failover());
        rma.is_some_and(|rma| !writes || rma.writes())
    }

    /// Whether the lane puts registered memory.
    pub fn can_put(&self) -> bool {
        self.has_rma(true)
    }

    /// The peer's memory at this address of its process, as operations of the lane name it.
    pub(super) fn remote(&self, key: MrKey, addr: u64) -> OfiRemoteMem {
        OfiRemoteMem {
            peer: self.link.addr,
            offset: key.offset(addr),
            key: key.key(),
        }
    }

    /// Reads what is left of a long message by the lane, and by the rail if there is one, as far as there is room.
    /// True: all of it was posted. `None`: the memory cannot be used.
    ///
    /// # Safety
    /// The memory is writable, and stays registered, until the request is complete.
    unsafe fn read_shared(
        &mut self,
        rma: RmaPart<'_>,
        zcopy: &mut OfiZcopy,
        key: MrKey,
    ) -> Option<bool> {
        let desc = zcopy.desc(&self.ep, 0)?;
        let rail = self.rail_for(zcopy);
        loop {
            let next = match zcopy.again.last() {
                Some(&next) => next,
                None if (*rma.offset as usize) < rma.len => Unread {
                    offset: *rma.offset,
                    len: rma.len - *rma.offset as usize,
                },
                None => return Some(true),
            };
            let addr = rma.addr.wrapping_add(next.offset);
            let here = OfiLocalMem {
                ptr: rma.data.wrapping_add(next.offset as usize),
                len: next.len,
                desc,
            };
            // The one with fewer operations gets the next part.
            let few = rail
                .as_ref()
                .filter(|(rail, ..)| rail.link.rma.outstanding() < self.link.rma.outstanding());
            let mut n = 0;
            if let Some((rail, key, desc)) = few {
                let here = OfiLocalMem {
                    desc: *desc,
                    ..here
                };
                // SAFETY: the caller's memory.
                n = unsafe { rail.read(*key, addr, here, rma.len, rma.token) };
            }
            if n == 0 {
                let len = match &rail {
                    Some(_) => rail::part(rma.len, next.len),
                    None => next.len,
                };
                let (here, there) = (OfiLocalMem { len, ..here }, self.remote(key, addr));
                // SAFETY: the caller's memory.
                n = unsafe { (self.ep).zcopy(&self.link, there, here, false, rma.token) };
            }
            if n == 0 {
                return Some(false);
            }
            *rma.outstanding += 1;
            match zcopy.again.pop() {
                Some(read) if n < read.len => zcopy.again.push(Unread {
                    offset: read.offset + n as u64,
                    len: read.len - n,
                }),
                Some(_) => {}
                None => *rma.offset += n as u64,
            }
        }
    }

    /// The key, if it is valid in the domain of the peer's interface to which the lane leads.
    fn valid(&self, key: MrKey) -> Option<MrKey> {
        (key.number() == self.link.number).then_some(key)
    }
}

impl RmaOps for OfiSender {
    unsafe fn rma_bcopy(&mut self, part: RmaPart<'_>) -> Option<bool> {
        let key = self.valid(part.key.mr()?)?;
        let RmaPart {
            addr,
            writes,
            token,
            ..
        } = part;
        self.has_rma(writes).then_some(())?;
        let post = |offset, here: *mut u8, left| {
            let there = self.remote(key, addr.wrapping_add(offset));
            // SAFETY: `left` bytes of the caller's memory are at `here`.
            unsafe {
                if writes {
                    self.ep.put(&self.link, there, here, left)
                } else {
                    self.ep.get(&self.link, there, (here, left), token)
                }
            }
        };
        // SAFETY: the caller's memory.
        Some(unsafe { part.by_copies(post) })
    }

    unsafe fn rma_zcopy(&mut self, part: ZcopyPart<'_>) -> Option<bool> {
        let TlZcopy::Ofi(zcopy) = &mut *part.tl else {
            return None;
        };
        let rma = part.rma;
        if self.has_failover() {
            let is_read = !rma.writes && part.pieces.is_none() && !rma.data.is_null();
            let key = rma.key.mr().filter(|_| is_read)?;
            // SAFETY: the caller's memory, which `zcopy` keeps registered.
            return unsafe { self.read_with_failover(rma, zcopy, key) };
        }
        let key = self.valid(rma.key.mr()?)?;
        let is_known = part.pieces.is_some() || !rma.data.is_null();
        (self.has_rma(rma.writes) && is_known).then_some(())?;
        // A message that is sent now could overtake a put.
        *part.on_rails = rma.writes;
        if part.pieces.is_none() && !rma.writes && rma.len >= MIN_SHARED {
            // SAFETY: the caller's memory, which `zcopy` keeps registered.
            return unsafe { self.read_shared(rma, zcopy, key) };
        }
        while (*rma.offset as usize) < rma.len {
            let at = *rma.offset as usize;
            let there = self.remote(key, rma.addr.wrapping_add(*rma.offset));
            let n = match part.pieces {
                None => {
                    let here = OfiLocalMem {
                        ptr: rma.data.wrapping_add(at),
                        len: rma.len - at,
                        desc: zcopy.desc(&self.ep, 0)?,
                    };
                    // SAFETY: the caller's memory, which `zcopy` keeps registered.
                    unsafe { (self.ep).zcopy(&self.link, there, here, rma.writes, rma.token) }
                }
                Some(pieces) => {
                    let limits = self.ep.rma().map(|rma| (rma.max_iov, rma.max))?;
                    let desc = |piece| zcopy.desc(&self.ep, piece);
                    let mut here = OfiIov::take(pieces, at, limits, desc)?;
                    let (writes, token) = (rma.writes, rma.token);
                    // SAFETY: the caller's memory, which `zcopy` keeps registered.
                    unsafe { (self.ep).zcopy_iov(&self.link, there, &mut here, writes, token) }
                }
            };
            if n == 0 {
                return Some(false);
            }
            *rma.offset += n as u64;
            *rma.outstanding += 1;
        }
        Some(true)
    }

    fn atomic(&mut self, post: AmoPost) -> Option<bool> {
        let AmoKey::Mr(key) = post.key else {
            return None;
        };
        (self.ep.has_atomics && !self.has_failover()).then_some(())?;
        let key = self.valid(key)?;
        let there = self.remote(key, post.addr);
        // SAFETY: the request has the room until it is complete, or detached.
        Some(unsafe { (self.ep).atomic(&self.link, there, post.amo, post.reply) })
    }

    /// Nothing is ordered by the provider.
    fn queues_fence(&self, _context: &TlContext, is_pending: bool) -> bool {
        is_pending || !self.is_drained()
    }
}
