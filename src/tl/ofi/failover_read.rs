//! Reads of a peer's memory in place by a connection with failover.
//!
//! A read can be repeated: when it has failed, and its completion has said so, the provider does not write the memory
//! any more. A message, or a get, of which the interface that reads has lost a part, or that it has begun when the
//! connection moves, goes by messages, as soon as no operation of it is outstanding. A write cannot be repeated:
//! its data may arrive long after its completion was an error, over what others have written meanwhile.

use super::endpoint_rma::OfiLocalMem;
use super::mr::OfiZcopy;
use super::sender::OfiSender;
use crate::tl::rma::{MrKey, RmaPart};

impl OfiSender {
    /// Reads what is left of a message, or of a get, by the lane, as far as there is room, by this key or that for the
    /// rail. True: all of it was posted. `None`: it cannot be read so, and nothing of it is outstanding.
    ///
    /// # Safety
    /// The memory is writable, and stays registered, until the request is complete.
    pub(super) unsafe fn read_with_failover(
        &mut self,
        rma: RmaPart<'_>,
        zcopy: &mut OfiZcopy,
        key: MrKey,
    ) -> Option<bool> {
        if self.replay().is_some_and(|replay| replay.is_moving()) {
            return Some(false);
        }
        let number = self.link.number;
        let is_by_other = zcopy.read_by.is_some_and(|by| by != number);
        let has_rma = self.ep.rma().is_some() && zcopy.again.is_empty() && !is_by_other;
        let mut keys = [Some(key), zcopy.rail_key].into_iter().flatten();
        let key = keys.find(|key| has_rma && key.number() == number);
        let Some((key, desc)) = key.zip(zcopy.desc(&self.ep, 0)) else {
            return (*rma.outstanding > 0).then_some(false);
        };
        zcopy.read_by = Some(number);
        while (*rma.offset as usize) < rma.len {
            let at = *rma.offset as usize;
            let there = self.remote(key, rma.addr.wrapping_add(*rma.offset));
            let here = OfiLocalMem {
                ptr: rma.data.wrapping_add(at),
                len: rma.len - at,
                desc,
            };
            // SAFETY: the caller's memory.
            let n = unsafe { (self.ep).read_repeatable(&self.link, there, here, rma.token) };
            if n == 0 {
                return Some(false);
            }
            *rma.offset += n as u64;
            *rma.outstanding += 1;
        }
        Some(true)
    }
}
