//! What a queue is given to do.

use super::completion::{CREDITS, Completion, OpTag};
use super::outstanding::OutstandingOp;
use super::{LENT, LINKS, OpQueue, STUCK_MS, word_of};
use crate::sys::clock;
use crate::tl::tofu::amo::TofuAmo;
use crate::tl::tofu::utofu::{self, Stadd};
use crate::tl::tofu::vcq::{PostFlags, RemoteAddr, Vcq};
use crate::tl::tofu::vcq_ops::read_before_post;
use std::ffi::{c_int, c_ulong, c_void};

impl OpQueue {
    /// Posts until the queue takes it: an adapter makes room by itself.
    pub(super) fn post(&mut self, post: impl Fn(&Vcq) -> c_int) -> Result<(), c_int> {
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
        mark: OpTag,
        frame: &[u8],
        to: RemoteAddr,
        flags: c_ulong,
    ) -> Result<(), c_int> {
        let told = PostFlags {
            flags: utofu::STRONG_ORDER | flags,
            edata: mark.colour,
            cbdata: LINKS + mark.link as usize,
        };
        self.post(|vcq| vcq.put_bytes(frame, to, told))
    }

    /// As [`send_short`](Self::send_short), of a frame of `len` bytes in a buffer, which comes back by itself.
    ///
    /// # Errors
    /// As there.
    pub fn send(
        &mut self,
        mark: OpTag,
        buffer: u16,
        len: usize,
        to: RemoteAddr,
        flags: c_ulong,
    ) -> Result<(), c_int> {
        let from = self.buffers.stadd(buffer);
        let told = PostFlags {
            flags: utofu::STRONG_ORDER | utofu::TCQ_NOTICE | flags,
            edata: mark.colour,
            cbdata: buffer.into(),
        };
        self.post(|vcq| vcq.put(from, to, len, told))
    }

