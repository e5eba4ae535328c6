//! What is under way by a virtual control queue: [`buffers`] that the adapter reads and writes, operations whose ends requests wait
//! for ([`under_way`]), and numbers that notices tell them by ([`slots`]).

mod atomics;
mod buffers;
mod event;
mod slots;
mod under_way;

use super::line::read_before_post;
use super::step::Step;
use super::utofu::{self, Notice, Stadd, code_name};
use super::vcq::{There, Told, Vcq};
use crate::sys::sync::foreign;
use crate::sys::{clock, log};
use atomics::Replies;
use buffers::Buffers;
use slots::{Came, NO_SLOT, SLOTS, Slots};
use std::collections::VecDeque;
use std::ffi::{c_int, c_ulong, c_void};
use std::io;
use std::sync::Arc;
use under_way::{Operation, UnderWay};

pub use event::{CREDITS, Event, Mark, NO_LINK, OWN, Owner, Whose};
pub use slots::colour;

/// A queue that takes nothing for so long is stuck, milliseconds.
const STUCK_MS: u64 = 10_000;
/// Words with entries of ended transmissions: a buffer below this, else a link,
pub const LINKS: usize = 1 << 16;
/// or what was written from its owner's memory.
const LENT: usize = 1 << 40;
/// Above that the byte that a notice was to have, of what one tells of: which does not come if this queue tells of a failure.
const SLOT_AT: u32 = 48;
/// So many errors in a row, without a notice between them, are no single operation's.
const DEAF: u32 = 1000;
/// Entries of ended transmissions that are taken at a time.
const BATCH: usize = 16;

// SAFETY: pointers that are followed under the queue's lock only, while their owners wait.
unsafe impl Send for Queue {}

/// One thread at a time: whoever holds its lock.
pub struct Queue {
    pub vcq: Arc<Vcq>,
    buffers: Buffers,
    /// Those who wait for reads that have failed, by their connections, until those are taken down.
    orphans: Vec<(u32, *mut c_void)>,
    slots: Slots,
    /// Where the values go that atomic operations find.
    replies: Replies,
    /// Atomic operations without a reply whose notices have not come.
    changes: u32,
    /// Notices that came while an atomic operation of the worker's own was waited for.
    early: VecDeque<(c_int, Notice)>,
    under_way: UnderWay,
    /// Operations that there may be: each can have a notice.
    most: usize,
    /// Those that write from their owners' memory.
    lent: usize,
    /// What has ended and was not told yet.
    ended: VecDeque<Event>,
    /// Connections of which a transmission has failed, and how.
    failed: Vec<(u32, c_int)>,
    /// Errors in a row that tell nothing.
    errors: u32,
}

impl Queue {
    /// `notices`: so many operations that somebody waits for may be under way, if it is not very few.
    ///
    /// # Errors
    /// What the library says.
    pub fn new(vcq: Arc<Vcq>, packet: usize, notices: usize) -> io::Result<Queue> {
        Ok(Queue {
            buffers: Buffers::new(&vcq, packet)?,
            vcq,
            slots: Slots::new(),
            replies: Replies::new(),
            changes: 0,
            early: VecDeque::new(),
            under_way: UnderWay::default(),
            most: notices.max(SLOTS),
            lent: 0,
            ended: VecDeque::new(),
            orphans: Vec::new(),
            failed: Vec::new(),
            errors: 0,
        })
    }

    /// Whether so many frames have buffers.
    pub fn has_buffers(&mut self, n: usize) -> bool {
        if self.buffers.free() < n {
            self.reap();
        }
        if self.buffers.free() < n {
            self.buffers.grow(&self.vcq);
        }
        self.buffers.free() >= n
    }

    /// Whether transmissions are under way that will tell of their ends.
    pub fn is_sending(&self) -> bool {
        self.buffers.any_taken() || self.lent > 0 || !self.failed.is_empty()
    }

    /// Whether what was heard of, and not told yet, has to be told first.
    #[inline(always)]
    pub fn has_more(&self) -> bool {
        !self.early.is_empty() || !self.ended.is_empty()
    }

