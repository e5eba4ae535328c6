//! What copies from and to a peer's memory (CMA) need of the peer: whether they are permitted, and what lies in the
//! ring through which the peer sends: the count of cancelled rendezvous, and the chunk board.

use super::InboxLocator;
use super::chunk_board::{ChunkBoard, ChunkState};
use super::peer_heap::PeerHeap;
use super::ring::{CancelCounter, Consumer};
use crate::sys::{log, shared_heap};
use once_cell::race::OnceBox;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Whether `process_vm_readv` and `process_vm_writev` are permitted on the peer's memory.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq)]
enum CmaAccess {
    /// Not known: neither was tried.
    Unknown,
    /// A copy from or to the peer's memory has succeeded.
    Yes,
    /// CMA is not allowed, the peer is in another PID namespace, or the kernel has refused a copy.
    No,
    /// Permitted to this process, but not to the peer.
    Alone,
}

/// What copies from and to a peer's memory keep, as long as the peer exists.
pub struct CmaState {
    /// A [`CmaAccess`]. Relaxed: an independent value; no other data are published by it.
    access: AtomicU8,
    /// Cancels that this worker was notified of before it took the ring of `cancels`, modulo 2^32.
    cancels_before: AtomicU32,
    /// Cancels of the peer that this worker was notified of.
    cancels_seen: AtomicU64,
    /// In the ring that the peer sends through, null if there is none.
    cancels: AtomicPtr<CancelCounter>,
    /// Chunk states of messages to the peer, in the ring that it sends through; null if there is none.
    board: AtomicPtr<ChunkBoard>,
    /// The shared heap of the peer's process, looked for by the first copy of a process that has one itself. A box of a
    /// box: it takes 8 bytes of each peer.
    heap: OnceBox<Option<Box<PeerHeap>>>,
}

impl CmaState {
    /// `is_allowed`: the options allow CMA, and the peer is in this PID namespace.
    pub fn new(is_allowed: bool) -> CmaState {
        let access = if is_allowed {
            CmaAccess::Unknown
        } else {
            CmaAccess::No
        };
        CmaState {
            access: AtomicU8::new(access as u8),
            cancels_before: AtomicU32::new(0),
            cancels_seen: AtomicU64::new(0),
            cancels: AtomicPtr::new(ptr::null_mut()),
            board: AtomicPtr::new(ptr::null_mut()),
            heap: OnceBox::new(),
        }
    }

    fn access_is(&self, access: CmaAccess) -> bool {
        self.access.load(Ordering::Relaxed) == access as u8
    }

    fn set_access(&self, access: CmaAccess) {
        self.access.store(access as u8, Ordering::Relaxed);
    }
}

/// A peer, for copies from and to its memory.
#[derive(Clone, Copy)]
pub struct CmaPeer<'a> {
    pub uid: u64,
    /// The peer's inbox. `None`: shared memory does not reach the peer.
    pub inbox: Option<&'a InboxLocator>,
    /// The peer is in this process: its memory is accessed directly.
    pub same_process: bool,
    pub state: &'a CmaState,
}

impl<'a> CmaPeer<'a> {
    /// Whether memory of the peer can be copied from and to, as far as is known.
    #[inline]
    pub fn is_usable(self) -> bool {
        self.same_process || !self.state.access_is(CmaAccess::No)
    }

    /// Where this process has `len` bytes at an address of the peer, if both processes have shared heaps and the bytes
    /// are in that of the peer.
    pub(super) fn mapped(self, addr: u64, len: usize) -> Option<NonNull<u8>> {
        if !shared_heap::is_loaded() {
            return None;
        }
        let open = || Box::new(self.inbox.and_then(|inbox| PeerHeap::open(*inbox)));
        self.state.heap.get_or_init(open).as_ref()?.local(addr, len)
    }

    /// Whether a copy by CMA has succeeded, and the peer is not known to lack the permission.
    pub fn is_proven(self) -> bool {
        !self.same_process && self.state.access_is(CmaAccess::Yes)
    }

    /// Records that a copy by CMA has succeeded.
    #[inline(always)]
    pub(super) fn note_copy(self) {
        if self.state.access_is(CmaAccess::Unknown) {
            self.state.set_access(CmaAccess::Yes);
        }
    }

    /// Records that the kernel does not permit CMA.
    pub(super) fn note_forbidden(self) {
        self.state.set_access(CmaAccess::No);
        log::debug!(
            "no right to copy from and to the memory of peer {:#x}: using messages",
            self.uid
        );
    }

    /// Records that the peer could not write into memory of this process: it gets no further offers.
    pub fn note_peer_forbidden(self) {
        self.state.set_access(CmaAccess::Alone);
    }

    /// Records the ring through which the peer sends from now on.
    ///
    /// # Safety
    /// The memory of the ring stays mapped as long as the state exists.
    pub unsafe fn attach(self, consumer: &Consumer) {
        let state = self.state;
        let before = state.cancels_seen.load(Ordering::Relaxed);
        state.cancels_before.store(before as u32, Ordering::Relaxed);
        // Release: pairs with the Acquire load in `begin_copy`.
        state
            .cancels
            .store(consumer.cancel_counter(), Ordering::Release);
        // Relaxed: progress alone uses the board.
        let board = consumer.board().as_ptr();
        state.board.store(board, Ordering::Relaxed);
    }

