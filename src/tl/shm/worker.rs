//! A worker's receiving half of shared memory: its inbox, and the rings that peers have taken there.

use super::InboxLocator;
use super::close::{CloseAnswer, CloseOffer};
use super::inbox::{Doorbell, Inbox};
use super::last_look::LastLook;
use super::order::Merge;
use super::ring::Consumer;
#[cfg(not(loom))]
use crate::sys::sync::AtomicU32;
use crate::sys::{advice, log, spare};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
#[cfg(not(loom))]
use std::ptr::NonNull;

/// Number of incoming rings that each progress call looks at one by one. Of more, an idle one looks at one where that
/// suffices ([`LastLook`]).
pub const HOT_RINGS: usize = 8;
/// Number of incoming rings up to which unused ones stay open: a look at each costs some ten nanoseconds in all.
const FEW_RINGS: usize = 16;

/// An incoming ring. `P` names a peer. A worker's rings are in a row, so that a look at each reads few pages; each has
/// two cache lines.
#[repr(C, align(128))]
pub struct ShmRx<P> {
    pub(super) consumer: Consumer,
    /// Its number in the inbox.
    pub(super) index: usize,
    pub peer: P,
}

impl<P> ShmRx<P> {
    /// Agrees to this offer of the sender to close the ring. False: the sender has withdrawn it.
    pub fn agree_to_close(&mut self, offer: CloseOffer, answer: CloseAnswer) -> bool {
        self.consumer.agree_to_close(offer, answer)
    }
}

/// State of shared memory that only the progress thread uses. `P` names a peer. What each call of progress reads comes
/// first.
#[repr(C)]
pub struct ShmWorker<P> {
    pub(super) rings: Vec<ShmRx<P>>,
    /// Where there are more rings than [`HOT_RINGS`].
    pub(super) last_look: LastLook,
    /// Most messages of a ring that the next progress call handles: 1 after an idle call, at most 16.
    pub(super) budget: u32,
    /// So many rings are taken that finished ones are to be freed soon.
    pub(super) is_crowded: bool,
    /// `None` where shared memory is not used.
    pub(super) inbox: Option<Inbox>,
    /// The ring that had messages at the last look at each ring, where there are more than [`HOT_RINGS`]. The list may
    /// have changed since.
    pub(super) last_ready: usize,
    pub(super) merge: Merge,
}

/// What all threads of a worker use of shared memory.
pub struct ShmShared {
    /// That of the worker's inbox.
    pub doorbell: Doorbell,
    /// The user that the inbox belongs to.
    pub user: u32,
}

impl<P: Copy + Eq> ShmWorker<P> {
    /// The state of a worker with this inbox that has received nothing.
    pub fn new(inbox: Option<Inbox>) -> Self {
        Self {
            inbox,
            rings: Vec::new(),
            budget: 1,
            merge: Merge::default(),
            last_look: LastLook::default(),
            last_ready: 0,
            is_crowded: false,
        }
    }

    /// The state of a worker with a new inbox, which has received nothing. `named`: the inbox has a name in /dev/shm.
    /// `is_optional`: the worker can do without.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`, `ENOSPC`, if the worker cannot.
    pub fn open(named: bool, is_optional: bool) -> io::Result<Self> {
        match Inbox::create(named) {
            Ok(inbox) => Ok(Self::new(Some(inbox))),
            Err(e) if is_optional => {
                log::warn!(
                    "this worker does not use shared memory, which cannot be allocated: {e}{}",
                    advice::on_shared_memory(&e)
                );
                Ok(Self::new(None))
            }
            Err(e) => Err(e),
        }
    }

    /// Whether peers can send by shared memory.
    pub fn has_inbox(&self) -> bool {
        self.inbox.is_some()
    }

    /// What all threads of the worker use. Not to be used after the inbox is dropped.
    pub fn shared(&self) -> ShmShared {
        let doorbell = self.inbox.as_ref().map(Inbox::doorbell);
        ShmShared {
            doorbell: doorbell.unwrap_or_else(Doorbell::unconnected),
            user: self.inbox.as_ref().map_or(0, Inbox::user),
        }
    }

