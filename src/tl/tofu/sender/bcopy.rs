//! Sends records as frames into the ring that the peer has granted: from registered buffers, or in descriptors.

use super::{MAX_UNACKED, TofuSender};
use crate::tl::tofu::op_queue::Completion;
use crate::tl::tofu::tni::PIGGYBACK;
use crate::tl::tofu::utofu::{self, OpFlags};
use crate::tl::tofu::vcq::RemoteAddr;
use crate::wire::packet_hdr::{HEAD, MORE, PacketHdr};

/// Bytes of a ring from which on its sender keeps the staging memory of long records.
const KEEP_STAGING_BYTES: u32 = 64 << 10;

impl TofuSender {
    fn segment(&self) -> usize {
        self.to.shape.packet as usize - HEAD
    }

    /// Whether a record of up to `len` bytes can be sent now. Takes its buffers: the record is sent next.
    pub fn has_room(&mut self, len: usize) -> bool {
        !self.is_held_back() && self.has_room_there(len) && self.take_buffers(len)
    }

    /// Number of frames of a record.
    fn frames_of(&self, len: usize) -> usize {
        len.div_ceil(self.segment()).max(1)
    }

    /// Frames that need room before a record begins: all of them, or as many as an empty ring holds.
    fn frames_at_first(&self, len: usize) -> usize {
        self.frames_of(len).min(self.at_once)
    }

    /// Whether the ring has room for a record, or for its first frames.
    fn has_room_there(&mut self, len: usize) -> bool {
        let segment = self.segment();
        let frames = self.frames_at_first(len);
        let last = HEAD + (len - (frames - 1) * segment).min(segment);
        if !self.writer.has_room(frames, last) {
            self.writer.credit(self.ctrl_word.credit());
            if !self.writer.has_room(frames, last) {
                return false;
            }
        }
        true
    }

    /// Takes a buffer for each frame of a record, beyond those that are taken already: all or none, as other threads
    /// take some, too.
    fn take_buffers(&mut self, len: usize) -> bool {
        if HEAD + len <= PIGGYBACK {
            return true;
        }
        let missing = (self.frames_at_first(len)).saturating_sub(self.buffers.len());
        if missing == 0 {
            return true;
        }
        let mut queue = self.iface.queue.lock();
        if !queue.has_buffers(missing) {
            return false;
        }
        for _ in 0..missing {
            self.buffers.extend(queue.take_buffer(self.tag.conn));
        }
        true
    }