    /// Forgets a ring that is about to be freed. False: the peer has connected again, and uses another one.
    pub fn detach(self, consumer: &Consumer) -> bool {
        let state = self.state;
        let is_current = state.cancels.load(Ordering::Relaxed) == consumer.cancel_counter();
        if is_current {
            // Release: pairs with the Acquire load in `begin_copy`.
            state.cancels.store(ptr::null_mut(), Ordering::Release);
            state.board.store(ptr::null_mut(), Ordering::Relaxed);
        }
        is_current
    }

    /// The chunk state with this number on the peer's board, for a message to the peer.
    pub(super) fn chunk_state(self, number: u8) -> Option<&'a ChunkState> {
        // SAFETY: the ring is mapped as long as the state exists, by the promise of `attach`; the board's fields are
        // atomics.
        let board = unsafe { self.state.board.load(Ordering::Relaxed).as_ref() };
        board.and_then(|board| board.chunk_state(number.into()))
    }

    /// Number of cancels of the peer that this worker was notified of.
    pub fn cancels_seen(self) -> u64 {
        // Acquire: pairs with the Release add in `note_cancel`; the id of a cancelled message is stored before it.
        self.state.cancels_seen.load(Ordering::Acquire)
    }

    /// Counts a cancel of the peer. The id of the message is stored.
    pub fn note_cancel(self) {
        // Release: pairs with the Acquire load in `cancels_seen`.
        self.state.cancels_seen.fetch_add(1, Ordering::Release);
    }

    /// Starts a copy. `None`: a message was cancelled, and its id has not been received: try later.
    pub fn begin_copy(self) -> Option<CmaGuard<'a>> {
        // SAFETY: the ring is mapped as long as the state exists, by the promise of `attach`. Acquire: pairs with the
        // Release stores in `attach` and `detach`.
        let counter = unsafe { self.state.cancels.load(Ordering::Acquire).as_ref() };
        // Counted for this ring. Relaxed: written before the ring is published.
        let before = self.state.cancels_before.load(Ordering::Relaxed);
        let seen = (self.cancels_seen() as u32).wrapping_sub(before);
        let copy = CmaGuard { counter, seen };
        if counter.is_some_and(|counter| counter.begin_copy() as u32 != seen) {
            return None; // dropping `copy` ends it
        }
        Some(copy)
    }
}

/// A CMA copy from a peer's memory that detects cancels.
pub struct CmaGuard<'a> {
    counter: Option<&'a CancelCounter>,
    /// Cancels of the ring that this worker was notified of, modulo 2^32: more cannot be in flight.
    seen: u32,
}

impl CmaGuard<'_> {
    /// Ends the copy. Returns whether it has copied what the sender offered.
    pub fn end(self) -> bool {
        self.counter
            .is_none_or(|counter| counter.count() as u32 == self.seen)
    }
}

impl Drop for CmaGuard<'_> {
    fn drop(&mut self) {
        if let Some(counter) = self.counter {
            counter.end_copy();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::tl::shm::ring::tests::ring;

    fn peer(state: &CmaState) -> CmaPeer<'_> {
        CmaPeer {
            uid: 1,
            inbox: None,
            same_process: false,
            state,
        }
    }

    #[test]
    fn a_copy_is_trusted_while_every_cancel_is_known() {
        let state = CmaState::new(true);
        let peer = peer(&state);
        assert!(peer.begin_copy().is_some_and(CmaGuard::end), "no ring");
        // Cancels through an earlier ring, of more than 2^32.
        state
            .cancels_seen
            .store((1 << 32) + u64::from(u32::MAX), Ordering::Relaxed);
        let (producer, consumer, _) = ring();
        // SAFETY: the ring is leaked.
        unsafe { peer.attach(&consumer) };
        assert!(peer.begin_copy().is_some_and(CmaGuard::end));
        producer.cancel_counter().count_cancelled(2);
        peer.note_cancel();
        assert!(peer.begin_copy().is_none(), "one cancel is not known");
        assert!(!producer.cancel_counter().is_copied());
        peer.note_cancel();
        let copy = peer.begin_copy().unwrap();
        assert!(producer.cancel_counter().is_copied());
        producer.cancel_counter().count_cancelled(1);
        assert!(!copy.end(), "a cancel during the copy");
        let (_, other, _) = ring();
        assert!(!peer.detach(&other) && peer.begin_copy().is_none());
        assert!(peer.detach(&consumer) && peer.begin_copy().is_some_and(CmaGuard::end));
        assert!(peer.chunk_state(0).is_none());
    }

    #[test]
    fn a_copy_proves_the_permission_until_either_side_is_refused() {
        let state = CmaState::new(false);
        assert!(!peer(&state).is_usable());
        let alone = CmaPeer {
            same_process: true,
            ..peer(&state)
        };
        assert!(alone.is_usable() && !alone.is_proven());
        let state = CmaState::new(true);
        let peer = peer(&state);
        assert!(peer.is_usable() && !peer.is_proven());
        peer.note_copy();
        assert!(peer.is_usable() && peer.is_proven());
        peer.note_peer_forbidden();
        peer.note_copy();
        assert!(peer.is_usable() && !peer.is_proven());
        peer.note_forbidden();
        peer.note_copy();
        assert!(!peer.is_usable() && !peer.is_proven());
    }
}
