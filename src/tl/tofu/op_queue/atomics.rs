//! Atomic operations: those of connections, asynchronous with an MRQ notice that carries the fetched value, and the
//! worker's own, which are waited for.

use super::super::amo::{AmoWidth, TofuAmo};
use super::super::utofu::{self, MrqNotice, OpFlags};
use super::super::vcq::{PostFlags, RemoteAddr};
use super::completion::{Completion, OWN};
use super::edata_tags::{OWN_SLOT, SLOTS};
use super::{MAX_EARLY_NOTICES, OpQueue, STUCK_MS, word_of};
use crate::sys::clock;
use crate::sys::sync::give_way;
use crate::tl::Token;
use std::ffi::c_int;

/// Limit of outstanding non-fetching operations of all connections together: each produces a notice, and the MRQ is
/// finite.
const MOST: u32 = 1024;
/// Polls for the worker's own operation before the thread yields: a TNI takes a microsecond or two.
const LOOKS: u32 = 1000;

/// A request that waits for the value that an atomic operation fetches.
#[derive(Clone, Copy, Debug)]
pub struct AmoWaiter {
    pub conn: u32,
    /// Destination of the fetched value; null once the request is detached.
    into: *mut u8,
    len: usize,
    pub request: Token,
}

const NO_WAITER: AmoWaiter = AmoWaiter {
    conn: 0,
    into: std::ptr::null_mut(),
    len: 0,
    request: Token::NONE,
};

impl AmoWaiter {
    /// Detaches the request: the fetched value is dropped.
    pub fn detach_owner(&mut self) {
        (self.into, self.request) = (std::ptr::null_mut(), Token::NONE);
    }
}

/// The waiting requests, by edata tag.
pub struct AmoReplies(Vec<AmoWaiter>);

// SAFETY: the pointers are followed only under the queue's lock, while the requests that own the memory wait.
unsafe impl Send for AmoReplies {}

impl AmoReplies {
    /// No request waits with any edata tag.
    pub fn new() -> AmoReplies {
        AmoReplies(vec![NO_WAITER; SLOTS])
    }

    /// Removes and returns the request that waits with this edata tag.
    pub fn end(&mut self, slot: u64) -> AmoWaiter {
        let user = self.0.get_mut(slot as usize);
        user.map_or(NO_WAITER, |user| std::mem::replace(user, NO_WAITER))
    }

    /// Stores a fetched value at its destination: returns the request, null if it was detached.
    pub fn land(&mut self, slot: u64, value: u64) -> Token {
        let user = self.end(slot);
        if !user.request.is_none() {
            // The low half of a little-endian word comes first: it is the value of a 4-byte operation.
            let bytes = value.to_le_bytes();
            // SAFETY: `len` is 4 or 8, and the waiting request's destination has room for it.
            unsafe {
                user.into.copy_from_nonoverlapping(bytes.as_ptr(), user.len);
            }
        }
        user.request
    }

    /// The waiting requests.
    pub fn users(&self) -> impl Iterator<Item = &AmoWaiter> {
        self.0.iter().filter(|user| !user.request.is_none())
    }

    /// The waiting requests, to be changed.
    pub fn users_mut(&mut self) -> impl Iterator<Item = &mut AmoWaiter> {
        self.0.iter_mut().filter(|user| !user.request.is_none())
    }
}

/// Flags of an operation with a notice. TNIs keep the atomic operations of one connection in order with strong order,
/// as far as they keep any order.
fn flags_of(edata: u8, conn: u32) -> PostFlags {
    PostFlags {
        flags: OpFlags::STRONG_ORDER | OpFlags::LOCAL_MRQ_NOTICE,
        edata,
        cbdata: word_of(conn, edata),
    }
}

impl OpQueue {
    /// Posts a fetching operation on a word at a peer. `QueueEvent::Completed` reports `request` when the fetched value
    /// is at `into`. False: no edata tag is free.
    ///
    /// # Errors
    /// The library's code: the connection is unusable.
    pub fn fetch(
        &mut self,
        conn: u32,
        step: TofuAmo,
        to: RemoteAddr,
        (into, request): (*mut u8, Token),
    ) -> Result<bool, c_int> {
        let Some(slot) = self.slots.alloc(Completion::Reply(conn)) else {
            return Ok(false);
        };
        self.replies.0[usize::from(slot)] = AmoWaiter {
            conn,
            into,
            len: step.width.bytes(),
            request,
        };
        let posted = self.post(|vcq| vcq.change(step, to, flags_of(slot, conn)));
        if posted.is_err() {
            self.replies.end(slot.into());
        }
        self.posted(posted, slot)
    }

    /// Posts a non-fetching operation on a word at a peer; the outstanding ones of a connection share one edata tag,
    /// kept in `slot`. `QueueEvent::Completed` reports each. False: no edata tag is free, or too many are outstanding.
    ///
    /// # Errors
    /// The library's code: the connection is unusable.
    pub fn change(
        &mut self,
        conn: u32,
        step: TofuAmo,
        to: RemoteAddr,
        slot: &mut u8,
    ) -> Result<bool, c_int> {
        let owner = Completion::Changes(conn);
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
        let posted = self.post(|vcq| vcq.change(step, to, flags_of(slot, conn)));
        self.changes += u32::from(posted.is_ok());
        self.posted(posted, slot)
    }

    /// Executes an operation on memory of this process and waits for it, a microsecond or two: returns the fetched
    /// value. Other notices are queued.
    ///
    /// # Errors
    /// The library's code: the operation may or may not have been executed.
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
            self.poll_tcq();
            let own = self.failed.iter().position(|&(conn, _)| conn == OWN)?;
            let (_, code) = self.failed.swap_remove(own);
            return Some(Err(code));
        }
        if !is_own(&notice) {
            let is_lost = self.early.len() >= MAX_EARLY_NOTICES;
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
