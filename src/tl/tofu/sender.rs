//! The sending half of a connection: records become frames in the ring that the peer has granted.

use super::cells::Cell;
use super::iface::Iface;
use super::queue::{Mark, Owner};
use super::ring::{Shape, Writer};
use super::tni::PIGGYBACK;
use super::utofu::{self, REMOTE_MRQ_NOTICE, Stadd, VcqId};
use super::vcq::There;
use crate::wire::packet::{BYE, HEAD, Head, MORE};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Posts of a connection of which nobody has told that they have arrived, at most: each can fail, with a notice of its own, and the queue
/// of notices has an end. From so many on somebody asks.
const MOST_UNTOLD: u32 = 256;
const ASK_AT: u32 = MOST_UNTOLD / 2;

/// What of a connection has arrived. The progressing thread hears it, whoever holds the peer's lock asks. Relaxed everywhere: they
/// are counts, what they count is in the peer's memory.
#[derive(Default)]
pub struct Flow {
    /// Posts that the last question was behind, and those of which the answer has come.
    asked: AtomicU32,
    ended: AtomicU32,
    asking: AtomicBool,
    /// Reads that have come.
    came: AtomicU32,
}

impl Flow {
    /// The answer has come.
    pub fn end(&self) {
        self.ended
            .store(self.asked.load(Ordering::Relaxed), Ordering::Relaxed);
        self.asking.store(false, Ordering::Relaxed);
    }

    /// One of the reads has come, or has failed.
    pub fn come(&self) {
        self.came.fetch_add(1, Ordering::Relaxed);
    }

    fn set_asking(&self, asking: bool) {
        self.asking.store(asking, Ordering::Relaxed);
    }

    fn is_asking(&self) -> bool {
        self.asking.load(Ordering::Relaxed)
    }

    /// Posts of which nobody has told that they have arrived.
    fn untold(&self, posted: u32) -> u32 {
        posted.wrapping_sub(self.ended.load(Ordering::Relaxed))
    }

    fn has_ended(&self, posted: u32) -> bool {
        self.ended.load(Ordering::Relaxed) == posted
    }
}

/// What a peer has granted.
#[derive(Clone, Copy, Debug)]
pub struct Granted {
    pub vcq: VcqId,
    pub ring: Stadd,
    pub shape: Shape,
    /// Frames come without notices: their count is written behind them.
    pub counted: bool,
}

// SAFETY: the buffers are the sender's own, and it moves with them.
unsafe impl Send for Sender {}

/// One thread at a time: whoever holds the peer's lock.
pub struct Sender {
    iface: Arc<Iface>,
    flow: Arc<Flow>,
    cell: Cell,
    mark: Mark,
    to: Granted,
    writer: Writer,
    /// What was posted since the beginning, modulo 2^32.
    posted: u32,
    /// Reads that were posted, modulo 2^32, and how many of them have to have come before anything more goes.
    reads: u32,
    behind: Option<u32>,
    /// Where a record is put together that takes several frames.
    record: Vec<u8>,
    /// Buffers for the frames of the record that is being sent.
    buffers: Vec<(u16, *mut u8)>,
    /// The adapter has refused something: nothing goes any more, and the connection hears of it.
    broken: bool,
}

impl Sender {
    pub fn new(iface: Arc<Iface>, flow: Arc<Flow>, cell: Cell, mark: Mark, to: Granted) -> Sender {
        Sender {
            iface,
            flow,
            cell,
            mark,
            to,
            writer: Writer::new(to.shape),
            posted: 0,
            reads: 0,
            behind: None,
            record: Vec::new(),
            buffers: Vec::new(),
            broken: false,
        }
    }

    /// The peer's queue.
    pub fn vcq(&self) -> VcqId {
        self.to.vcq
    }

    fn segment(&self) -> usize {
        self.to.shape.packet as usize - HEAD
    }

    /// Whether a record of `len` bytes, or any shorter one, can be sent now.
    pub fn has_room(&mut self, len: usize) -> bool {
        if self.is_held_back() {
            return false;
        }
        self.has_room_there(len)
            && (HEAD + len <= PIGGYBACK
                || (self.iface.queue.lock()).has_buffers(self.frames_of(len)))
    }

    /// Frames that a record takes.
    fn frames_of(&self, len: usize) -> usize {
        len.div_ceil(self.segment()).max(1)
    }