    /// Takes the ends of transmissions: buffers are free again, and what was lent. Whether there may be more.
    pub fn reap(&mut self) -> bool {
        for _ in 0..BATCH {
            let (code, word) = self.vcq.poll_tcq();
            if code == utofu::NOT_FOUND {
                return false;
            }
            let well = code == utofu::SUCCESS;
            let (slot, word) = ((word >> SLOT_AT) as u64, word & ((1 << SLOT_AT) - 1));
            if !well && slot != NO_SLOT {
                self.give_up(slot);
            }
            let link = match word {
                LENT.. => self.give_back_lent((word - LENT) as u32, well),
                LINKS.. => (word - LINKS) as u32,
                buffer => self.buffers.give_back(buffer as u16),
            };
            if !well {
                self.failed.push((link, code));
            }
        }
        true
    }

    /// What was written from its owner's memory: the connection.
    fn give_back_lent(&mut self, number: u32, well: bool) -> u32 {
        let Operation { link, whose, .. } = self.under_way.remove(number);
        self.lent -= 1;
        self.ended.push_back(Event::Left { link, whose, well });
        link
    }

    /// What a notice with this byte tells, or was to tell, has failed: whose it is.
    #[cold]
    fn give_up(&mut self, slot: u64) -> Option<Came> {
        let came = self.slots.end(slot, false)?;
        let event = self.on_came(came);
        self.ended.extend(event);
        match came {
            Came::One(Owner::Changes(_)) => self.changes -= 1,
            Came::One(Owner::Reply(link)) => {
                let whose = self.replies.end(slot).whose;
                // Told when the connection is taken down.
                let orphan = (!whose.is_null()).then_some((link, whose));
                self.orphans.extend(orphan);
            }
            _ => {}
        }
        Some(came)
    }

    /// Posts until the queue takes it: an adapter makes room by itself.
    fn post(&mut self, post: impl Fn(&Vcq) -> c_int) -> Result<(), c_int> {
        let mut since = None;
        loop {
            match post(&self.vcq) {
                utofu::SUCCESS => return Ok(()),
                utofu::BUSY => {
                    self.reap();
                }
                code => return Err(code),
            }
            let now = clock::coarse_ms();
            if now - *since.get_or_insert(now) > STUCK_MS {
                return Err(utofu::BUSY);
            }
            std::hint::spin_loop();
        }
    }

    /// Writes a frame of at most 32 bytes for a connection. Frames are in order.
    ///
    /// # Errors
    /// The library's code: the connection is of no use any more.
    pub fn send_short(
        &mut self,
        mark: Mark,
        frame: &[u8],
        to: There,
        flags: c_ulong,
    ) -> Result<(), c_int> {
        let told = Told {
            flags: utofu::STRONG_ORDER | flags,
            edata: mark.colour,
            cbdata: LINKS + mark.link as usize,
        };
        self.post(|vcq| vcq.put_bytes(frame, to, told))
    }

    /// A buffer for a frame of a connection: its number, and where it is. [`has_buffers`](Self::has_buffers)
    pub fn take_buffer(&mut self, link: u32) -> Option<(u16, *mut u8)> {
        let index = self.buffers.take(link)?;
        Some((index, self.buffers.ptr(index)))
    }

    /// The opposite of [`take_buffer`](Self::take_buffer), of one that was not sent.
    pub fn give_back(&mut self, buffer: u16) {
        self.buffers.give_back(buffer);
    }

    /// As [`send_short`](Self::send_short), of a frame of `len` bytes in a buffer, which comes back by itself.
    ///
    /// # Errors
    /// As there.
    pub fn send(
        &mut self,
        mark: Mark,
        buffer: u16,
        len: usize,
        to: There,
        flags: c_ulong,
    ) -> Result<(), c_int> {
        let from = self.buffers.stadd(buffer);
        let told = Told {
            flags: utofu::STRONG_ORDER | utofu::TCQ_NOTICE | flags,
            edata: mark.colour,
            cbdata: buffer.into(),
        };
        self.post(|vcq| vcq.put(from, to, len, told))
    }

