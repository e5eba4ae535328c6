//! Short puts and records, which the descriptor carries. Within a budget, which was computed before, they are posted
//! without checks.

use super::{FLUSH_AT, MAX_UNACKED, ShortPut, TofuSender};
use crate::sys::copy;
use crate::tl::tofu::tni::PIGGYBACK;
use crate::tl::tofu::utofu::{OpFlags, SUCCESS, Stadd};
use crate::tl::tofu::vcq::{PostFlags, RemoteAddr};
use crate::wire::packet_hdr::{HEAD, PacketHdr};
use std::mem::MaybeUninit;

/// Posts that the budget of short puts leaves for records.
const FOR_RECORDS: u32 = 32;

impl TofuSender {
    /// Takes one short put from the budget. False: the budget is used up.
    #[inline(always)]
    pub fn take_budget(&mut self) -> bool {
        // In this order, and a negative budget counts as 0: one instruction does both.
        self.put_budget = self.put_budget.wrapping_sub(1);
        self.put_budget >= 0
    }

    /// Puts a word of 8 or 4 bytes to the peer's memory, which [`take_budget`](Self::take_budget) has granted.
    ///
    /// # Safety
    /// Single-thread mode; `LEN` bytes at `data` are readable.
    #[inline(always)]
    pub unsafe fn write_word<const LEN: usize>(&mut self, stadd: Stadd, data: *const u8) {
        const { assert!(LEN == 4 || LEN == 8) };
        self.last = ShortPut { stadd, data };
        let vcq = self.to.vcq;
        // SAFETY: the caller's bytes and mode; the interface keeps the VCQ.
        let code = unsafe {
            let word = match LEN {
                4 => data.cast::<u32>().read_unaligned().into(),
                _ => data.cast::<u64>().read_unaligned(),
            };
            let to = RemoteAddr { vcq, stadd };
            self.vcq_ops.put_word(word, LEN, to, self.post_flags)
        };
        if code != SUCCESS {
            self.write_again(LEN);
        }
    }

    /// Puts `len` bytes, at most [`PIGGYBACK`], to the peer's memory, which [`take_budget`](Self::take_budget) has
    /// granted.
    ///
    /// # Safety
    /// Single-thread mode; `len` bytes at `data` are readable.
    #[inline(always)]
    pub unsafe fn write_tiny(&mut self, stadd: Stadd, data: *const u8, len: usize) {
        self.last = ShortPut { stadd, data };
        let vcq = self.to.vcq;
        let to = RemoteAddr { vcq, stadd };
        // SAFETY: the caller's bytes and mode; the interface keeps the VCQ.
        let code = unsafe {
            match len {
                4 => {
                    let word = data.cast::<u32>().read_unaligned().into();
                    self.vcq_ops.put_word(word, 4, to, self.post_flags)
                }
                _ => self.vcq_ops.put_bytes(data, len, to, self.post_flags),
            }
        };
        if code != SUCCESS {
            self.write_again(len);
        }
    }

    /// The VCQ was busy for the last short put, or refused it: posts it again.
    #[cold]
    #[inline(never)]
    fn write_again(&mut self, len: usize) {
        let ShortPut { stadd, data } = self.last;
        let vcq = self.to.vcq;
        // SAFETY: `last` was set in the same call of the user's, whose buffer is readable for `len` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(data, len) };
        let mut queue = self.iface.queue.lock();
        let result = queue.send_short(self.tag, bytes, RemoteAddr { vcq, stadd }, OpFlags::empty());
        drop(queue);
        if let Err(code) = result {
            self.fail(code);
        }
    }

    /// Whether the budget of short records is not used up.
    #[inline(always)]
    pub fn has_send_budget(&self) -> bool {
        self.short != 0
    }

