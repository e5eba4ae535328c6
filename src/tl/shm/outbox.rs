//! A sender's end of one ring in a peer's inbox.

use super::chunk_board::OpenBoards;
use super::close::{CloseAnswer, CloseOffer};
use super::inbox::{InboxHeader, RingSearch};
use super::memory::{FIRST_RINGS, Theirs, cannot_add_rings};
use super::order::Epoch;
use super::ring::{BodyError, CancelCounter, Producer, Unusable};
use super::split_copy::{SplitCopy, SplitCopyId};
use super::{FoundInbox, InboxLocator, RingOwner};
use crate::sys::copy;
use crate::sys::host::{self, RecentLimit};
use crate::sys::sync::Ordering;
use crate::wire::header::{Kind, NoteHdr};
use std::io;
use std::ptr::NonNull;

mod waiting;
pub use waiting::WaitingBox;
use waiting::{WaitingOutbox, boxed_in};

/// The limit of address space when a ring was taken in an inbox that was mapped before.
static FIRST_MESSAGES: RecentLimit = RecentLimit::new();

/// The sending end of a ring: its producer, the mappings of its memory, and the wakeup of its receiver.
pub struct Outbox {
    ring: Producer,
    front: NonNull<InboxHeader>,
    /// The receiver may sleep: check `armed` after each message.
    wakes: bool,
    /// Messages that had arrived from the peer when the last one was sent.
    arrived: u64,
    /// Number of the message behind the last signal; 0: none was sent.
    signaled: u64,
    /// Number of the next message at the last call of [`is_unused`](Self::is_unused).
    sent_before: u64,
    /// The last offer to close the ring.
    offered: CloseOffer,
    /// Refusals of signals in front of the message of this number were reported, or are not to be reported.
    refusals_seen: u64,
    peer: InboxLocator,
    /// Keeps ring and front page mapped.
    memory: Theirs,
    index: usize,
    /// Open chunk states of messages that this worker receives from the peer.
    chunk_states: OpenBoards,
}

// SAFETY: the pointers are into mappings that `memory` owns and that do not move; the producer is Send.
unsafe impl Send for Outbox {}

impl Outbox {
    /// Whether the peer's inbox can be mapped now: nothing stays mapped.
    ///
    /// # Errors
    /// `NotFound`: the peer is gone. Else errors of the system.
    pub fn probe(peer: InboxLocator) -> io::Result<()> {
        Theirs::open(peer)?.probe_ring()
    }

    /// Maps the peer's inbox and populates what its first messages need, for [`open`](Self::open).
    ///
    /// # Errors
    /// `NotFound`: the peer is gone. Else errors of the system.
    pub fn prepare(found: FoundInbox) -> io::Result<WaitingBox> {
        let memory = Theirs::open(found)?;
        let search = memory.table().begin_search();
        memory.touch(search);
        Ok(WaitingBox::new(WaitingOutbox {
            memory,
            search,
            rings: 0,
            receiver_full: false,
            tries: 0,
        }))
    }

