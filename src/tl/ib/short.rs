//! Short operations of the hot path: inline data within the budget, and operations that take an op slot.

use super::rc::{AmoDesc, RcEp, RemoteMem};
use super::sender::IbSender;
use crate::sys::copy::TINY;
use crate::tl::amo;
use crate::tl::rma_short::{FlushStep, RmaShort};
use crate::tl::{TlContext, TlRkey, Token};
use std::ptr::{self, NonNull};

impl RmaShort for IbSender {
    const HAS_PUT_BCOPY: bool = true;
    const HAS_GET_ONCE: bool = true;
    const MAX_PUT: usize = TINY;
    const MAX_GET: usize = usize::MAX;

    type Remote = RemoteMem;
    /// The RC queue pair, which has a free op slot.
    type Slot = NonNull<RcEp>;
    type Amo = AmoDesc;

    #[inline(always)]
    fn remote(&self, key: &TlRkey, addr: u64, len: usize) -> Option<RemoteMem> {
        let key = key.device_keys(addr, len)?.of_port(self.remote_port())?;
        Some(RemoteMem { addr, key })
    }

    #[inline(always)]
    unsafe fn put_short(
        &mut self,
        to: RemoteMem,
        data: *const u8,
        len: usize,
        count: impl FnOnce(),
    ) -> bool {
        let Some(rc_ep) = self.ready_rc() else {
            return false;
        };
        count();
        // SAFETY: the caller's bytes and mode.
        if !unsafe { rc_ep.write_tiny(to, data, len) } {
            self.fail();
        }
        true
    }

    #[inline(always)]
    unsafe fn put_bcopy(&mut self, to: RemoteMem, data: *const u8, len: usize) -> bool {
        // SAFETY: the caller's bytes.
        unsafe { self.write_short(to, data, len) }
    }

    #[inline(always)]
    unsafe fn put_at(&mut self, to: RemoteMem, data: *const u8, len: usize) -> bool {
        // SAFETY: the caller's bytes.
        unsafe { self.put_rkey(to, data, len) }
    }

    #[inline(always)]
    fn get_slot(&mut self, len: usize) -> Option<NonNull<RcEp>> {
        if len > self.most_at_once() {
            return None;
        }
        self.rc_with_slot().map(NonNull::from)
    }

    #[inline(always)]
    unsafe fn get_short(
        &mut self,
        slot: NonNull<RcEp>,
        from: RemoteMem,
        into: (*mut u8, usize),
        token: Token,
        count: impl FnOnce(),
    ) -> bool {
        // SAFETY: the queue pair belongs to this sender, whose own reference is not used meanwhile.
        let rc_ep = unsafe { &mut *slot.as_ptr() };
        let Some(through) = rc_ep.through(into.1) else {
            return false;
        };
        // Before the post, as everywhere here: nothing has to be saved across that call.
        count();
        if !rc_ep.read_short(from, into, through, token) {
            self.fail();
        }
        true
    }

    fn can_get_once(&self, key: &TlRkey, addr: u64, len: usize) -> bool {
        len <= self.most_at_once() && RmaShort::remote(self, key, addr, len).is_some()
    }

    fn get_once(&mut self, from: (&TlRkey, u64), into: (*mut u8, usize), token: Token) -> bool {
        let from = RmaShort::remote(self, from.0, from.1, into.1);
        from.is_some_and(|from| self.read(from, into.0, into.1, token) == into.1)
    }

    #[inline(always)]
    unsafe fn amo(
        _context: &TlContext,
        (op, size): (u32, u8),
        operand: *const u8,
        reply: *const u8,
    ) -> Option<AmoDesc> {
        const ADD: u32 = amo::ADD as u32;
        const CSWAP: u32 = amo::CSWAP as u32;
        // SAFETY: the caller's operand.
        let value = unsafe { amo::load(operand, size) };
        match op {
            ADD => Some(AmoDesc::Add(value)),
            CSWAP if !reply.is_null() => Some(AmoDesc::CompareSwap {
                compare: value,
                // SAFETY: the caller's reply.
                swap: unsafe { amo::load(reply, size) },
            }),
            _ => None,
        }
    }

    #[inline(always)]
    fn amo_slot(
        &mut self,
        key: &TlRkey,
        addr: u64,
        len: usize,
    ) -> Option<(RemoteMem, NonNull<RcEp>)> {
        let keys = key.device_keys(addr, len)?;
        let slot = self.rc_with_slot().map(NonNull::from)?;
        let port = self.remote_port();
        let key = keys.of_port(port)?;
        let executes = keys.atomics.has_port(port) && self.has_atomics();
        executes.then_some((RemoteMem { addr, key }, slot))
    }

    #[inline(always)]
    unsafe fn amo_short(
        &mut self,
        (at, slot): (RemoteMem, NonNull<RcEp>),
        amo: AmoDesc,
        reply: Option<(*mut u8, Token)>,
        count: impl FnOnce(),
    ) -> bool {
        count();
        let (into, owner) = reply.unwrap_or((ptr::null_mut(), Token::NONE));
        // SAFETY: the queue pair belongs to this sender, whose own reference is not used meanwhile.
        let posted = unsafe { &mut *slot.as_ptr() }.atomic_short(amo, at, into, owner);
        if !posted {
            self.fail();
        }
        true
    }

    #[inline(always)]
    fn flush_step(&self) -> FlushStep {
        if self.can_flush_marker() {
            FlushStep::Marker
        } else if self.is_drained() {
            FlushStep::Drained
        } else {
            FlushStep::Wait
        }
    }

    #[inline(always)]
    fn flush_short(&mut self, token: Token) -> bool {
        self.flush_marker(token);
        true
    }
}