    /// Sends a record of at most [`TINY`](copy::TINY) bytes within the budget of short records.
    ///
    /// # Safety
    /// Single-thread mode; [`has_send_budget`](Self::has_send_budget) is true; `len` bytes at `data` are readable.
    #[inline(always)]
    pub unsafe fn send_tiny(&mut self, kind: u8, imm: u64, data: *const u8, len: usize) {
        let head = PacketHdr {
            len,
            kind,
            aux: 0,
            credit: self.writer.frames() as u16,
            imm,
        };
        let mut frame = [MaybeUninit::<u8>::uninit(); PIGGYBACK];
        let bytes: *mut u8 = frame.as_mut_ptr().cast();
        // Counted before the post: nothing has to be saved across it.
        self.short -= 1;
        self.posts();
        let to = RemoteAddr {
            vcq: self.to.vcq,
            stadd: self.to.ring + self.writer.place(HEAD + len),
        };
        let post_flags = PostFlags {
            flags: OpFlags::STRONG_ORDER | OpFlags::REMOTE_MRQ_NOTICE,
            ..self.post_flags
        };
        // SAFETY: the frame has room for header and data; the caller's bytes and mode; the interface keeps the VCQ.
        let code = unsafe {
            bytes.cast::<[u8; HEAD]>().write(head.encode());
            copy::tiny(bytes.add(HEAD), data, len);
            self.vcq_ops.put_bytes(bytes, HEAD + len, to, post_flags)
        };
        if code != SUCCESS {
            // SAFETY: header and data are written, and the frame was placed.
            unsafe { self.send_again(bytes) };
        }
    }

    /// The VCQ was busy for the frame that was placed last, or refused it: posts it again.
    ///
    /// # Safety
    /// A header, and the data whose length it has, are readable at `frame`.
    #[cold]
    #[inline(never)]
    unsafe fn send_again(&mut self, frame: *const u8) {
        // SAFETY: the caller's header and data.
        let frame = unsafe {
            let head = PacketHdr::decode(&*frame.cast());
            std::slice::from_raw_parts(frame, HEAD + head.len)
        };
        let to = RemoteAddr {
            vcq: self.to.vcq,
            stadd: self.to.ring + self.writer.last(frame.len()),
        };
        let mut queue = self.iface.queue.lock();
        let result = queue.send_short(self.tag, frame, to, OpFlags::REMOTE_MRQ_NOTICE);
        drop(queue);
        if let Err(code) = result {
            self.fail(code);
        }
    }

    /// Renews the budget of short records. False: none can be sent now, or the ring is counted.
    pub fn refill_send_budget(&mut self) -> bool {
        if self.to.counted || self.is_held_back() {
            return false;
        }
        self.writer.credit(self.ctrl_word.credit());
        self.short = self.writer.has_room_for_short().min(self.spare());
        self.short > 0
    }

    /// Renews the budget of short puts, unless something has to be posted before them.
    pub fn refill_budget(&mut self) {
        // A negative budget counts as 0: it does not fall further with each put that has to wait.
        self.put_budget = self.put_budget.max(0);
        if self.put_budget == 0 && !self.is_held_back() {
            let spare = self.spare();
            // Leaves some posts for records.
            let put_budget = match spare.checked_sub(FOR_RECORDS) {
                Some(rest @ 1..) => rest,
                _ => spare,
            };
            self.until = self.until.wrapping_add(put_budget);
            self.put_budget = put_budget as i32;
        }
    }

    /// How many posts one of the budgets may grow by.
    fn spare(&self) -> u32 {
        // While a flush request is outstanding, no other one is needed.
        let most = if self.flow.is_flushing() {
            MAX_UNACKED
        } else {
            FLUSH_AT
        };
        most.saturating_sub(self.promised())
    }

    /// Unacknowledged posts, and those that the budgets allow.
    pub(super) fn promised(&self) -> u32 {
        self.flow.unacked(self.until).wrapping_add(self.short)
    }

    /// Ends both budgets: from now on each post is checked first, as something waits or may be in the way.
    pub fn revoke_budget(&mut self) {
        (self.until, self.put_budget, self.short) = (self.posted(), 0, 0);
    }
}