    /// Writes a word behind everything else to the same peer. With an owner: who hears when it is there, and all before it; false
    /// if too many wait.
    ///
    /// # Errors
    /// As of [`send_short`](Self::send_short).
    pub fn put_word(
        &mut self,
        mark: Mark,
        word: u64,
        to: There,
        owner: Option<Owner>,
    ) -> Result<bool, c_int> {
        let (mut flags, mut edata, mut cbdata) =
            (utofu::STRONG_ORDER, mark.colour, LINKS + mark.link as usize);
        if let Some(owner) = owner {
            let Some(slot) = self.slots.take(owner) else {
                return Ok(false);
            };
            flags |= utofu::LOCAL_MRQ_NOTICE;
            (edata, cbdata) = (slot, word_of(mark.link, slot));
        }
        let told = Told {
            flags,
            edata,
            cbdata,
        };
        let posted = self.post(|vcq| vcq.put_word(word, to, told));
        self.posted(posted, edata)
    }

    /// Tells the writer of a ring, who has a notice of it, that its reader goes. False: too many wait.
    ///
    /// # Errors
    /// As of [`send_short`](Self::send_short).
    pub fn say_farewell(&mut self, ring: u32, word: u64, to: There) -> Result<bool, c_int> {
        let Some(edata) = self.slots.take(Owner::Farewell(ring)) else {
            return Ok(false);
        };
        let told = Told {
            flags: utofu::STRONG_ORDER | utofu::LOCAL_MRQ_NOTICE | utofu::REMOTE_MRQ_NOTICE,
            edata,
            cbdata: word_of(CREDITS + ring, edata),
        };
        let posted = self.post(|vcq| vcq.put_word(word, to, told));
        self.posted(posted, edata)
    }

    /// Whether writers of rings have not been told yet what they are being told.
    pub fn says_farewell(&self) -> bool {
        let says = |owner: &Owner| matches!(owner, Owner::Farewell(_));
        self.slots.owners().any(says)
    }

    /// Reads `len` bytes, no more than a buffer has, to `into`; `whose` hears of it from [`Event::Came`]. False: not now.
    ///
    /// # Errors
    /// As of [`send_short`](Self::send_short).
    pub fn read(
        &mut self,
        link: u32,
        from: There,
        (into, len): (*mut u8, usize),
        whose: *mut c_void,
    ) -> Result<bool, c_int> {
        if len > self.buffers.packet() || self.is_full() || !self.has_buffers(1) {
            return Ok(false);
        }
        let Some(buffer) = self.buffers.take(link) else {
            return Ok(false);
        };
        let here = self.buffers.stadd(buffer);
        let read = Operation::by_buffer(link, whose, buffer, (into, len));
        let posted = self.get(read, here, from, len);
        if posted == Ok(false) {
            self.buffers.give_back(buffer);
        }
        posted
    }

    /// As [`read`](Self::read), into the owner's memory, which is registered.
    ///
    /// # Errors
    /// As there.
    pub fn read_in_place(
        &mut self,
        link: u32,
        from: There,
        (into, len): (Stadd, usize),
        whose: *mut c_void,
    ) -> Result<bool, c_int> {
        if self.is_full() {
            return Ok(false);
        }
        self.get(Operation::in_place(link, whose), into, from, len)
    }

    /// Whether no more operations may be under way that somebody waits for.
    fn is_full(&self) -> bool {
        self.under_way.len() >= self.most
    }

    fn get(
        &mut self,
        read: Operation,
        into: Stadd,
        from: There,
        len: usize,
    ) -> Result<bool, c_int> {
        // The adapter writes over what was there: a read that was copied out of the same buffer, for one.
        read_before_post();
        self.noticed(read, |vcq, told| vcq.get(into, from, len, told))
    }