    /// Where peers find the inbox. `None`: there is none.
    pub fn locator(&self) -> Option<InboxLocator> {
        self.inbox.as_ref().map(Inbox::locator)
    }

    /// Whether finished rings are to be freed now, because most are taken. True once.
    pub fn take_crowded(&mut self) -> bool {
        std::mem::take(&mut self.is_crowded)
    }

    /// Whether no peer has a ring.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.rings.is_empty()
    }

    /// Whether there are more than [`HOT_RINGS`] rings.
    #[inline(always)]
    pub fn has_cold_rings(&self) -> bool {
        self.rings.len() > HOT_RINGS
    }

    /// The peers that have rings, some of them more than once.
    pub fn peers(&self) -> impl Iterator<Item = P> {
        self.rings.iter().map(|ring| ring.peer)
    }

    /// Whether a message waits in a ring.
    pub fn has_messages(&self) -> bool {
        self.rings.iter().any(|ring| !ring.consumer.is_empty())
    }

    /// Whether a message of this peer waits in a ring.
    pub fn has_messages_of(&self, peer: P) -> bool {
        let mut rings = self.rings.iter().filter(|ring| ring.peer == peer);
        rings.any(|ring| !ring.consumer.is_empty())
    }

    /// Reads nothing more that this peer sends, which is dead.
    pub fn stop(&mut self, peer: P) {
        let rings = self.rings.iter_mut().filter(|ring| ring.peer == peer);
        rings.for_each(|ring| ring.consumer.stop());
    }

    /// A number that every message of the first [`HOT_RINGS`] rings changes.
    pub fn taken(&self) -> u64 {
        let hot = self.rings.iter().take(HOT_RINGS);
        hot.map(|ring| ring.consumer.taken())
            .fold(0, u64::wrapping_add)
    }

    /// Shows senders that the worker progresses, at the time that `now` returns; 0: that it does not for a while.
    pub fn note_progress(&self, now: impl FnOnce() -> u64) {
        if let Some(inbox) = &self.inbox {
            inbox.note_progress(now);
        }
    }

    /// Enables senders to wake this worker by a byte that they write to this descriptor.
    pub fn enable_wake(&self, fd: BorrowedFd<'_>) {
        if let Some(inbox) = &self.inbox {
            inbox.enable_wake(fd.as_raw_fd() as u32);
        }
    }

    /// The futex by which senders wake this worker that cannot open its descriptor. It exists as long as the inbox.
    #[cfg(not(loom))]
    pub fn bell(&self) -> Option<NonNull<AtomicU32>> {
        self.inbox.as_ref().map(Inbox::bell)
    }

    /// Whether a sender offers to close its ring.
    pub fn has_offers(&mut self) -> bool {
        self.offered().next().is_some()
    }

    /// The rings that their senders offer to close, and the offers. All messages of these were taken. Unused rings are
    /// among them if there are many rings.
    pub fn offered(&mut self) -> impl Iterator<Item = (CloseOffer, &mut ShmRx<P>)> {
        let keeps_unused = self.rings.len() <= FEW_RINGS;
        let offered = self.rings.iter_mut().filter_map(|ring| {
            let offer = ring.consumer.close_offer()?;
            Some((offer, ring))
        });
        offered.filter(move |(offer, _)| !keeps_unused || *offer == CloseOffer::NoEndpoint)
    }

    /// Requests that senders wake this worker, which is about to sleep: [`Inbox::arm`].
    pub fn arm(&self) {
        if let Some(inbox) = &self.inbox {
            inbox.arm();
        }
    }

    /// Withdraws the request of [`arm`](Self::arm).
    pub fn disarm(&self) {
        if let Some(inbox) = &self.inbox {
            inbox.disarm();
        }
    }

    /// Frees memory that the list of rings needed when there were many more of them.
    pub fn trim(&mut self) {
        spare::trim(&mut self.rings);
    }

    /// Reads nothing more. The inbox stays: peers close their rings.
    pub fn close(&mut self) {
        self.rings.clear();
    }
}

const _: () = assert!(size_of::<ShmRx<usize>>() == 128 || cfg!(loom));