    /// Whether the ring has room for a record.
    fn has_room_there(&mut self, len: usize) -> bool {
        let segment = self.segment();
        let frames = self.frames_of(len);
        let last = HEAD + len - (frames - 1) * segment;
        if !self.writer.has_room(frames, last) {
            self.writer.credit(self.cell.credit());
            if !self.writer.has_room(frames, last) {
                return false;
            }
        }
        true
    }

    /// Takes a buffer for each frame of a record, all or none: other threads want some, too.
    fn take_buffers(&mut self, len: usize) -> bool {
        if HEAD + len <= PIGGYBACK {
            return true;
        }
        let frames = self.frames_of(len);
        let mut queue = self.iface.queue.lock();
        if !queue.has_buffers(frames) {
            return false;
        }
        for _ in 0..frames {
            self.buffers.extend(queue.take_buffer(self.mark.link));
        }
        true
    }

    /// Sends a record, which `fill` writes; false if there is no room: `fill` was not called.
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
        let head = |len, kind| Head {
            len,
            kind,
            aux,
            credit: 0,
            imm,
        };
        if len <= self.segment() {
            self.frame(head(len, kind), len, fill);
        } else {
            self.send_long(head(len, kind), fill);
        }
        if self.to.counted {
            self.count(None);
        }
        true
    }

    #[inline(never)]
    fn send_long(&mut self, head: Head, fill: impl FnOnce(*mut u8)) {
        let mut record = std::mem::take(&mut self.record);
        record.resize(head.len, 0);
        fill(record.as_mut_ptr());
        for (i, part) in record.chunks(self.segment()).enumerate() {
            let head = match i {
                0 => head,
                _ => Head {
                    len: part.len(),
                    kind: MORE,
                    ..head
                },
            };
            self.frame(head, part.len(), |to| {
                // SAFETY: the frame has room for them.
                unsafe { to.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            });
        }
        self.record = record;
        // A last frame of a few bytes needs none.
        if let Some((buffer, _)) = self.buffers.pop() {
            self.iface.queue.lock().give_back(buffer);
        }
    }

    /// One frame of `len` bytes behind its head, which has room.
    fn frame(&mut self, head: Head, len: usize, fill: impl FnOnce(*mut u8)) {
        let credit = self.writer.frames() as u16;
        let head = Head { credit, ..head }.encode();
        let to = There {
            vcq: self.to.vcq,
            stadd: self.to.ring + self.writer.place(HEAD + len),
        };
        let flags = if self.to.counted {
            0
        } else {
            REMOTE_MRQ_NOTICE
        };
        self.posted = self.posted.wrapping_add(1);
        let result = if HEAD + len <= PIGGYBACK {
            let mut frame = [0; PIGGYBACK];
            frame[..HEAD].copy_from_slice(&head);
            fill(frame[HEAD..].as_mut_ptr());
            let mut queue = self.iface.queue.lock();
            queue.send_short(self.mark, &frame[..HEAD + len], to, flags)
        } else {
            let Some((buffer, at)) = self.buffers.pop() else {
                return self.break_off(utofu::BUSY);
            };
            // SAFETY: the buffer has room for both.
            unsafe {
                at.copy_from_nonoverlapping(head.as_ptr(), HEAD);
                fill(at.add(HEAD));
            }
            let mut queue = self.iface.queue.lock();
            queue.send(self.mark, buffer, HEAD + len, to, flags)
        };
        if let Err(code) = result {
            self.break_off(code);
        }
    }

    /// Writes the count of frames behind all that was sent. False: the owner cannot be told now.
    fn count(&mut self, owner: Option<Owner>) -> bool {
        let to = There {
            vcq: self.to.vcq,
            stadd: self.to.ring + self.to.shape.count_at(),
        };
        let count = u64::from(self.writer.frames());
        let result = self
            .iface
            .queue
            .lock()
            .put_word(self.mark, count, to, owner);
        result.unwrap_or_else(|code| {
            self.break_off(code);
            true
        })
    }

    #[cold]
    fn break_off(&mut self, code: i32) {
        self.broken = true;
        self.iface.queue.lock().fail(self.mark.link, code);
    }

    /// Bytes that one operation moves, at most.
    pub fn most_at_once(&self) -> usize {
        self.iface.tuning.packet as usize
    }

    /// Writes as much as one operation does of `len` bytes, which `fill` writes, to the peer's memory: how many bytes; 0: no room now.
    pub fn write(&mut self, stadd: Stadd, len: usize, fill: impl FnOnce(*mut u8, usize)) -> usize {
        if self.is_held_back() {
            return 0;
        }
        let n = len.min(self.most_at_once());
        let vcq = self.to.vcq;
        let to = There { vcq, stadd };
        let result = if n <= PIGGYBACK {
            let mut bytes = [0; PIGGYBACK];
            fill(bytes.as_mut_ptr(), n);
            let mut queue = self.iface.queue.lock();
            queue.send_short(self.mark, &bytes[..n], to, 0)
        } else {
            let mut queue = self.iface.queue.lock();
            let taken = queue
                .has_buffers(1)
                .then(|| queue.take_buffer(self.mark.link));
            drop(queue);
            let Some((buffer, at)) = taken.flatten() else {
                return 0;
            };
            fill(at, n);
            self.iface.queue.lock().send(self.mark, buffer, n, to, 0)
        };
        self.posted = self.posted.wrapping_add(1);
        if let Err(code) = result {
            self.break_off(code);
        }
        n
    }

    /// As [`write`](Self::write), from the peer's memory: `whose` hears of it when it has come.
    pub fn read(&mut self, stadd: Stadd, into: *mut u8, len: usize, whose: *mut c_void) -> usize {
        if self.is_held_back() {
            return 0;
        }
        let n = len.min(self.most_at_once());
        let from = There {
            vcq: self.to.vcq,
            stadd,
        };
        let read = (self.iface.queue.lock()).read(self.mark.link, from, (into, n), whose);
        match read {
            Ok(true) => {
                self.reads = self.reads.wrapping_add(1);
                n
            }
            Ok(false) => 0,
            Err(code) => {
                self.break_off(code);
                0
            }
        }
    }

    /// Whether all reads have come.
    fn has_read(&self) -> bool {
        self.flow.came.load(Ordering::Relaxed) == self.reads
    }

    /// From now on nothing goes before the reads have come that were posted until now.
    pub fn fence(&mut self) {
        self.behind = (!self.has_read()).then_some(self.reads);
    }

    /// Whether nothing can go now.
    #[inline]
    fn is_held_back(&mut self) -> bool {
        if let Some(behind) = self.behind {
            let missing = behind.wrapping_sub(self.flow.came.load(Ordering::Relaxed));
            if (missing as i32) > 0 {
                return true;
            }
            self.behind = None;
        }
        let untold = self.flow.untold(self.posted);
        if untold >= ASK_AT && !self.broken && !self.flow.is_asking() {
            self.ask();
        }
        self.broken || untold >= MOST_UNTOLD
    }

    /// Those who wait for reads, once for each.
    pub fn readers(&self) -> Vec<*mut c_void> {
        self.iface.queue.lock().readers(self.mark.link).collect()
    }

    /// Those who wait for reads, and of whom this is true, wait no more: who they are.
    pub fn disown(&mut self, wanted: impl Fn(*mut c_void) -> bool) -> Vec<*mut c_void> {
        let mut found = self.iface.queue.lock().disown(self.mark.link, wanted);
        found.dedup();
        found
    }

    /// Whether all that was accepted has arrived.
    pub fn is_drained(&self) -> bool {
        self.broken || self.flow.has_ended(self.posted) && self.has_read()
    }

    /// The same, after having it told: somebody waits for it.
    pub fn drain(&mut self) -> bool {
        if self.is_drained() {
            return true;
        }
        if !self.flow.is_asking() && !self.flow.has_ended(self.posted) {
            self.ask();
        }
        false
    }

    /// Has it told when all that was sent has arrived, or that the peer is not there.
    fn ask(&mut self) {
        // Before: the answer can be faster than this thread.
        self.flow.asked.store(self.posted, Ordering::Relaxed);
        self.flow.set_asking(true);
        if !self.count(Some(Owner::Flush(self.mark.link))) {
            // Too many wait: whoever asks next tries again.
            self.flow.set_asking(false);
        }
    }

    /// Finds out whether the peer is still there, if nothing else does.
    pub fn probe(&mut self) {
        if !self.broken && !self.flow.is_asking() {
            self.ask();
        }
    }

    /// Says that this worker goes. Behind everything else.
    pub fn say_goodbye(&mut self) {
        self.send(BYE, 0, 0, 0, |_| {});
    }
}