    /// Posts an operation whose end a notice tells, as `post` is given.
    fn noticed(
        &mut self,
        operation: Operation,
        post: impl Fn(&Vcq, Told) -> c_int,
    ) -> Result<bool, c_int> {
        let link = operation.link;
        let number = self.under_way.insert(operation);
        let Some(edata) = self.slots.join(link, number, &mut self.under_way) else {
            self.under_way.remove(number);
            return Ok(false);
        };
        let told = Told {
            flags: utofu::LOCAL_MRQ_NOTICE,
            edata,
            cbdata: word_of(link, edata),
        };
        let posted = self.post(|vcq| post(vcq, told));
        if posted.is_err() {
            // It ends with those that share its number, and nobody waits for it.
            self.under_way.disown(number);
            if let Some(came) = self.slots.end(edata.into(), false) {
                let event = self.on_came(came);
                self.ended.extend(event);
            }
        }
        posted.map(|()| true)
    }

    /// Writes from the owner's memory, which is registered; `whose` hears from [`Event::Left`] when the adapter has read it. In
    /// order with frames. False: not now.
    ///
    /// # Errors
    /// As of [`send_short`](Self::send_short).
    pub fn write_in_place(
        &mut self,
        mark: Mark,
        (from, len): (Stadd, usize),
        to: There,
        whose: *mut c_void,
    ) -> Result<bool, c_int> {
        if self.is_full() {
            self.reap();
            if self.is_full() {
                return Ok(false);
            }
        }
        let number = (self.under_way).insert(Operation::in_place(mark.link, whose));
        let told = Told {
            flags: utofu::STRONG_ORDER | utofu::TCQ_NOTICE,
            edata: mark.colour,
            cbdata: LENT + number as usize,
        };
        let posted = self.post(|vcq| vcq.put(from, to, len, told));
        match posted {
            Ok(()) => self.lent += 1,
            Err(_) => {
                self.under_way.remove(number);
            }
        }
        posted.map(|()| true)
    }

    /// As [`write_in_place`](Self::write_in_place), in no order with anything: `whose` hears from [`Event::Came`] when it is there.
    ///
    /// # Errors
    /// As of [`send_short`](Self::send_short).
    pub fn write_apart(
        &mut self,
        link: u32,
        (from, len): (Stadd, usize),
        to: There,
        whose: *mut c_void,
    ) -> Result<bool, c_int> {
        if self.is_full() {
            return Ok(false);
        }
        let write = Operation::in_place(link, whose);
        self.noticed(write, |vcq, told| vcq.put(from, to, len, told))
    }

    /// Those who wait for what this connection has under way, or for what has failed: once or more for each.
    pub fn waiting(&mut self, link: u32) -> Vec<*mut c_void> {
        let orphans = self.orphans.iter().filter(|(of, _)| *of == link);
        let mut all: Vec<_> = orphans.map(|&(_, whose)| whose).collect();
        all.extend(self.under_way.of_link(link).map(|o| o.whose));
        let replies = self.replies.users().filter(|user| user.link == link);
        all.extend(replies.map(|user| user.whose));
        all.extend(self.ended.iter().filter_map(|event| event.waits(link)));
        all.retain(|whose| !whose.is_null());
        all
    }

    /// Those in whose memory the adapter works for this connection, or of whom it was not told yet that it has done.
    pub fn lenders(&mut self, link: u32) -> Vec<*mut c_void> {
        let all = self.under_way.of_link(link);
        let in_place = all.filter(|o| o.copy.is_none());
        let mut found: Vec<_> = in_place.map(|o| o.whose).collect();
        let ended = self.ended.iter().filter_map(|event| event.lender(link));
        found.extend(ended.filter(|whose| !whose.is_null()));
        found
    }