    /// Writes a word behind everything else to the same peer. With an owner: who hears when it is there, and all before
    /// it; false if too many wait.
    ///
    /// # Errors
    /// As of [`send_short`](Self::send_short).
    pub fn put_word(
        &mut self,
        mark: OpTag,
        word: u64,
        to: RemoteAddr,
        owner: Option<Completion>,
    ) -> Result<bool, c_int> {
        let (mut flags, mut edata, mut cbdata) =
            (utofu::STRONG_ORDER, mark.colour, LINKS + mark.link as usize);
        if let Some(owner) = owner {
            let Some(slot) = self.slots.alloc(owner) else {
                return Ok(false);
            };
            flags |= utofu::LOCAL_MRQ_NOTICE;
            (edata, cbdata) = (slot, word_of(mark.link, slot));
        }
        let told = PostFlags {
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
    pub fn post_disconnect(&mut self, ring: u32, word: u64, to: RemoteAddr) -> Result<bool, c_int> {
        let Some(edata) = self.slots.alloc(Completion::Farewell(ring)) else {
            return Ok(false);
        };
        let told = PostFlags {
            flags: utofu::STRONG_ORDER | utofu::LOCAL_MRQ_NOTICE | utofu::REMOTE_MRQ_NOTICE,
            edata,
            cbdata: word_of(CREDITS + ring, edata),
        };
        let posted = self.post(|vcq| vcq.put_word(word, to, told));
        self.posted(posted, edata)
    }

    /// Reads `len` bytes, no more than a buffer has, to `into`; `whose` hears of it from [`super::QueueEvent::Came`].
    /// False: not now.
    ///
    /// # Errors
    /// As of [`send_short`](Self::send_short).
    pub fn read(
        &mut self,
        link: u32,
        from: RemoteAddr,
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
        let read = OutstandingOp::by_buffer(link, whose, buffer, (into, len));
        let posted = self.get(read, here, from, len);
        if posted == Ok(false) {
            self.buffers.give_back(buffer);
        }
        posted
    }

    /// Reads a word that no request waits for, behind all that was written for the connection. Once its notice has come
    /// nothing that was written is under way. False: not now.
    ///
    /// # Errors
    /// The library's code: it has refused the read.
    pub fn read_behind(&mut self, link: u32, from: RemoteAddr) -> Result<bool, c_int> {
        const WORD: usize = size_of::<u64>();
        if self.is_full() || !self.has_buffers(1) {
            return Ok(false);
        }
        let Some(buffer) = self.buffers.take(link) else {
            return Ok(false);
        };
        let here = self.buffers.stadd(buffer);
        let nowhere = (std::ptr::null_mut(), WORD);
        let read = OutstandingOp::by_buffer(link, std::ptr::null_mut(), buffer, nowhere);
        // The adapter writes over what was read out of the same buffer.
        read_before_post();
        let posted = self.noticed(read, |vcq, told| {
            let flags = told.flags | utofu::STRONG_ORDER;
            vcq.get(here, from, WORD, PostFlags { flags, ..told })
        });
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
        from: RemoteAddr,
        (into, len): (Stadd, usize),
        whose: *mut c_void,
    ) -> Result<bool, c_int> {
        if self.is_full() {
            return Ok(false);
        }
        self.get(OutstandingOp::in_place(link, whose), into, from, len)
    }

    fn get(
        &mut self,
        read: OutstandingOp,
        into: Stadd,
        from: RemoteAddr,
        len: usize,
    ) -> Result<bool, c_int> {
        // The adapter writes over what was there: a read that was copied out of the same buffer, for one.
        read_before_post();
        self.noticed(read, |vcq, told| vcq.get(into, from, len, told))
    }

    /// Posts an operation whose end a notice tells, as `post` is given.
    fn noticed(
        &mut self,
        operation: OutstandingOp,
        post: impl Fn(&Vcq, PostFlags) -> c_int,
    ) -> Result<bool, c_int> {
        let link = operation.link;
        let number = self.under_way.insert(operation);
        let Some(edata) = self.slots.join(link, number, &mut self.under_way) else {
            self.under_way.remove(number);
            return Ok(false);
        };
        let told = PostFlags {
            flags: utofu::LOCAL_MRQ_NOTICE,
            edata,
            cbdata: word_of(link, edata),
        };
        let posted = self.post(|vcq| post(vcq, told));
        if posted.is_err() {
            // It ends with those that share its number, and nobody waits for it.
            self.under_way.detach_owner(number);
            if let Some(came) = self.slots.complete(edata.into(), false) {
                let event = self.on_tag_hit(came);
                self.ended.extend(event);
            }
        }
        posted.map(|()| true)
    }

    /// Writes from the owner's memory, which is registered; `whose` hears from [`super::QueueEvent::Left`] when the
    /// adapter has read it. In order with frames. False: not now.
    ///
    /// # Errors
    /// As of [`send_short`](Self::send_short).
    pub fn write_in_place(
        &mut self,
        mark: OpTag,
        (from, len): (Stadd, usize),
        to: RemoteAddr,
        whose: *mut c_void,
    ) -> Result<bool, c_int> {
        if self.is_full() {
            self.reap();
            if self.is_full() {
                return Ok(false);
            }
        }
        let number = (self.under_way).insert(OutstandingOp::in_place(mark.link, whose));
        let told = PostFlags {
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

    /// As [`write_in_place`](Self::write_in_place), in no order with anything: `whose` hears from
    /// [`super::QueueEvent::Came`] when it is there.
    ///
    /// # Errors
    /// As of [`send_short`](Self::send_short).
    pub fn write_apart(
        &mut self,
        link: u32,
        (from, len): (Stadd, usize),
        to: RemoteAddr,
        whose: *mut c_void,
    ) -> Result<bool, c_int> {
        if self.is_full() {
            return Ok(false);
        }
        let write = OutstandingOp::in_place(link, whose);
        self.noticed(write, |vcq, told| vcq.put(from, to, len, told))
    }

    /// Adds to a word at a peer; the owner, if there is one, hears what was there. False: too many wait.
    ///
    /// # Errors
    /// As of [`send_short`](Self::send_short).
    pub fn add(
        &mut self,
        link: u32,
        what: u64,
        to: RemoteAddr,
        owner: Option<Completion>,
    ) -> Result<bool, c_int> {
        let (mut flags, mut edata) = (0, 0);
        if let Some(owner) = owner {
            let Some(slot) = self.slots.alloc(owner) else {
                return Ok(false);
            };
            (flags, edata) = (utofu::LOCAL_MRQ_NOTICE, slot);
        }
        let told = PostFlags {
            flags,
            edata,
            cbdata: word_of(link, edata),
        };
        let posted = self.post(|vcq| vcq.change(TofuAmo::add(what), to, told));
        self.posted(posted, edata)
    }

    /// Of what was refused no notice comes.
    pub(super) fn posted(&mut self, posted: Result<(), c_int>, slot: u8) -> Result<bool, c_int> {
        if posted.is_err() {
            self.slots.complete(slot.into(), true);
        }
        posted.map(|()| true)
    }

    /// Whether no more operations may be under way that somebody waits for.
    fn is_full(&self) -> bool {
        self.under_way.len() >= self.most
    }
}
