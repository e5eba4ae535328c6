//! Atomic operations: those of connections, each with a notice that brings what was there before, and the worker's own,
//! which are waited for.

use super::super::amo::{AmoWidth, TofuAmo};
use super::super::utofu::{self, MrqNotice};
use super::super::vcq::{PostFlags, RemoteAddr};
use super::completion::{Completion, OWN};
use super::edata_tags::{OWN_SLOT, SLOTS};
use super::{MOST_EARLY, OpQueue, STUCK_MS, word_of};
use crate::sys::clock;
use crate::sys::sync::give_way;
use std::ffi::{c_int, c_void};

/// Those without a reply that may be under way, of all connections together: each has a notice, and the queue of
/// notices has an end.
const MOST: u32 = 1024;
/// Looks for the end of the worker's own before others are let run: an adapter takes a microsecond or two.
const LOOKS: u32 = 1000;

/// Who waits for one of them.
#[derive(Clone, Copy, Debug)]
pub struct AmoWaiter {
    pub link: u32,
    /// Where what was there before goes, if somebody still wants it.
    into: *mut u8,
    len: usize,
    pub whose: *mut c_void,
}

const NOBODY: AmoWaiter = AmoWaiter {
    link: 0,
    into: std::ptr::null_mut(),
    len: 0,
    whose: std::ptr::null_mut(),
};

impl AmoWaiter {
    /// He waits no more.
    pub fn detach_owner(&mut self) {
        (self.into, self.whose) = (std::ptr::null_mut(), std::ptr::null_mut());
    }
}

/// Who waits for what was there before, by slots.
pub struct AmoReplies(Vec<AmoWaiter>);

// SAFETY: the pointers are followed under the queue's lock only, while their owners wait.
unsafe impl Send for AmoReplies {}

impl AmoReplies {
    pub fn new() -> AmoReplies {
        AmoReplies(vec![NOBODY; SLOTS])
    }

    /// Nobody waits for this one any more: who did.
    pub fn end(&mut self, slot: u64) -> AmoWaiter {
        let user = self.0.get_mut(slot as usize);
        user.map_or(NOBODY, |user| std::mem::replace(user, NOBODY))
    }

    /// What was there before has come: who wanted it.
    pub fn land(&mut self, slot: u64, value: u64) -> *mut c_void {
        let user = self.end(slot);
        if !user.whose.is_null() {
            // The first bytes of a little-endian word are its lower ones, which those of 4 are.
            let bytes = value.to_le_bytes();
            // SAFETY: no more than 8 bytes; who waits for them has room.
            unsafe {
                user.into.copy_from_nonoverlapping(bytes.as_ptr(), user.len);
            }
        }
        user.whose
    }

    /// Those who wait.
    pub fn users(&self) -> impl Iterator<Item = &AmoWaiter> {
        self.0.iter().filter(|user| !user.whose.is_null())
    }

    /// The same, to be changed.
    pub fn users_mut(&mut self) -> impl Iterator<Item = &mut AmoWaiter> {
        self.0.iter_mut().filter(|user| !user.whose.is_null())
    }
}

/// How an operation is told of. Adapters keep the order of those of one connection, as far as they keep any.
fn flags_of(edata: u8, link: u32) -> PostFlags {
    PostFlags {
        flags: utofu::STRONG_ORDER | utofu::LOCAL_MRQ_NOTICE,
        edata,
        cbdata: word_of(link, edata),
    }
}

impl OpQueue {
    /// Changes a word at a peer, and writes what was there before to `into`; `whose` hears of it from
    /// `QueueEvent::Came`. False: too many wait.
    ///
    /// # Errors
    /// As of [`send_short`](Self::send_short).
    pub fn fetch(
        &mut self,
        link: u32,
        step: TofuAmo,
        to: RemoteAddr,
        (into, whose): (*mut u8, *mut c_void),
    ) -> Result<bool, c_int> {
        let Some(slot) = self.slots.alloc(Completion::Reply(link)) else {
            return Ok(false);
        };
        self.replies.0[usize::from(slot)] = AmoWaiter {
            link,
            into,
            len: step.width.bytes(),
            whose,
        };
        let posted = self.post(|vcq| vcq.change(step, to, flags_of(slot, link)));
        if posted.is_err() {
            self.replies.end(slot.into());
        }
        self.posted(posted, slot)
    }

    /// The same where nobody wants to know what was there; those of a connection that are under way at the same time
    /// share one slot, the last one's. `QueueEvent::Came` tells of each.
    ///
    /// # Errors
    /// As above.
    pub fn change(
        &mut self,
        link: u32,
        step: TofuAmo,
        to: RemoteAddr,
        slot: &mut u8,
    ) -> Result<bool, c_int> {
        let owner = Completion::Changes(link);
        if self.changes >= MOST {
            return Ok(false);
        }
        if !self.slots.share(*slot, owner) {
            let Some(free) = self.slots.alloc(owner) else {
                return Ok(false);
            };
            *slot = free;
        }
        let slot = *slot;
        let posted = self.post(|vcq| vcq.change(step, to, flags_of(slot, link)));
        self.changes += u32::from(posted.is_ok());
        self.posted(posted, slot)
    }

    /// Has a word of this process changed, and waits for that, a microsecond or two: what was there before. Other
    /// notices wait.
    ///
    /// # Errors
    /// The library's code: nobody knows whether it was done.
    pub fn execute(&mut self, step: TofuAmo, to: RemoteAddr) -> Result<u64, c_int> {
        if !self.slots.alloc_own() {
            return Err(utofu::BUSY);
        }
        let posted = self.post(|vcq| vcq.change(step, to, flags_of(OWN_SLOT, OWN)));
        self.posted(posted, OWN_SLOT)?;
        let began = clock::coarse_ms();
        loop {
            for _ in 0..LOOKS {
                if let Some(done) = self.look_for_own() {
                    return done.map(|value| match step.width {
                        AmoWidth::Four => u64::from(value as u32),
                        AmoWidth::Eight => value,
                    });
                }
                std::hint::spin_loop();
            }
            if clock::coarse_ms() - began > STUCK_MS {
                return Err(utofu::BUSY);
            }
            give_way(0);
        }
    }

    fn look_for_own(&mut self) -> Option<Result<u64, c_int>> {
        let (code, notice) = self.vcq.poll_mrq();
        if code == utofu::NOT_FOUND {
            self.reap();
            let own = self.failed.iter().position(|&(link, _)| link == OWN)?;
            let (_, code) = self.failed.swap_remove(own);
            return Some(Err(code));
        }
        if !is_own(&notice) {
            let is_lost = self.early.len() >= MOST_EARLY;
            self.early.push_back((code, notice));
            return is_lost.then_some(Err(utofu::MRQ_OTHER));
        }
        self.slots.complete(notice.edata, true);
        Some(match code {
            utofu::SUCCESS => Ok(notice.rmt_value),
            code => Err(code),
        })
    }
}

fn is_own(notice: &MrqNotice) -> bool {
    notice.notice_type == utofu::LCL_ARMW && notice.edata == u64::from(OWN_SLOT)
}
