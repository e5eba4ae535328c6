//! The sending half of a connection: records become frames in the ring that the peer has granted.

use super::cells::Cell;
use super::iface::Iface;
use super::line::Line;
use super::queue::{LINKS, Mark, Owner, Queue};
use super::ring::{Shape, Writer};
use super::step::Step;
use super::tni::PIGGYBACK;
use super::utofu::{self, REMOTE_MRQ_NOTICE, STRONG_ORDER, SUCCESS, Stadd, VcqId};
use super::vcq::{There, Told};
use crate::sys::copy;
use crate::sys::sync::{AtomicBool, AtomicU32, Ordering, foreign};
use crate::wire::packet::{BYE, HEAD, Head, MORE};
use crate::wire::tofu::Rails;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Posts of a connection of which nobody has told that they have arrived, at most: each can fail, with a notice of its own, and the queue
/// of notices has an end. From so many on somebody asks.
const MOST_UNTOLD: u32 = 256;
const ASK_AT: u32 = MOST_UNTOLD / 2;
/// Of those, so many are not promised to short writes.
const FOR_RECORDS: u32 = 32;
/// Who writes to a ring of so many bytes keeps the memory that long records are put together in.
const KEEPING: u32 = 64 << 10;

/// What of a connection has arrived. The progressing thread hears it, whoever holds the peer's lock asks.
#[derive(Default)]
pub struct Flow {
    /// Posts that the last question was behind, and those of which the answer has come.
    asked: AtomicU32,
    ended: AtomicU32,
    asking: AtomicBool,
    /// Reads and atomic operations that have come, and what rails have written.
    came: AtomicU32,
}

impl Flow {
    /// The answer has come.
    pub fn end(&self) {
        // The lock of the queue, which the question was posted under, is between `ask` and this.
        let asked = foreign::settled(&self.asked);
        // Release: pairs with the loads of `ended`: who sees that all has arrived may have somebody look for it.
        self.ended.store(asked, Ordering::Release);
        // Release: pairs with `is_asking`. Who may ask again changes `asked`, which has to have been read above.
        self.asking.store(false, Ordering::Release);
    }

    /// One of the reads, atomic operations or writes by rails has come, or has failed.
    pub fn come(&self) {
        // Release: pairs with the loads of `came`: what was read is in memory of ours, and the notice of it came to this thread.
        self.came.fetch_add(1, Ordering::Release);
    }

    fn set_asking(&self, asking: bool) {
        // Relaxed: who asks is alone; the answer comes by the lock of the queue.
        self.asking.store(asking, Ordering::Relaxed);
    }

    fn is_asking(&self) -> bool {
        // Acquire: pairs with `end`.
        self.asking.load(Ordering::Acquire)
    }

    /// Posts of which nobody has told that they have arrived.
    fn untold(&self, posted: u32) -> u32 {
        // Relaxed: only how many.
        posted.wrapping_sub(self.ended.load(Ordering::Relaxed))
    }

    fn has_ended(&self, posted: u32) -> bool {
        // Acquire: pairs with `end`.
        self.ended.load(Ordering::Acquire) == posted
    }

    /// Whether this many posts, and what is known to be behind them, have arrived.
    fn is_past(&self, posted: u32) -> bool {
        // Acquire: pairs with `end`.
        let ended = self.ended.load(Ordering::Acquire);
        (ended.wrapping_sub(posted) as i32) >= 0
    }
}

/// What a peer has granted.
#[derive(Clone, Copy, Debug)]
pub struct Granted {
    /// The peer's queue.
    pub queue: VcqId,
    /// The same, with the connection's path: what it is posted to ([`super::vcq::Vcq::route`]).
    pub vcq: VcqId,
    pub ring: Stadd,
    pub shape: Shape,
    /// Frames come without notices: their count is written behind them.
    pub counted: bool,
    /// The queues of the peer's rails.
    pub rails: Rails,
}

// SAFETY: the buffers are the sender's own, and it moves with them.
unsafe impl Send for Sender {}

