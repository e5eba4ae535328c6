//! Posts operations.

use super::completion::{CREDITS, Completion, OpTag};
use super::outstanding::{BcopyRead, CopyTarget, OutstandingOp};
use super::{CONN_CBDATA, OpQueue, STUCK_MS, ZCOPY_BIT, word_of};
use crate::sys::clock;
use crate::tl::Token;
use crate::tl::tofu::amo::TofuAmo;
use crate::tl::tofu::utofu::{self, OpFlags, Stadd};
use crate::tl::tofu::vcq::{PostFlags, RemoteAddr, Vcq};
use crate::tl::tofu::vcq_ops::read_before_post;
use std::ffi::c_int;

impl OpQueue {
    /// Posts until the VCQ accepts it: the TNI frees entries without a call of this thread.
    pub(super) fn post(&mut self, post: impl Fn(&Vcq) -> c_int) -> Result<(), c_int> {
        let mut since = None;
        loop {
            match post(&self.vcq) {
                utofu::SUCCESS => return Ok(()),
                utofu::BUSY => {
                    self.poll_tcq();
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

    /// Puts a frame of at most 32 bytes (piggyback). Frames of a connection arrive in order.
    ///
    /// # Errors
    /// The library's code: the connection is unusable.
    pub fn send_short(
        &mut self,
        tag: OpTag,
        frame: &[u8],
        to: RemoteAddr,
        flags: OpFlags,
    ) -> Result<(), c_int> {
        let post_flags = PostFlags {
            flags: OpFlags::STRONG_ORDER | flags,
            edata: tag.generation,
            cbdata: CONN_CBDATA + tag.conn as usize,
        };
        self.post(|vcq| vcq.put_bytes(frame, to, post_flags))
    }

    /// Puts a frame of `len` bytes from a buffer, which [`poll_tcq`](Self::poll_tcq) frees. Frames of a connection
    /// arrive in order.
    ///
    /// # Errors
    /// The library's code: the connection is unusable.
    pub fn send(
        &mut self,
        tag: OpTag,
        buffer: u16,
        len: usize,
        to: RemoteAddr,
        flags: OpFlags,
    ) -> Result<(), c_int> {
        let from = self.buffers.stadd(buffer);
        let post_flags = PostFlags {
            flags: OpFlags::STRONG_ORDER | OpFlags::TCQ_NOTICE | flags,
            edata: tag.generation,
            cbdata: buffer.into(),
        };
        self.post(|vcq| vcq.put(from, to, len, post_flags))
    }

    /// Puts a word behind all earlier puts to the peer. With an owner, `QueueEvent::Ended` reports it when the word and
    /// all puts before it have arrived. False: no edata tag is free.
    ///
    /// # Errors
    /// The library's code: the connection is unusable.
    pub fn put_word(
        &mut self,
        tag: OpTag,
        word: u64,
        to: RemoteAddr,
        owner: Option<Completion>,
    ) -> Result<bool, c_int> {
        let (mut flags, mut edata, mut cbdata) = (
            OpFlags::STRONG_ORDER,
            tag.generation,
            CONN_CBDATA + tag.conn as usize,
        );
        if let Some(owner) = owner {
            let Some(slot) = self.slots.alloc(owner) else {
                return Ok(false);
            };
            flags |= OpFlags::LOCAL_MRQ_NOTICE;
            (edata, cbdata) = (slot, word_of(tag.conn, slot));
        }
        let post_flags = PostFlags {
            flags,
            edata,
            cbdata,
        };
        let posted = self.post(|vcq| vcq.put_word(word, to, post_flags));
        self.posted(posted, edata)
    }

    /// Puts the disconnect word to the writer of a ring, which gets a notice: its reader closes. False: no edata tag is
    /// free.
    ///
    /// # Errors
    /// The library's code: the connection is unusable.
    pub fn post_disconnect(&mut self, ring: u32, word: u64, to: RemoteAddr) -> Result<bool, c_int> {
        let Some(edata) = self.slots.alloc(Completion::CloseNotice(ring)) else {
            return Ok(false);
        };
        let post_flags = PostFlags {
            flags: OpFlags::STRONG_ORDER | OpFlags::LOCAL_MRQ_NOTICE | OpFlags::REMOTE_MRQ_NOTICE,
            edata,
            cbdata: word_of(CREDITS + ring, edata),
        };
        let posted = self.post(|vcq| vcq.put_word(word, to, post_flags));
        self.posted(posted, edata)
    }

    /// Posts a bcopy get of `len` bytes, at most a buffer's length, to `into`. [`super::QueueEvent::Completed`] reports
    /// `request`. False: no room now.
    ///
    /// # Errors
    /// The library's code: the connection is unusable.
    #[inline(always)] // for the sender of single gets
    pub fn read(
        &mut self,
        conn: u32,
        from: RemoteAddr,
        (into, len): (*mut u8, usize),
        request: Token,
    ) -> Result<bool, c_int> {
        if len > self.buffers.packet() || self.is_full() || !self.has_buffers(1) {
            return Ok(false);
        }
        let Some(buffer) = self.buffers.take(conn) else {
            return Ok(false);
        };
        let here = self.buffers.stadd(buffer);
        let to = CopyTarget::One { into, len };
        let read = OutstandingOp::by_buffer(conn, request, BcopyRead { buffer, to });
        let posted = self.get(read, here, from, len);
        if posted == Ok(false) {
            self.buffers.give_back(buffer);
        }
        posted
    }

    /// Posts a get of a word that no request waits for, ordered behind all puts of the connection: once its notice has
    /// come, none of them is outstanding. False: no room now.
    ///
    /// # Errors
    /// The library's code: it has refused the get.
    pub fn read_behind(&mut self, conn: u32, from: RemoteAddr) -> Result<bool, c_int> {
        const WORD: usize = size_of::<u64>();
        if self.is_full() || !self.has_buffers(1) {
            return Ok(false);
        }
        let Some(buffer) = self.buffers.take(conn) else {
            return Ok(false);
        };
        let here = self.buffers.stadd(buffer);
        let to = CopyTarget::One {
            into: std::ptr::null_mut(),
            len: WORD,
        };
        let copy = BcopyRead { buffer, to };
        let read = OutstandingOp::by_buffer(conn, Token::NONE, copy);
        // The TNI overwrites the buffer, whose last contents this thread has read.
        read_before_post();
        let posted = self.noticed(read, |vcq, post_flags| {
            let flags = post_flags.flags | OpFlags::STRONG_ORDER;
            vcq.get(
                here,
                from,
                WORD,
                PostFlags {
                    flags,
                    ..post_flags
                },
            )
        });
        if posted == Ok(false) {
            self.buffers.give_back(buffer);
        }
        posted
    }

    /// Posts a zcopy get of `len` bytes into registered memory. [`super::QueueEvent::Completed`] reports `request`.
    /// False: no room now.
    ///
    /// # Errors
    /// The library's code: the connection is unusable.
    pub fn read_in_place(
        &mut self,
        conn: u32,
        from: RemoteAddr,
        (into, len): (Stadd, usize),
        request: Token,
    ) -> Result<bool, c_int> {
        if self.is_full() {
            return Ok(false);
        }
        self.get(OutstandingOp::in_place(conn, request), into, from, len)
    }

    fn get(
        &mut self,
        read: OutstandingOp,
        into: Stadd,
        from: RemoteAddr,
        len: usize,
    ) -> Result<bool, c_int> {
        // The TNI overwrites memory that this thread has read, such as a buffer of an earlier get.
        read_before_post();
        self.noticed(read, |vcq, post_flags| vcq.get(into, from, len, post_flags))
    }

    /// Posts, by `post`, an operation that an MRQ notice completes.
    fn noticed(
        &mut self,
        operation: OutstandingOp,
        post: impl Fn(&Vcq, PostFlags) -> c_int,
    ) -> Result<bool, c_int> {
        let conn = operation.conn;
        let number = self.under_way.insert(operation);
        let Some(edata) = self.slots.join(conn, number, &mut self.under_way) else {
            self.under_way.remove(number);
            return Ok(false);
        };
        let post_flags = PostFlags {
            flags: OpFlags::LOCAL_MRQ_NOTICE,
            edata,
            cbdata: word_of(conn, edata),
        };
        let posted = self.post(|vcq| post(vcq, post_flags));
        if posted.is_err() {
            // The operation completes with those that share its tag, without a request.
            self.under_way.detach_owner(number);
            if let Some(hit) = self.slots.complete(edata.into(), false) {
                let event = self.on_tag_hit(hit);
                self.ended.extend(event);
            }
        }
        posted.map(|()| true)
    }

    /// Posts a zcopy put of `len` bytes of registered memory, in order with frames. [`super::QueueEvent::ZcopyDone`]
    /// reports `request` when the TNI has read the memory. False: no room now.
    ///
    /// # Errors
    /// The library's code: the connection is unusable.
    pub fn write_in_place(
        &mut self,
        tag: OpTag,
        (from, len): (Stadd, usize),
        to: RemoteAddr,
        request: Token,
    ) -> Result<bool, c_int> {
        if self.is_full() {
            self.poll_tcq();
            if self.is_full() {
                return Ok(false);
            }
        }
        let number = (self.under_way).insert(OutstandingOp::in_place(tag.conn, request));
        let post_flags = PostFlags {
            flags: OpFlags::STRONG_ORDER | OpFlags::TCQ_NOTICE,
            edata: tag.generation,
            cbdata: ZCOPY_BIT + number as usize,
        };
        let posted = self.post(|vcq| vcq.put(from, to, len, post_flags));
        match posted {
            Ok(()) => self.zcopy_in_flight += 1,
            Err(_) => {
                self.under_way.remove(number);
            }
        }
        posted.map(|()| true)
    }

    /// Posts a zcopy put without any ordering. [`super::QueueEvent::Completed`] reports `request` when the data have
    /// arrived. False: no room now.
    ///
    /// # Errors
    /// The library's code: the connection is unusable.
    pub fn write_apart(
        &mut self,
        conn: u32,
        (from, len): (Stadd, usize),
        to: RemoteAddr,
        request: Token,
    ) -> Result<bool, c_int> {
        if self.is_full() {
            return Ok(false);
        }
        let write = OutstandingOp::in_place(conn, request);
        self.noticed(write, |vcq, post_flags| vcq.put(from, to, len, post_flags))
    }

    /// Adds to a word at a peer; `QueueEvent::Ended` reports the fetched value to the owner, if there is one. False: no
    /// edata tag is free.
    ///
    /// # Errors
    /// The library's code: the connection is unusable.
    pub fn add(
        &mut self,
        conn: u32,
        what: u64,
        to: RemoteAddr,
        owner: Option<Completion>,
    ) -> Result<bool, c_int> {
        let (mut flags, mut edata) = (OpFlags::empty(), 0);
        if let Some(owner) = owner {
            let Some(slot) = self.slots.alloc(owner) else {
                return Ok(false);
            };
            (flags, edata) = (OpFlags::LOCAL_MRQ_NOTICE, slot);
        }
        let post_flags = PostFlags {
            flags,
            edata,
            cbdata: word_of(conn, edata),
        };
        let posted = self.post(|vcq| vcq.change(TofuAmo::add(what), to, post_flags));
        self.posted(posted, edata)
    }

    /// Frees the edata tag of a refused post, of which no notice comes.
    pub(super) fn posted(&mut self, posted: Result<(), c_int>, slot: u8) -> Result<bool, c_int> {
        if posted.is_err() {
            self.slots.complete(slot.into(), true);
        }
        posted.map(|()| true)
    }

    /// Whether the limit of outstanding operations is reached.
    fn is_full(&self) -> bool {
        self.under_way.len() >= self.most
    }
}