    /// Sends a record, which `fill` writes. False: no room, and `fill` was not called.
    #[inline]
    pub fn send(
        &mut self,
        kind: u8,
        aux: u8,
        imm: u64,
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> bool {
        if self.is_held_back() || !self.has_room_there(len) || !self.take_buffers(len) {
            return false;
        }
        let head = |len, kind| PacketHdr {
            len,
            kind,
            aux,
            credit: 0,
            imm,
        };
        if len <= self.segment() {
            self.frame(head(len, kind), len, fill);
            self.give_back_buffers();
            if self.to.counted {
                self.count(None);
            }
        } else {
            self.send_long(head(len, kind), fill);
        }
        // The record may have used the room of the budget of short records.
        self.short = 0;
        true
    }

    #[inline(never)]
    fn send_long(&mut self, head: PacketHdr, fill: impl FnOnce(*mut u8)) {
        self.record.resize(head.len, 0);
        fill(self.record.as_mut_ptr());
        self.rest = Some((head, 0));
        if !self.push() {
            self.iface.leave_unfinished(self.tag.conn);
        }
    }

    /// Continues a record that the ring had no room for entirely. True: it is posted.
    #[inline(never)]
    pub fn push(&mut self) -> bool {
        let Some((head, before)) = self.rest.take() else {
            return true;
        };
        self.revoke_budget();
        let (record, mut at) = (std::mem::take(&mut self.record), before);
        while at < record.len() && !self.broken {
            let part = &record[at..][..self.segment().min(record.len() - at)];
            if !self.can_continue(part.len()) {
                break;
            }
            let head = match at {
                0 => head,
                _ => PacketHdr {
                    len: part.len(),
                    kind: MORE,
                    ..head
                },
            };
            self.frame(head, part.len(), |to| {
                // SAFETY: the frame has room for a segment, and `part` is no longer.
                unsafe { to.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            });
            at += part.len();
        }
        let has_gone = at == record.len() || self.broken;
        self.rest = (!has_gone).then_some((head, at));
        // Where there are many peers, and rings are short, the memory is not kept per peer.
        if !has_gone || self.to.shape.size >= KEEP_STAGING_BYTES {
            self.record = record;
        }
        self.give_back_buffers();
        if self.to.counted && at > before {
            self.count(None);
        }
        has_gone
    }

    /// Whether the next frame of a record that has begun, with `len` bytes behind its header, can be posted; takes its
    /// buffer.
    fn can_continue(&mut self, len: usize) -> bool {
        if !self.writer.has_room(1, HEAD + len) {
            self.writer.credit(self.ctrl_word.credit());
        }
        let is_too_much = self.flow.unacked(self.posted()) >= MAX_UNACKED;
        if is_too_much && !self.flow.is_flushing() {
            self.post_flush();
        }
        if is_too_much || !self.writer.has_room(1, HEAD + len) {
            return false;
        }
        if HEAD + len > PIGGYBACK && self.buffers.is_empty() {
            let mut queue = self.iface.queue.lock();
            let taken = queue
                .has_buffers(1)
                .then(|| queue.take_buffer(self.tag.conn));
            self.buffers.extend(taken.flatten());
        }
        HEAD + len <= PIGGYBACK || !self.buffers.is_empty()
    }

    /// Returns buffers that were not used: short frames, and short records, need none. A record that has to wait takes
    /// others.
    #[inline]
    pub(super) fn give_back_buffers(&mut self) {
        for (buffer, _) in self.buffers.drain(..) {
            self.iface.queue.lock().give_back(buffer);
        }
    }

    /// Posts a frame of `len` bytes behind its header, which has room.
    fn frame(&mut self, head: PacketHdr, len: usize, fill: impl FnOnce(*mut u8)) {
        let credit = self.writer.frames() as u16;
        let head = PacketHdr { credit, ..head }.encode();
        let to = RemoteAddr {
            vcq: self.to.vcq,
            stadd: self.to.ring + self.writer.place(HEAD + len),
        };
        let flags = if self.to.counted {
            OpFlags::empty()
        } else {
            OpFlags::REMOTE_MRQ_NOTICE
        };
        self.posts();
        let result = if HEAD + len <= PIGGYBACK {
            let mut frame = [0; PIGGYBACK];
            frame[..HEAD].copy_from_slice(&head);
            fill(frame[HEAD..].as_mut_ptr());
            let mut queue = self.iface.queue.lock();
            queue.send_short(self.tag, &frame[..HEAD + len], to, flags)
        } else {
            let Some((buffer, at)) = self.buffers.pop() else {
                return self.fail(utofu::BUSY);
            };
            // SAFETY: the buffer has room for a frame of maximum length.
            unsafe {
                at.copy_from_nonoverlapping(head.as_ptr(), HEAD);
                fill(at.add(HEAD));
            }
            let mut queue = self.iface.queue.lock();
            queue.send(self.tag, buffer, HEAD + len, to, flags)
        };
        if let Err(code) = result {
            self.fail(code);
        }
    }

    /// Puts the number of frames behind all earlier posts; with an owner, the put is a flush request. False: no edata
    /// tag is free.
    pub(super) fn count(&mut self, owner: Option<Completion>) -> bool {
        let to = RemoteAddr {
            vcq: self.to.vcq,
            stadd: self.to.ring + self.to.shape.count_at(),
        };
        let count = u64::from(self.writer.frames());
        let result = self.iface.queue.lock().put_word(self.tag, count, to, owner);
        result.unwrap_or_else(|code| {
            self.fail(code);
            true
        })
    }
}
