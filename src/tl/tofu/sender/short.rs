//! What is short goes in a descriptor. Without a look at anything, as long as the connection is known to be calm: so
//! many writes, and so many records, were promised before.

use super::{ASK_AT, MOST_UNTOLD, TofuSender};
use crate::sys::copy;
use crate::tl::tofu::tni::PIGGYBACK;
use crate::tl::tofu::utofu::{REMOTE_MRQ_NOTICE, STRONG_ORDER, SUCCESS, Stadd};
use crate::tl::tofu::vcq::{PostFlags, RemoteAddr};
use crate::wire::ib_packet::{HEAD, PacketHdr};
use std::mem::MaybeUninit;

/// Of the posts that nobody has told of, so many are not promised to short writes.
const FOR_RECORDS: u32 = 32;

impl TofuSender {
    /// Takes one of the short writes that may go. False: none may.
    #[inline(always)]
    pub fn take_budget(&mut self) -> bool {
        // In this order, and below 0, which counts as 0: one instruction does it.
        self.calm = self.calm.wrapping_sub(1);
        self.calm >= 0
    }

    /// Writes a word of 8 bytes, or of 4, to the peer's memory, of those that [`take_budget`](Self::take_budget) has
    /// granted.
    ///
    /// # Safety
    /// Single-thread mode; so many bytes are readable.
    #[inline(always)]
    pub unsafe fn write_word<const LEN: usize>(&mut self, stadd: Stadd, data: *const u8) {
        const { assert!(LEN == 4 || LEN == 8) };
        self.last = (stadd, data);
        let vcq = self.to.vcq;
        // SAFETY: the caller's bytes and mode; the interface keeps the queue.
        let code = unsafe {
            let word = match LEN {
                4 => data.cast::<u32>().read_unaligned().into(),
                _ => data.cast::<u64>().read_unaligned(),
            };
            let to = RemoteAddr { vcq, stadd };
            self.line.put_word(word, LEN, to, self.told)
        };
        if code != SUCCESS {
            self.write_again(LEN);
        }
    }

    /// As [`write_word`](Self::write_word), of at most [`PIGGYBACK`] bytes.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub unsafe fn write_tiny(&mut self, stadd: Stadd, data: *const u8, len: usize) {
        self.last = (stadd, data);
        let vcq = self.to.vcq;
        let to = RemoteAddr { vcq, stadd };
        // SAFETY: the caller's bytes and mode; the interface keeps the queue.
        let code = unsafe {
            match len {
                4 => {
                    let word = data.cast::<u32>().read_unaligned().into();
                    self.line.put_word(word, 4, to, self.told)
                }
                _ => self.line.put_bytes(data, len, to, self.told),
            }
        };
        if code != SUCCESS {
            self.write_again(len);
        }
    }

    /// The queue had no room for the last short write, or refuses it.
    #[cold]
    #[inline(never)]
    fn write_again(&mut self, len: usize) {
        let (stadd, data) = self.last;
        let vcq = self.to.vcq;
        // SAFETY: the bytes of the caller's caller, who is still there.
        let bytes = unsafe { std::slice::from_raw_parts(data, len) };
        let mut queue = self.iface.queue.lock();
        let result = queue.send_short(self.mark, bytes, RemoteAddr { vcq, stadd }, 0);
        drop(queue);
        if let Err(code) = result {
            self.fail(code);
        }
    }

    /// As [`send`](Self::send), of at most [`TINY`](copy::TINY) bytes.
    ///
    /// # Safety
    /// As of [`write_tiny`](Self::write_tiny).
    #[inline(always)]
    pub unsafe fn send_tiny(&mut self, kind: u8, imm: u64, data: *const u8, len: usize) -> bool {
        if self.short == 0 && !self.refill_send_budget() {
            return false;
        }
        let head = PacketHdr {
            len,
            kind,
            aux: 0,
            credit: self.writer.frames() as u16,
            imm,
        };
        let mut frame = [MaybeUninit::<u8>::uninit(); PIGGYBACK];
        let bytes: *mut u8 = frame.as_mut_ptr().cast();
        let to = RemoteAddr {
            vcq: self.to.vcq,
            stadd: self.to.ring + self.writer.next(),
        };
        let told = PostFlags {
            flags: STRONG_ORDER | REMOTE_MRQ_NOTICE,
            ..self.told
        };
        // SAFETY: the frame has room for both; the rest as in `write_tiny`.
        let code = unsafe {
            bytes.cast::<[u8; HEAD]>().write(head.encode());
            copy::tiny(bytes.add(HEAD), data, len);
            self.line.put_bytes(bytes, HEAD + len, to, told)
        };
        if code != SUCCESS {
            return false;
        }
        self.writer.place(HEAD + len);
        self.short -= 1;
        self.posts();
        true
    }

    /// Finds out how many short records may go. False: none, or they need more.
    #[inline(never)]
    fn refill_send_budget(&mut self) -> bool {
        if self.to.counted || self.is_held_back() {
            return false;
        }
        self.writer.credit(self.cell.credit());
        self.short = self.writer.has_room_for_short().min(self.spare());
        self.short > 0
    }

    /// Nothing waits in front of short writes: some may go without a look at anything.
    pub fn refill_budget(&mut self) {
        if self.calm <= 0 && !self.is_held_back() {
            let spare = self.spare();
            // Some are left for records.
            let calm = match spare.checked_sub(FOR_RECORDS) {
                Some(rest @ 1..) => rest,
                _ => spare,
            };
            self.until = self.until.wrapping_add(calm);
            self.calm = calm as i32;
        }
    }

    /// How many more posts may be promised to one kind of them.
    fn spare(&self) -> u32 {
        // Who has asked need not ask again before the answer.
        let most = match self.flow.is_flushing() {
            true => MOST_UNTOLD,
            false => ASK_AT,
        };
        most.saturating_sub(self.promised())
    }

    /// Posts of which nobody has told that they have arrived, and those that need not ask.
    pub(super) fn promised(&self) -> u32 {
        self.flow.unacked(self.until).wrapping_add(self.short)
    }

    /// From now on everything is looked at first: something waits, or is in the way.
    pub fn revoke_budget(&mut self) {
        (self.until, self.calm, self.short) = (self.posted(), 0, 0);
    }
}