    /// Those who wait for reads into buffers by this connection, and of whom this is true, wait no more: who they are.
    pub fn disown(&mut self, link: u32, wanted: impl Fn(*mut c_void) -> bool) -> Vec<*mut c_void> {
        let mut found = Vec::new();
        for operation in self.under_way.of_link(link) {
            if operation.copy.is_some() && wanted(operation.whose) {
                found.push(operation.whose);
                operation.whose = std::ptr::null_mut();
            }
        }
        for user in self.replies.users_mut() {
            if user.link == link && wanted(user.whose) {
                found.push(user.whose);
                user.disown();
            }
        }
        for event in &mut self.ended {
            if let Event::Came {
                link: of,
                whose,
                copied: true,
                ..
            } = event
                && *of == link
                && !whose.is_null()
                && wanted(*whose)
            {
                found.push(std::mem::replace(whose, std::ptr::null_mut()));
            }
        }
        self.orphans.retain(|&(of, whose)| {
            let taken = of == link && wanted(whose);
            if taken {
                found.push(whose);
            }
            !taken
        });
        found
    }

    /// Reads have ended: the first of what there is to tell, if there is something. The others are told later.
    fn on_came(&mut self, came: Came) -> Option<Event> {
        let Came::All { first, well, .. } = came else {
            return None;
        };
        let mut told = None;
        let (buffers, orphans, ended) = (&mut self.buffers, &mut self.orphans, &mut self.ended);
        self.under_way.take_all(first, |read| {
            let Operation { link, whose, .. } = read;
            if let Some((buffer, into, len)) = read.copy {
                if well && !whose.is_null() {
                    let from = buffers.ptr(buffer);
                    foreign::reads(from, len);
                    foreign::writes(into, len);
                    // SAFETY: as many bytes as the buffer has room for; who waits for them has room, too.
                    unsafe { into.copy_from_nonoverlapping(from, len) };
                }
                buffers.give_back(buffer);
                if !well {
                    // Who waits for it is told when the connection is taken down.
                    orphans.extend((!whose.is_null()).then_some((link, whose)));
                    return;
                }
            }
            let copied = read.copy.is_some();
            let event = Event::Came {
                link,
                whose,
                copied,
                well,
            };
            match told {
                None => told = Some(event),
                Some(_) => ended.push_back(event),
            }
        });
        told
    }

    /// Adds to a word at a peer; the owner, if there is one, hears what was there. False: too many wait.
    ///
    /// # Errors
    /// As of [`send_short`](Self::send_short).
    pub fn add(
        &mut self,
        link: u32,
        what: u64,
        to: There,
        owner: Option<Owner>,
    ) -> Result<bool, c_int> {
        let (mut flags, mut edata) = (0, 0);
        if let Some(owner) = owner {
            let Some(slot) = self.slots.take(owner) else {
                return Ok(false);
            };
            (flags, edata) = (utofu::LOCAL_MRQ_NOTICE, slot);
        }
        let told = Told {
            flags,
            edata,
            cbdata: word_of(link, edata),
        };
        let posted = self.post(|vcq| vcq.change(Step::add(what), to, told));
        self.posted(posted, edata)
    }

    /// Of what was refused no notice comes.
    fn posted(&mut self, posted: Result<(), c_int>, slot: u8) -> Result<bool, c_int> {
        if posted.is_err() {
            self.slots.end(slot.into(), true);
        }
        posted.map(|()| true)
    }

    /// Something of this connection was refused: whoever polls next hears of it.
    pub fn fail(&mut self, link: u32, code: c_int) {
        self.failed.push((link, code));
    }

    /// Whether something of this connection waits for its notice: until that has come its number is not another's.
    pub fn is_awaited(&mut self, link: u32) -> bool {
        let waits = |owner: &Owner| owner.link() == link;
        self.slots.owners().any(waits) || self.under_way.of_link(link).next().is_some()
    }

    /// The next thing that has happened.
    #[inline]
    pub fn poll(&mut self) -> Option<Event> {
        loop {
            if !self.ended.is_empty() {
                return self.next_ended();
            }
            let (code, notice) = match self.early.pop_front() {
                Some(early) => early,
                None => self.vcq.poll_mrq(),
            };
            let event = self.event(code, &notice);
            if event.is_some() || code == utofu::NOT_FOUND {
                return event;
            }
        }
    }

    /// A notice has come that is no error.
    #[inline(always)]
    pub fn heard(&mut self) {
        self.errors = 0;
    }