/// One thread at a time: whoever holds the peer's lock.
pub struct Sender {
    /// So many short writes may go before anything is looked at, and so many short records.
    calm: i32,
    short: u32,
    /// What will have been posted when the short writes are, since the beginning, modulo 2^32.
    until: u32,
    /// What is short goes this way, and is told by this.
    line: Line,
    told: Told,
    /// The last short write, in case that the queue had no room.
    last: (Stadd, *const u8),
    iface: Arc<Iface>,
    flow: Arc<Flow>,
    cell: Cell,
    mark: Mark,
    to: Granted,
    writer: Writer,
    /// The peer's rails that ours of the same places lead to, each with its path.
    rails: Box<[VcqId]>,
    /// Something that was written by rails may not be there yet.
    apart: bool,
    /// Reads, atomic operations and writes by rails that were posted, modulo 2^32, and how many of them have to have come before
    /// anything more goes.
    reads: u32,
    behind: Option<u32>,
    /// Posts in front of a fence: what does not write keeps no order with them, and goes when they have arrived.
    fenced: Option<u32>,
    /// What the last atomic operation without a reply was told by.
    slot: u8,
    /// Where a record is put together that takes several frames; its head, and how much of it has gone, while it is not all.
    record: Vec<u8>,
    rest: Option<(Head, usize)>,
    /// Frames that find room in the ring together, if it is empty: longer records go in several goes.
    at_once: usize,
    /// BYE was said.
    parted: bool,
    /// Buffers for the frames of the record that is being sent.
    buffers: Vec<(u16, *mut u8)>,
    /// The adapter has refused something: nothing goes any more, and the connection hears of it.
    broken: bool,
}

impl Sender {
    pub fn new(iface: Arc<Iface>, flow: Arc<Flow>, cell: Cell, mark: Mark, to: Granted) -> Sender {
        let rails = iface.rails.iter().zip(to.rails.iter());
        Sender {
            rails: rails.map(|(rail, peer)| rail.vcq.route(peer)).collect(),
            apart: false,
            calm: 0,
            short: 0,
            until: 0,
            line: iface.vcq.line(),
            told: Told {
                flags: STRONG_ORDER,
                edata: mark.colour,
                cbdata: LINKS + mark.link as usize,
            },
            last: (0, std::ptr::null()),
            iface,
            flow,
            cell,
            mark,
            to,
            writer: Writer::new(to.shape),
            reads: 0,
            behind: None,
            fenced: None,
            slot: 0,
            record: Vec::new(),
            rest: None,
            at_once: to.shape.most_frames(),
            parted: false,
            buffers: Vec::new(),
            broken: false,
        }
    }

    /// The peer's queue.
    pub fn queue(&self) -> VcqId {
        self.to.queue
    }

    /// Takes one of the short writes that may go. False: none may.
    #[inline(always)]
    pub fn takes_short(&mut self) -> bool {
        // In this order, and below 0, which counts as 0: one instruction does it.
        self.calm = self.calm.wrapping_sub(1);
        self.calm >= 0
    }