    /// Opens the peer's inbox and claims a ring there for `me`.
    ///
    /// # Errors
    /// `NotFound`: the peer is gone. `WouldBlock`: all rings are taken; `waiting` is set for the next try. Else errors
    /// of the system.
    pub fn open(
        peer: InboxLocator,
        me: &RingOwner,
        waiting: &mut Option<WaitingBox>,
    ) -> io::Result<Box<Self>> {
        let (mut memory, search, is_limited, place) = match waiting.take() {
            None => {
                let memory = Theirs::open(peer)?;
                let search = memory.table().begin_search();
                let is_limited = host::address_space_is_limited();
                (memory, search, is_limited, Box::new_uninit())
            }
            Some(mut known) => {
                let waits = known.get_mut();
                waits.memory.table().prefetch_for_sender(waits.search);
                if waits.is_due()? {
                    let (waits, place) = known.into_parts();
                    // The limit may have been set since the inbox was mapped.
                    let is_limited = FIRST_MESSAGES.is_limited();
                    (waits.memory, waits.search, is_limited, place)
                } else {
                    waits.tries += 1;
                    *waiting = Some(known);
                    return Err(io::ErrorKind::WouldBlock.into());
                }
            }
        };
        let table = memory.table();
        let rings = table.front().rings.load(Ordering::Relaxed);
        // Acquire: pairs with the Release store in `Inbox::enable_wake`.
        let wakes = table.front().wakes.load(Ordering::Acquire) != 0;
        let Some(index) = table.claim(me, search) else {
            if table.request_rings(rings) && wakes {
                kick(table.front(), peer);
            }
            let receiver_full = cannot_add_rings(table.front(), rings as usize);
            let tries = 1;
            *waiting = Some(WaitingBox::new(WaitingOutbox {
                memory,
                search,
                rings,
                tries,
                receiver_full,
            }));
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let start = memory
            .take_ring(index, is_limited)
            .inspect_err(|_| table.unclaim(index))?;
        table.announce(index);
        let memory = memory.trim(index);
        let table = memory.table();
        let front = NonNull::from(table.front());
        // SAFETY: a claimed ring is zero (never used, or discarded by `Inbox::free`), and this is its only producer;
        // `memory`, which is stored beside it, keeps the ring, the counter and the big buffers mapped.
        let ring = unsafe {
            let epoch = Epoch::new(memory.epochs(), !wakes);
            Producer::starting(start, memory.body(), epoch).with_big_bufs(memory.big_bufs(index))
        };
        let outbox = Self {
            ring,
            front,
            wakes,
            arrived: 0,
            signaled: 0,
            sent_before: 0,
            offered: CloseOffer::NoEndpoint,
            refusals_seen: 0,
            peer,
            memory,
            index,
            chunk_states: OpenBoards::default(),
        };
        Ok(boxed_in(place, outbox))
    }

    /// [`Producer::send_tiny`] to a receiver that never sleeps; false also if the receiver may sleep.
    ///
    /// # Safety
    /// `len` bytes at `src` are readable (any `src` for 0).
    #[inline(always)]
    pub unsafe fn send_tiny(
        &mut self,
        kind: u8,
        imm: impl FnOnce() -> u64,
        src: *const u8,
        len: usize,
    ) -> bool {
        // SAFETY: by the caller, `src` is readable. If the receiver may sleep no epoch lasts for tiny records.
        unsafe { self.ring.send_tiny(kind, imm, src, len) }
    }

    /// [`Producer::send_tiny_in_new_epoch`] to a receiver that never sleeps; false also if the receiver may sleep.
    ///
    /// # Safety
    /// `len` bytes at `src` are readable.
    #[inline]
    pub unsafe fn send_tiny_in_new_epoch(
        &mut self,
        kind: u8,
        imm: u64,
        src: *const u8,
        len: usize,
    ) -> bool {
        // SAFETY: by the caller, `src` is readable for `len` bytes.
        unsafe { self.ring.send_tiny_in_new_epoch(kind, imm, src, len) }
    }

    /// Prefetches a slot after a message; the argument is the number of messages that have arrived from the peer. The
    /// prefetch pays (10 % of the rate of small messages between distant cores) when message follows message. To a peer
    /// that replies to each message it costs as much of the latency: the peer polls the slot meanwhile, and takes the
    /// cache line away again. So it is left out after an arrival.
    #[inline(always)]
    pub fn look_ahead(&mut self, arrived: u64) {
        if arrived == self.arrived {
            self.ring.look_ahead();
        } else {
            self.arrived = arrived;
        }
    }

    /// [`look_ahead`](Self::look_ahead) after a message of `len` bytes, which may be a long one: counts it if it
    /// followed another one without a reply.
    #[inline(always)]
    pub fn look_ahead_of_long(&mut self, arrived: u64, len: usize) {
        if arrived == self.arrived {
            self.ring.count_unanswered();
            self.ring.look_ahead_of(len);
        } else {
            self.arrived = arrived;
        }
    }

    /// Sends a record by [`Producer::send`], and wakes the receiver if it sleeps.
    ///
    /// # Errors
    /// [`Unusable`] when the consumer's counts are impossible, or the ring cannot be mapped.
    #[inline]
    pub fn send(
        &mut self,
        kind: u8,
        aux: u8,
        imm: u64,
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Result<bool, Unusable> {
        let sent = self.ring.send(kind, aux, imm, len, fill)?;
        if self.wakes && sent {
            self.kick();
        }
        Ok(sent)
    }

    /// Sends a signal behind data that are in place: an entry of the receiver's completion queue `cq`, which the
    /// receiver does not answer. That it is handled is seen by the receiver's position ([`handled`](Self::handled)).
    /// Calls nothing. False: [`send_signal_in_turn`](Self::send_signal_in_turn) may send it.
    #[inline(always)]
    pub fn send_signal(&mut self, cq: u8, value: u64, behind: NoteHdr) -> bool {
        let words = [behind.addr.to_le(), behind.len.to_le()];
        let sent = self.ring.send_words(Kind::Note as u8, cq, value, words);
        if sent {
            self.signaled = self.ring.sent();
        }
        sent
    }

    /// [`send_signal`](Self::send_signal) where the signal begins an epoch, where the receiver's position has to be
    /// read first, or where the receiver may sleep. False: there is no room now, or the ring can send nothing any more.
    pub fn send_signal_in_turn(&mut self, cq: u8, value: u64, behind: NoteHdr) -> bool {
        let head = behind.encode();
        let sent = self.send(Kind::Note as u8, cq, value, NoteHdr::SIZE, |record| {
            // SAFETY: the record has room for the header.
            unsafe { copy::to_shared(record, head.as_ptr(), NoteHdr::SIZE) };
        });
        let sent = sent == Ok(true);
        if sent {
            self.signaled = self.ring.sent();
        }
        sent
    }

    /// Number of the message behind the last signal; 0: none was sent.
    pub fn signaled(&self) -> u64 {
        self.signaled
    }

    /// Number of the first message that the receiver has not handled, and whether it has refused signals since the last
    /// call. `None`: the receiver's position is impossible.
    pub fn handled(&mut self) -> Option<(u64, bool)> {
        let (handled, refused) = self.ring.handled()?;
        let is_new = refused > self.refusals_seen;
        self.refusals_seen = self.refusals_seen.max(refused);
        Some((handled, is_new))
    }

    /// Refusals of the signals that were sent until now are not reported.
    pub fn discount_refusals(&mut self) {
        self.refusals_seen = self.refusals_seen.max(self.signaled);
    }

    /// Whether a record of `len` bytes, or any shorter one, can be sent now.
    ///
    /// # Errors
    /// [`Unusable`] when the consumer's counts are impossible, or the ring cannot be mapped.
    pub fn has_room(&mut self, len: usize) -> Result<bool, Unusable> {
        self.ring.has_room(len)
    }

    /// When the receiver last recorded progress, in monotonic nanoseconds; 0: it has not recorded any.
    pub fn progressed_at(&self) -> u64 {
        // SAFETY: the front page stays mapped as long as self.
        unsafe { self.front.as_ref() }.progressed_at()
    }

    /// The counter of canceled rendezvous of this ring.
    pub(super) fn cancel_counter(&self) -> &CancelCounter {
        self.ring.cancel_counter()
    }

    /// Announces the ring a second time, as only a broken or hostile sender does: for tests.
    #[doc(hidden)]
    pub fn announce_again(&self) {
        self.memory.table().announce_again(self.index);
    }

    /// Whether the receiver has destroyed the inbox. One load from shared memory.
    pub fn is_abandoned(&self) -> bool {
        !self.memory.is_used()
    }

    /// Discards what was written for a receiver that is dead.
    pub fn discard_unread(&mut self) {
        self.memory.discard_unread(self.index);
    }

    /// Opens a chunk state for a message from the peer. `None`: all are in use, or the body of the ring cannot be
    /// mapped.
    pub(super) fn open_split_copy(&mut self) -> Option<(SplitCopy, SplitCopyId)> {
        let board = self.ring.board()?;
        let (number, generation) = self.chunk_states.take()?;
        // SAFETY: the ring is mapped as long as self; all fields are atomics.
        let chunk_state = unsafe { board.as_ref() }.chunk_state(number)?;
        chunk_state.open(generation);
        let id = SplitCopyId {
            number: number as u8,
            generation,
        };
        Some((SplitCopy::new(chunk_state, generation), id))
    }

    /// Frees a chunk state; the message is complete, and the peer does not access the chunk state any more.
    pub(super) fn close_split_copy(&mut self, split: SplitCopy) {
        // SAFETY: the ring is mapped as long as self; all fields are atomics.
        let board = self.ring.board().map(|board| unsafe { board.as_ref() });
        if let Some(number) = board.and_then(|board| board.number(split.chunk_state())) {
            self.chunk_states.put(number);
        }
    }

    /// Whether any chunk state is open: requests then point into the ring.
    pub(super) fn has_open_split_copy(&self) -> bool {
        self.chunk_states.any_open()
    }

    /// Whether the receiver has read everything.
    pub fn drained(&self) -> bool {
        self.ring.drained()
    }

    /// Whether nothing was sent since the last call.
    pub fn is_unused(&mut self) -> bool {
        let sent = self.ring.sent();
        std::mem::replace(&mut self.sent_before, sent) == sent
    }

    /// Whether more senders have taken rings in the receiver's inbox than most have: it has added some.
    pub fn is_inbox_crowded(&self) -> bool {
        // SAFETY: the front page stays mapped as long as self. Relaxed: publishes no other memory.
        let rings = unsafe { self.front.as_ref() }.rings.load(Ordering::Relaxed);
        rings as usize > FIRST_RINGS
    }

    /// Offers to close the ring. False, without an offer: the receiver has not read everything, or a chunk state is
    /// open.
    pub fn offer_close(&mut self, offer: CloseOffer) -> bool {
        let is_idle = self.ring.drained() && !self.chunk_states.any_open();
        if is_idle {
            self.ring.offer_close(offer);
            self.offered = offer;
        }
        is_idle
    }

    /// The last offer to close the ring.
    pub fn offered(&self) -> CloseOffer {
        self.offered
    }

    /// Withdraws the offer to close the ring.
    ///
    /// # Errors
    /// The consumer has answered: the ring cannot be used any more.
    pub fn withdraw_offer(&mut self) -> Result<(), CloseAnswer> {
        self.ring.withdraw_offer(self.offered)
    }

    /// The consumer's answer to the offer to close the ring, if there is one.
    pub fn answer(&self) -> Option<CloseAnswer> {
        self.ring.answer(self.offered)
    }

    /// Wakes the receiver if it sleeps.
    #[inline(never)]
    fn kick(&self) {
        // SAFETY: the front page stays mapped as long as self.
        kick(unsafe { self.front.as_ref() }, self.peer);
    }
}

impl From<BodyError> for io::Error {
    fn from(why: BodyError) -> Self {
        match why {
            BodyError::Gone => io::ErrorKind::NotFound.into(),
            BodyError::Unmapped => io::Error::other("its ring cannot be mapped"),
        }
    }
}

/// Wakes the receiver of an inbox if it sleeps.
fn kick(front: &InboxHeader, peer: InboxLocator) {
    if front.must_wake() && !wake(peer, front.wake_fd.load(Ordering::Relaxed)) {
        // Release: pairs with the Acquire load of the receiver's thread.
        front.bell.fetch_add(1, Ordering::Release);
        #[cfg(not(loom))]
        crate::sys::futex::wake(&front.bell);
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.ring.close();
    }
}

/// Writes a byte into the wakeup pipe of worker `peer`. A full pipe wakes as well. False: the pipe cannot be opened.
fn wake(peer: InboxLocator, fd: u32) -> bool {
    use std::io::Write;
    use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
    if peer.pid_ns != host::place().pid_ns {
        return false;
    }
    let path = format!("/proc/{}/fd/{fd}", peer.id.pid);
    if !std::fs::metadata(&path).is_ok_and(|m| m.file_type().is_fifo()) {
        return false;
    }
    // Opened for reading as well: if the receiver dies now, the write must not raise SIGPIPE in the user's program.
    let pipe = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path);
    pipe.map(|mut p| p.write(&[1])).is_ok()
}