    /// What an answer to a poll, with this notice, tells.
    #[inline]
    pub fn event(&mut self, code: c_int, notice: &Notice) -> Option<Event> {
        match code {
            utofu::SUCCESS if notice.notice_type == utofu::RMT_PUT => {
                self.heard();
                Some(Event::Arrived(notice.rmt_stadd))
            }
            utofu::NOT_FOUND => self.poll_failed(),
            code => self.on_notice(code, notice),
        }
    }

    fn poll_failed(&mut self) -> Option<Event> {
        if self.is_sending() {
            self.reap();
        }
        self.next_ended().or_else(|| self.next_failed())
    }

    /// What has ended. Before what has not gone well is told that its connection has failed: its peer is not told that all is well.
    fn next_ended(&mut self) -> Option<Event> {
        let is_well = self.ended.front()?.is_well();
        let failed = if is_well { None } else { self.next_failed() };
        failed.or_else(|| self.ended.pop_front())
    }

    fn next_failed(&mut self) -> Option<Event> {
        let (link, code) = self.failed.pop()?;
        let whose = Whose::of(link);
        Some(Event::Failed { whose, code })
    }

    /// A notice of an operation of ours, or an error.
    fn on_notice(&mut self, code: c_int, notice: &Notice) -> Option<Event> {
        let ours = matches!(
            notice.notice_type,
            utofu::LCL_PUT | utofu::LCL_GET | utofu::LCL_ARMW
        );
        let well = code == utofu::SUCCESS;
        if !well {
            let came = ours.then(|| self.give_up(notice.edata)).flatten();
            return Some(self.on_error(code, notice, came));
        }
        self.heard();
        let came = (ours.then(|| self.slots.end(notice.edata, true))).flatten()?;
        let event = self.on_came(came);
        match came {
            Came::One(Owner::Reply(link)) => {
                let whose = self.replies.land(notice.edata, notice.rmt_value);
                Some(came_for(link, whose))
            }
            Came::One(Owner::Changes(link)) => {
                self.changes -= 1;
                Some(came_for(link, std::ptr::null_mut()))
            }
            Came::One(owner) => {
                let value = notice.rmt_value;
                Some(self.in_turn(Event::Ended { owner, value }))
            }
            Came::Part(_) | Came::All { .. } => match event {
                // Of those that share its number another has failed.
                Some(event) if !event.is_well() => {
                    self.ended.push_front(event);
                    self.next_ended()
                }
                event => event,
            },
        }
    }

    /// All that was written before is there: what was lent for it is given back first.
    fn in_turn(&mut self, event: Event) -> Event {
        if self.lent == 0 {
            return event;
        }
        while self.reap() {}
        self.ended.push_back(event);
        self.next_ended().unwrap_or(event)
    }

    fn on_error(&mut self, code: c_int, notice: &Notice, came: Option<Came>) -> Event {
        log::diag!(
            "the interconnect tells of an error: {} ({code}), notice of type {}, edata {}",
            code_name(code),
            notice.notice_type,
            notice.edata
        );
        let is_vague = came.is_none() && code == utofu::MRQ_OTHER;
        self.errors = if is_vague { self.errors + 1 } else { 0 };
        if self.errors > DEAF {
            return Event::Deaf { code };
        }
        let whose = match came {
            Some(Came::One(owner)) => Whose::of(owner.link()),
            Some(Came::Part(link) | Came::All { link, .. }) => Whose::Link(link),
            None => {
                let there = There {
                    vcq: notice.vcq_id,
                    stadd: notice.rmt_stadd,
                };
                Whose::Coloured(notice.edata as u8, there)
            }
        };
        Event::Failed { whose, code }
    }
}

/// The word with the entry of ended transmissions of what a notice with this byte tells of.
fn word_of(link: u32, slot: u8) -> usize {
    LINKS + link as usize + (usize::from(slot) << SLOT_AT)
}

/// Something has come that the adapter did not put into its owner's memory itself.
fn came_for(link: u32, whose: *mut c_void) -> Event {
    Event::Came {
        link,
        whose,
        copied: true,
        well: true,
    }
}
