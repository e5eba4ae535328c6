//! Records, cut into packets.

use super::{IbSender, MAX_INLINE, RcOrUd};
use crate::wire::packet_hdr::{BYE, CREDIT, HEAD, MORE, PacketHdr};

impl IbSender {
    /// Sends a record of up to [`TINY`](crate::sys::copy::TINY) bytes within the inline budget. False: the budget is
    /// used up. `imm` and `count` are called when it is not, before the post.
    ///
    /// # Safety
    /// `len` bytes at `from` are readable.
    #[inline(always)]
    pub unsafe fn send_tiny(
        &mut self,
        kind: u8,
        imm: impl FnOnce() -> u64,
        from: *const u8,
        len: usize,
        count: impl FnOnce(),
    ) -> bool {
        let RcOrUd::Rc { rc_ep, sent, .. } = &mut self.transport else {
            return false;
        };
        if !rc_ep.has_inline_budget() {
            return false;
        }
        count();
        let head = PacketHdr {
            len,
            kind,
            aux: 0,
            credit: self.flow.take_ack() as u16,
            imm: imm(),
        };
        *sent = sent.wrapping_add(1);
        // SAFETY: by the caller, `from` is readable for `len` bytes, and the inline budget is not used up.
        if !unsafe { rc_ep.post_tiny(head.encode(), from, len) } {
            self.fail();
        }
        true
    }

    /// Whether a record of `len` bytes, or any shorter one, can be sent now.
    pub fn has_room(&mut self, len: usize) -> bool {
        let packets = len.div_ceil(self.segment()).max(1);
        !self.broken
            && self.has_space(packets)
            && (!self.is_connected() || self.iface.packets.lock().reserve(packets))
    }

    /// Sends a record of `len` bytes, which `fill` writes. False: there is no room now, and `fill` was not called.
    #[inline]
    pub fn send(
        &mut self,
        kind: u8,
        aux: u8,
        imm: u64,
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> bool {
        let head = PacketHdr {
            len,
            kind,
            aux,
            credit: 0,
            imm,
        };
        if self.broken {
            return false;
        }
        if len <= self.segment() {
            let sent = self.has_space(1) && self.packet(head, len, fill);
            self.refill_inline_budget();
            return sent;
        }
        self.has_room(len) && self.send_long(head, fill)
    }

    /// Sends a record that needs several packets.
    #[inline(never)]
    fn send_long(&mut self, head: PacketHdr, fill: impl FnOnce(*mut u8)) -> bool {
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        record.reserve(head.len);
        fill(record.spare_capacity_mut().as_mut_ptr().cast());
        // SAFETY: reserved, and `fill` has written the bytes.
        unsafe { record.set_len(head.len) };
        let mut head = head;
        for part in record.chunks(self.segment()) {
            let sent = self.packet(head, part.len(), |to| {
                // SAFETY: the packet has room for the part.
                unsafe { to.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            });
            // The caller has checked the room; an incomplete record cannot be continued.
            if !sent {
                self.fail();
            }
            head = PacketHdr {
                len: 0,
                kind: MORE,
                ..head
            };
        }
        self.record = record;
        true
    }

    /// Sends one packet; the caller has checked that there is room. False: nothing was sent, and `fill` was not called.
    #[inline(always)]
    pub(super) fn packet(
        &mut self,
        head: PacketHdr,
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> bool {
        let total = HEAD + len;
        match &mut self.transport {
            RcOrUd::Rc { rc_ep, sent, .. } => {
                let credit = self.flow.take_ack() as u16;
                let head = PacketHdr { credit, ..head }.encode();
                let taken = if total <= (rc_ep.qp.max_inline as usize).min(MAX_INLINE) {
                    let mut bytes = std::mem::MaybeUninit::<[u8; MAX_INLINE]>::uninit();
                    let at = bytes.as_mut_ptr().cast::<u8>();
                    // SAFETY: the array has room for the header and `len` bytes, all of which are written.
                    let bytes = unsafe {
                        at.copy_from_nonoverlapping(head.as_ptr(), HEAD);
                        fill(at.add(HEAD));
                        std::slice::from_raw_parts(at, total)
                    };
                    rc_ep.post_inline(bytes)
                } else {
                    let Some(buffer) = self.iface.packets.lock().get() else {
                        return false;
                    };
                    // SAFETY: a buffer has room for the header and a segment.
                    unsafe {
                        buffer.ptr.copy_from_nonoverlapping(head.as_ptr(), HEAD);
                        fill(buffer.ptr.add(HEAD));
                    }
                    rc_ep.post_buffer(buffer, total)
                };
                *sent = sent.wrapping_add(1);
                if !taken {
                    self.fail();
                }
                true
            }
            RcOrUd::Ud(ud_tx) => ud_tx.send(&self.flow, head, len, fill),
        }
    }

    /// Sends the peer an acknowledgment.
    pub fn acknowledge(&mut self) {
        match &mut self.transport {
            RcOrUd::Rc { rc_ep, .. } => {
                // Without room the next packet that is received causes another try.
                if rc_ep.has_room(1) {
                    let head = PacketHdr {
                        len: 0,
                        kind: CREDIT,
                        aux: 0,
                        credit: self.flow.take_ack() as u16,
                        imm: 0,
                    };
                    if !rc_ep.post_inline(&head.encode()) {
                        self.fail();
                    }
                }
            }
            RcOrUd::Ud(ud_tx) => ud_tx.acknowledge(&self.flow),
        }
    }

    /// Sends the disconnect packet, behind everything else.
    pub fn send_disconnect(&mut self) {
        self.send(BYE, 0, 0, 0, |_| {});
    }
}