    /// Writes a word of 8 bytes, or of 4, to the peer's memory, of those that [`takes_short`](Self::takes_short) has granted.
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
            let to = There { vcq, stadd };
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
        let to = There { vcq, stadd };
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
        let result = queue.send_short(self.mark, bytes, There { vcq, stadd }, 0);
        drop(queue);
        if let Err(code) = result {
            self.break_off(code);
        }
    }

    /// As [`send`](Self::send), of at most [`TINY`](copy::TINY) bytes.
    ///
    /// # Safety
    /// As of [`write_tiny`](Self::write_tiny).
    #[inline(always)]
    pub unsafe fn send_tiny(&mut self, kind: u8, imm: u64, data: *const u8, len: usize) -> bool {
        if self.short == 0 && !self.look_for_room() {
            return false;
        }
        let head = Head {
            len,
            kind,
            aux: 0,
            credit: self.writer.frames() as u16,
            imm,
        };
        let mut frame = [MaybeUninit::<u8>::uninit(); PIGGYBACK];
        let bytes: *mut u8 = frame.as_mut_ptr().cast();
        let to = There {
            vcq: self.to.vcq,
            stadd: self.to.ring + self.writer.next(),
        };
        let told = Told {
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
    fn look_for_room(&mut self) -> bool {
        if self.to.counted || self.is_held_back() {
            return false;
        }
        self.writer.credit(self.cell.credit());
        self.short = self.writer.has_room_for_short().min(self.spare());
        self.short > 0
    }

    /// Nothing waits in front of short writes: some may go without a look at anything.
    pub fn calm_down(&mut self) {
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
        let most = match self.flow.is_asking() {
            true => MOST_UNTOLD,
            false => ASK_AT,
        };
        most.saturating_sub(self.promised())
    }

    /// Posts of which nobody has told that they have arrived, and those that need not ask.
    fn promised(&self) -> u32 {
        self.flow.untold(self.until).wrapping_add(self.short)
    }

    /// From now on everything is looked at first: something waits, or is in the way.
    pub fn disturb(&mut self) {
        (self.until, self.calm, self.short) = (self.posted(), 0, 0);
    }

    /// What was posted since the beginning, modulo 2^32.
    #[inline]
    fn posted(&self) -> u32 {
        self.until.wrapping_sub(self.calm.max(0) as u32)
    }

    /// One more is.
    #[inline(always)]
    fn posts(&mut self) {
        self.until = self.until.wrapping_add(1);
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
                || (self.iface.queue.lock()).has_buffers(self.frames_at_first(len)))
    }

    /// Frames that a record takes.
    fn frames_of(&self, len: usize) -> usize {
        len.div_ceil(self.segment()).max(1)
    }

    /// Those that have to have room before it begins: all, if that many ever have; as many as a shorter one takes, at least.
    fn frames_at_first(&self, len: usize) -> usize {
        self.frames_of(len).min(self.at_once)
    }

    /// Whether the ring has room for a record, or for its beginning.
    fn has_room_there(&mut self, len: usize) -> bool {
        let segment = self.segment();
        let frames = self.frames_at_first(len);
        let last = HEAD + (len - (frames - 1) * segment).min(segment);
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
        let frames = self.frames_at_first(len);
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
            if self.to.counted {
                self.count(None);
            }
        } else {
            self.send_long(head(len, kind), fill);
        }
        // What has gone may have taken the room of short ones.
        self.short = 0;
        true
    }

    #[inline(never)]
    fn send_long(&mut self, head: Head, fill: impl FnOnce(*mut u8)) {
        self.record.resize(head.len, 0);
        fill(self.record.as_mut_ptr());
        self.rest = Some((head, 0));
        if !self.push() {
            self.iface.leave_unfinished(self.mark.link);
        }
    }

    /// Goes on with a record that the ring had no room for all of. Whether it has gone.
    #[inline(never)]
    pub fn push(&mut self) -> bool {
        let Some((head, before)) = self.rest.take() else {
            return true;
        };
        self.disturb();
        let (record, mut at) = (std::mem::take(&mut self.record), before);
        while at < record.len() && !self.broken {
            let part = &record[at..][..self.segment().min(record.len() - at)];
            if !self.can_go_on(part.len()) {
                break;
            }
            let head = match at {
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
            at += part.len();
        }
        let has_gone = at == record.len() || self.broken;
        self.rest = (!has_gone).then_some((head, at));
        // Where there are many peers memory is not kept for each.
        if !has_gone || self.to.shape.size >= KEEPING {
            self.record = record;
        }
        self.give_back_buffers();
        if self.to.counted && at > before {
            self.count(None);
        }
        has_gone
    }

    /// Whether the next frame of a record that has begun, with so many bytes behind its head, can go: it has a buffer then.
    fn can_go_on(&mut self, len: usize) -> bool {
        if !self.writer.has_room(1, HEAD + len) {
            self.writer.credit(self.cell.credit());
        }
        let is_too_much = self.flow.untold(self.posted()) >= MOST_UNTOLD;
        if is_too_much && !self.flow.is_asking() {
            self.ask();
        }
        if is_too_much || !self.writer.has_room(1, HEAD + len) {
            return false;
        }
        if HEAD + len > PIGGYBACK && self.buffers.is_empty() {
            let mut queue = self.iface.queue.lock();
            let taken = queue
                .has_buffers(1)
                .then(|| queue.take_buffer(self.mark.link));
            self.buffers.extend(taken.flatten());
        }
        HEAD + len <= PIGGYBACK || !self.buffers.is_empty()
    }

    /// A last frame of a few bytes needs none; what has to wait takes others.
    fn give_back_buffers(&mut self) {
        for (buffer, _) in self.buffers.drain(..) {
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
        self.posts();
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
        self.disturb();
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
        self.posts();
        if let Err(code) = result {
            self.break_off(code);
        }
        n
    }

    /// As [`write`](Self::write), from the peer's memory: `whose` hears of it when it has come.
    pub fn read(&mut self, stadd: Stadd, into: *mut u8, len: usize, whose: *mut c_void) -> usize {
        if self.is_held_back() || self.is_behind_writes() {
            return 0;
        }
        let n = len.min(self.most_at_once());
        let from = There {
            vcq: self.to.vcq,
            stadd,
        };
        let read = (self.iface.queue.lock()).read(self.mark.link, from, (into, n), whose);
        self.has_posted_read(read, n)
    }

    /// Writes as much as one operation does of `len` bytes of registered memory of `whose`, who hears of it when the adapter has read
    /// them: how many bytes; 0: no room now.
    pub fn write_in_place(
        &mut self,
        stadd: Stadd,
        (from, len): (Stadd, usize),
        whose: *mut c_void,
    ) -> usize {
        if self.is_held_back() {
            return 0;
        }
        let n = len.min(self.iface.longest);
        let vcq = self.to.vcq;
        let to = There { vcq, stadd };
        let written = (self.iface.queue.lock()).write_in_place(self.mark, (from, n), to, whose);
        match written {
            Ok(true) => {
                self.posts();
                n
            }
            Ok(false) => 0,
            Err(code) => {
                self.break_off(code);
                0
            }
        }
    }

    /// As [`write_in_place`](Self::write_in_place), from the peer's memory: `whose` hears of it when it has come.
    pub fn read_in_place(
        &mut self,
        stadd: Stadd,
        (into, len): (Stadd, usize),
        whose: *mut c_void,
    ) -> usize {
        if self.is_held_back() || self.is_behind_writes() {
            return 0;
        }
        let n = len.min(self.iface.longest);
        let vcq = self.to.vcq;
        let (link, from) = (self.mark.link, There { vcq, stadd });
        let read = (self.iface.queue.lock()).read_in_place(link, from, (into, n), whose);
        self.has_posted_read(read, n)
    }

    /// How many rails there are to the peer's.
    pub fn rails(&self) -> usize {
        self.rails.len()
    }

    /// As [`write_in_place`](Self::write_in_place) by one of the [rails](Self::rails), for which the addresses are: `whose` hears of it
    /// when it is there. In no order with anything but what a fence is between.
    pub fn write_by_rail(
        &mut self,
        rail: usize,
        stadd: Stadd,
        (from, len): (Stadd, usize),
        whose: *mut c_void,
    ) -> usize {
        if self.is_held_back() || self.is_behind_writes() {
            return 0;
        }
        let n = len.min(self.iface.longest);
        let vcq = self.rails[rail];
        let (link, to) = (self.mark.link, There { vcq, stadd });
        let mut queue = self.iface.rails[rail].queue.lock();
        let written = queue.write_apart(link, (from, n), to, whose);
        drop(queue);
        self.apart |= written == Ok(true);
        self.has_posted_read(written, n)
    }

    /// As [`read_in_place`](Self::read_in_place) by one of the rails.
    pub fn read_by_rail(
        &mut self,
        rail: usize,
        stadd: Stadd,
        (into, len): (Stadd, usize),
        whose: *mut c_void,
    ) -> usize {
        if self.is_held_back() || self.is_behind_writes() {
            return 0;
        }
        let n = len.min(self.iface.longest);
        let vcq = self.rails[rail];
        let (link, from) = (self.mark.link, There { vcq, stadd });
        let mut queue = self.iface.rails[rail].queue.lock();
        let read = queue.read_in_place(link, from, (into, n), whose);
        drop(queue);
        self.has_posted_read(read, n)
    }

    /// Whether all that rails have written is there. Asked while nothing more is posted.
    pub fn is_together(&mut self) -> bool {
        self.apart &= !self.has_read();
        !self.apart
    }

    /// Bytes that one operation moves in place, at most.
    pub fn longest(&self) -> usize {
        self.iface.longest
    }

    /// A read of so many bytes was posted, or not.
    fn has_posted_read(&mut self, read: Result<bool, i32>, n: usize) -> usize {
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

    /// Changes a word of the peer's memory. With a place for what was there before: `whose` hears of it when that has come. False: it
    /// cannot go now.
    pub fn change(
        &mut self,
        step: Step,
        stadd: Stadd,
        reply: Option<(*mut u8, *mut c_void)>,
    ) -> bool {
        if self.is_held_back() || self.is_behind_writes() {
            return false;
        }
        let (link, vcq) = (self.mark.link, self.to.vcq);
        let to = There { vcq, stadd };
        let mut queue = self.iface.queue.lock();
        let posted = match reply {
            Some(reply) => queue.fetch(link, step, to, reply),
            None => queue.change(link, step, to, &mut self.slot),
        };
        drop(queue);
        let posted = posted.unwrap_or_else(|code| {
            self.break_off(code);
            false
        });
        self.reads = self.reads.wrapping_add(u32::from(posted));
        posted
    }

    /// Whether something that a fence has to keep in front may still be under way.
    fn is_behind_writes(&mut self) -> bool {
        let Some(before) = self.fenced else {
            return false;
        };
        if self.flow.is_past(before) {
            self.fenced = None;
            return false;
        }
        if !self.flow.is_asking() {
            self.ask();
        }
        true
    }

    /// Whether all reads have come.
    fn has_read(&self) -> bool {
        // Acquire: pairs with `Flow::come`.
        self.flow.came.load(Ordering::Acquire) == self.reads
    }

    /// From now on nothing goes before what is counted as a read has come that was posted until now, and none of those before
    /// what was written until now has arrived.
    pub fn fence(&mut self) {
        self.behind = (!self.has_read()).then_some(self.reads);
        let posted = self.posted();
        self.fenced = (!self.flow.has_ended(posted)).then_some(posted);
        self.disturb();
    }

    /// Whether nothing can go now.
    #[inline]
    fn is_held_back(&mut self) -> bool {
        if let Some(behind) = self.behind {
            // Acquire: pairs with `Flow::come`.
            let missing = behind.wrapping_sub(self.flow.came.load(Ordering::Acquire));
            if (missing as i32) > 0 {
                return true;
            }
            self.behind = None;
        }
        self.broken
            || self.promised() >= ASK_AT && self.is_full()
            || self.rest.is_some() && !self.push()
    }

    /// Whether too much is under way of which nothing has been told. Has it told in time.
    #[inline(never)]
    fn is_full(&mut self) -> bool {
        self.disturb();
        let untold = self.flow.untold(self.posted());
        if untold >= ASK_AT && !self.flow.is_asking() {
            self.ask();
        }
        self.broken || untold >= MOST_UNTOLD
    }

    /// Those who wait for what is under way, once or more for each.
    pub fn waiting(&self) -> Vec<*mut c_void> {
        self.on_all_queues(Queue::waiting)
    }

    fn on_all_queues(&self, ask: impl Fn(&mut Queue, u32) -> Vec<*mut c_void>) -> Vec<*mut c_void> {
        let link = self.mark.link;
        let mut found = ask(&mut self.iface.queue.lock(), link);
        for rail in &self.iface.rails {
            found.extend(ask(&mut rail.queue.lock(), link));
        }
        found
    }

    /// Those in whose memory the adapter works, once or more for each.
    pub fn lenders(&self) -> Vec<*mut c_void> {
        self.on_all_queues(Queue::lenders)
    }

    /// Those who wait for reads that are copied, and of whom this is true, wait no more: who they are.
    pub fn disown(&mut self, wanted: impl Fn(*mut c_void) -> bool) -> Vec<*mut c_void> {
        let mut found = self.iface.queue.lock().disown(self.mark.link, wanted);
        found.dedup();
        found
    }

    /// Whether all that was accepted has arrived.
    pub fn is_drained(&self) -> bool {
        self.broken || self.flow.has_ended(self.posted()) && self.has_read() && self.rest.is_none()
    }

    /// The same, after having it told: somebody waits for it.
    pub fn drain(&mut self) -> bool {
        if self.is_drained() {
            return true;
        }
        if !self.flow.is_asking() && !self.flow.has_ended(self.posted()) && self.rest.is_none() {
            self.ask();
        }
        false
    }

    /// Has it told when all that was sent has arrived, or that the peer is not there.
    fn ask(&mut self) {
        // Before: the answer can be faster than this thread. Relaxed: see `Flow::end`.
        self.flow.asked.store(self.posted(), Ordering::Relaxed);
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

    /// Says that this worker goes, behind everything else. False: not yet.
    pub fn say_goodbye(&mut self) -> bool {
        self.parted = self.parted || self.broken || self.send(BYE, 0, 0, 0, |_| {});
        self.parted
    }
}
