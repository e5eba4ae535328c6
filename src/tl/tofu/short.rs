//! Short operations of the hot path: what the descriptor carries, within the sender's budget.

use super::amo::{AmoVerb, AmoWidth, TofuAmo};
use super::sender::TofuSender;
use super::tni::PIGGYBACK;
use super::utofu::Stadd;
use crate::tl::amo;
use crate::tl::rma_short::{FlushStep, RmaShort};
use crate::tl::{TlContext, TlRkey, Token};

impl RmaShort for TofuSender {
    const HAS_WORDS: bool = true;
    const HAS_AMO32: bool = true;
    const RENEWS: bool = true;
    const MAX_PUT: usize = PIGGYBACK;
    /// The slow path can receive longer data without a copy.
    const MAX_GET: usize = PIGGYBACK;

    type Remote = Stadd;
    type Slot = ();
    type Amo = TofuAmo;

    #[inline(always)]
    fn word(key: &TlRkey, addr: u64) -> Option<Stadd> {
        key.tofu.stadd_of_word(addr)
    }

    /// A fence with outstanding operations, and requests that become pending, end the budget: neither is checked here.
    #[inline(always)]
    fn take_word(&mut self) -> bool {
        self.take_budget()
    }

    #[inline(always)]
    unsafe fn put_word<const LEN: usize>(&mut self, to: Stadd, data: *const u8) {
        // SAFETY: the caller's bytes and mode.
        unsafe { self.write_word::<LEN>(to, data) }
    }

    #[inline(always)]
    fn remote(&self, key: &TlRkey, addr: u64, len: usize) -> Option<Stadd> {
        key.tofu.stadd(addr, len)
    }

    #[inline(always)]
    unsafe fn put_short(
        &mut self,
        to: Stadd,
        data: *const u8,
        len: usize,
        count: impl FnOnce(),
    ) -> bool {
        let granted = self.take_budget();
        if granted {
            count();
            // SAFETY: the caller's bytes and mode.
            unsafe { self.write_tiny(to, data, len) };
        }
        granted
    }

    fn renew_put(&mut self) {
        self.refill_budget();
    }

    #[inline(always)]
    unsafe fn put_at(&mut self, to: Stadd, data: *const u8, len: usize) -> bool {
        // SAFETY: the caller's bytes.
        unsafe { self.put_stadd(to, data, len) }
    }

    #[inline(always)]
    fn get_slot(&mut self, _len: usize) -> Option<()> {
        Some(())
    }

    #[inline(always)]
    unsafe fn get_short(
        &mut self,
        _slot: (),
        from: Stadd,
        (into, len): (*mut u8, usize),
        token: Token,
        count: impl FnOnce(),
    ) -> bool {
        let is_posted = self.read(from, into, len, token) == len;
        if is_posted {
            count();
        }
        is_posted
    }

    #[inline(always)]
    unsafe fn amo(
        context: &TlContext,
        (op, size): (u32, u8),
        operand: *const u8,
        reply: *const u8,
    ) -> Option<TofuAmo> {
        let verb = AmoVerb::of(u8::try_from(op).ok()?)?;
        if reply.is_null() && verb.needs_reply() || !context.tofu.offered.has(verb) {
            return None;
        }
        // SAFETY: the caller's operand and reply.
        let (value, compare) = unsafe {
            let operand = amo::load(operand, size);
            match verb {
                AmoVerb::CompareSwap => (amo::load(reply, size), operand),
                _ => (operand, 0),
            }
        };
        let width = match size {
            4 => AmoWidth::Four,
            _ => AmoWidth::Eight,
        };
        Some(TofuAmo {
            verb,
            width,
            value,
            compare,
        })
    }

    #[inline(always)]
    fn amo_slot(&mut self, key: &TlRkey, addr: u64, len: usize) -> Option<(Stadd, ())> {
        Some((key.tofu.stadd(addr, len)?, ()))
    }

    #[inline(always)]
    unsafe fn amo_short(
        &mut self,
        (at, ()): (Stadd, ()),
        amo: TofuAmo,
        reply: Option<(*mut u8, Token)>,
        count: impl FnOnce(),
    ) -> bool {
        let is_posted = self.change(amo, at, reply);
        if is_posted {
            count();
        }
        is_posted
    }

    #[inline(always)]
    fn flush_step(&self) -> FlushStep {
        if self.is_drained() {
            FlushStep::Drained
        } else {
            FlushStep::Marker
        }
    }

    #[inline(always)]
    fn flush_short(&mut self, token: Token) -> bool {
        self.flush_marker(token)
    }
}
