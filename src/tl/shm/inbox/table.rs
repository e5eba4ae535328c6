//! The front of an inbox in shared memory: its header, the claims and starts of its rings, and what both ends do there.

use super::RINGS;
use crate::sys::arch::OwnLine;
use crate::sys::copy::{prefetch_to_read, prefetch_to_write};
use crate::sys::memfd::{MemfdId, PAGE};
use crate::sys::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crate::tl::shm::big_buf::MAX_BIG_BUFS;
use crate::tl::shm::memory::{FIRST_RINGS, PARTS};
use crate::tl::shm::peer_heap::HeapWords;
use crate::tl::shm::ring::{SLOT, Start};
use crate::tl::shm::{InboxLocator, RingOwner};
use std::ops::Range;
use std::ptr::NonNull;

/// First word of a complete inbox, with the version of its layout: senders of another version do not use it.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"rucpbo12");

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const READY: u32 = 2;

/// The first page of the segment (front page).
#[repr(C, align(4096))]
pub(in crate::tl::shm) struct InboxHeader {
    pub(in crate::tl::shm) magic: AtomicU64,
    /// High half of the locator's key: detects that the System V number was reused for another segment.
    pub(super) nonce: AtomicU64,
    /// Counts rings that became ready.
    pub(in crate::tl::shm) doorbell: AtomicU32,
    /// Not 0: the receiver may sleep; senders check `armed` after each message.
    pub(in crate::tl::shm) wakes: AtomicU32,
    /// 1: the receiver sleeps or is about to; the sender that resets it writes to the pipe.
    pub(super) armed: AtomicU32,
    /// The receiver's descriptor of the writing end of its wakeup pipe.
    pub(in crate::tl::shm) wake_fd: AtomicU32,
    /// Counts wakeups by senders that cannot write to the pipe. A futex.
    pub(in crate::tl::shm) bell: AtomicU32,
    /// One bit per ring: ready and not yet seen by the receiver.
    pub(super) ready: [AtomicU64; RINGS.div_ceil(64)],
    /// The owners of the big buffers.
    pub(in crate::tl::shm) owners: [AtomicU32; MAX_BIG_BUFS],
    /// Number of rings that exist; more are created before they run out.
    pub(in crate::tl::shm) rings: AtomicU32,
    /// Request of a sender that has found no free big buffer: an `BigBufRequest`.
    pub(in crate::tl::shm) wants_big_buf: AtomicU32,
    /// How senders find the parts: 0 for a part that does not exist.
    pub(in crate::tl::shm) parts: [AtomicU32; PARTS],
    /// Number of rings that existed when a sender found none of them free: more are to be created.
    pub(super) rings_wanted: AtomicU32,
    /// Counts the senders that have a position to search from for a free ring ([`InboxTable::begin_search`]).
    pub(super) next: AtomicU32,
    /// The shared heap of the receiver's process.
    pub(in crate::tl::shm) heap: HeapWords,
    /// Counts the epochs of its senders ([`order`](crate::tl::shm::order)). Each sender loads it for each message.
    pub(in crate::tl::shm) epochs: OwnLine<AtomicU64>,
    /// Not 0: a sender reads `progressed_at`.
    pub(super) is_watched: AtomicU32,
    /// When the receiver last recorded progress: monotonic nanoseconds. 0: it has yielded its core.
    pub(super) progressed_at: OwnLine<AtomicU64>,
}

impl InboxHeader {
    /// Requests that senders wake the receiver. The receiver then looks for messages once more before it sleeps: a
    /// message sent before its sender could see the request is in a ring by then.
    pub(super) fn arm(&self) {
        // SeqCst: the store comes before the caller's look at the rings, as the sender's message comes before its load
        // of `armed` (`must_wake`): one of the two sees the other.
        self.armed.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// When the receiver last recorded progress, in monotonic nanoseconds; 0: it has not recorded any.
    pub(in crate::tl::shm) fn progressed_at(&self) -> u64 {
        // Relaxed, here and where the two words are written: a hint that publishes no other memory.
        if self.is_watched.load(Ordering::Relaxed) == 0 {
            self.is_watched.store(1, Ordering::Relaxed);
        }
        self.progressed_at.0.load(Ordering::Relaxed)
    }

    /// Whether the caller, which has just sent a message, has to wake the receiver.
    pub(in crate::tl::shm) fn must_wake(&self) -> bool {
        // SeqCst: pairs with `arm`.
        fence(Ordering::SeqCst);
        self.armed.load(Ordering::Relaxed) == 1 && self.armed.swap(0, Ordering::AcqRel) == 1
    }
}

/// The claim of a ring. The sender that has claimed the ring writes the other fields between CLAIMED and READY.
#[repr(C, align(64))]
struct RingClaim {
    state: AtomicU32,
    pid: AtomicU32,
    pid_ns: AtomicU32,
    ipc_ns: AtomicU32,
    fd: AtomicU32,
    ino: AtomicU32,
    key: AtomicU64,
    uid: AtomicU64,
    shm_place: AtomicU32,
}

/// Where a sender begins to search for a free ring: at the ring of this number, modulo the rings that exist.
#[derive(Clone, Copy, Debug)]
pub(in crate::tl::shm) struct RingSearch(u32);

/// The claim of a ring, and its start.
#[repr(C)]
struct Entry {
    claim: RingClaim,
    start: Start,
}

/// Rings that have an entry. Each sender maps all entries, which costs 512 KiB of address space; the start of a ring
/// without an entry is in its body, which is mapped with its first message.
pub(in crate::tl::shm) const STARTS: usize = if cfg!(loom) { RINGS } else { 512 };
const ENTRIES_AT: usize = PAGE;
/// Offset of the claims of the other rings.
const CLAIMS_AT: usize = ENTRIES_AT + STARTS * size_of::<Entry>();
/// Bytes of front page, entries and claims (the front).
pub(in crate::tl::shm) const FRONT_LEN: usize =
    (CLAIMS_AT + (RINGS - STARTS) * size_of::<RingClaim>()).next_multiple_of(PAGE);

const _: () = assert!(size_of::<InboxHeader>() == PAGE);
// The number of slots of a start is such that an entry is a quarter of a page.
const _: () = assert!(size_of::<Entry>() == PAGE / 4 || cfg!(loom));
// Slots are at multiples of their size, see `RingSlot`.
const _: () = assert!(std::mem::offset_of!(Entry, start) % SLOT == SLOT / 2 || cfg!(loom));

/// Offset in the front of the entry of a ring, or of the claim of a ring without an entry. The claims follow the
/// entries.
fn entry_at(ring: usize) -> usize {
    if ring < STARTS {
        ENTRIES_AT + ring * size_of::<Entry>()
    } else {
        CLAIMS_AT + (ring - STARTS) * size_of::<RingClaim>()
    }
}

/// Offset in the front of the start of a ring, if it has an entry.
pub(in crate::tl::shm) fn start_at(ring: usize) -> Option<usize> {
    (ring < STARTS).then(|| entry_at(ring) + std::mem::offset_of!(Entry, start))
}

/// The numbers of the bits that are set, in order.
fn bits_of(words: &[u64]) -> impl Iterator<Item = usize> {
    words.iter().enumerate().flat_map(|(number, &word)| {
        let mut left = word;
        std::iter::from_fn(move || {
            let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(64 * number + bit)
        })
    })
}

/// The range in the front of the entries and claims of these rings.
pub(in crate::tl::shm) fn entry_bytes(rings: Range<usize>) -> Range<usize> {
    entry_at(rings.start)..entry_at(rings.end)
}

/// The front page, the entries and the claims, mapped by the receiver or by a sender. Untrusted processes share the
/// memory.
#[derive(Clone, Copy)]
pub(in crate::tl::shm) struct InboxTable(NonNull<u8>);

impl InboxTable {
    /// # Safety
    /// `base` is the front of an inbox, mapped as long as this value is used.
    pub(in crate::tl::shm) unsafe fn new(base: NonNull<u8>) -> Self {
        Self(base)
    }

    /// The front page, whose words both ends change at any time.
    pub(in crate::tl::shm) fn front(&self) -> &InboxHeader {
        // SAFETY: the constructor's promise: the front is mapped; all fields are atomics.
        unsafe { &*self.0.as_ptr().cast::<InboxHeader>() }
    }

    fn claim_at(&self, index: usize) -> &RingClaim {
        assert!(index < RINGS);
        // SAFETY: the constructor's promise: the front is mapped, and `index` is below RINGS; an entry begins with its
        // claim.
        unsafe { self.0.add(entry_at(index)).cast().as_ref() }
    }

    /// The start of a ring that has an entry.
    pub(in crate::tl::shm) fn start(&self, index: usize) -> Option<NonNull<Start>> {
        // SAFETY: the constructor's promise: the front is mapped, and `start_at` is inside of it.
        start_at(index).map(|at| unsafe { self.0.add(at).cast() })
    }

    /// Whether this is the inbox of a locator with this key.
    pub(in crate::tl::shm) fn is_inbox(&self, key: u64) -> bool {
        // Acquire: pairs with the Release store in `Inbox::create`.
        self.front().magic.load(Ordering::Acquire) == MAGIC
            && self.front().nonce.load(Ordering::Relaxed) == key >> 32
    }

    /// Where the caller is to search for a free ring: behind the previous sender, so that many senders that search at
    /// once find a ring at the first try.
    pub(in crate::tl::shm) fn begin_search(&self) -> RingSearch {
        // Relaxed: a hint.
        RingSearch(self.front().next.fetch_add(1, Ordering::Relaxed))
    }

    /// Causes the page fault of the entry that `search` finds once there are enough rings. The page exists afterwards,
    /// whether the ring does or not, and counts as written: the processor need not mark it at the first message.
    pub(in crate::tl::shm) fn touch(&self, search: RingSearch) {
        let index = search.0 as usize % RINGS;
        if index < STARTS {
            let state = &self.claim_at(index).state;
            // Relaxed: the state stays as it is, whether it is FREE or not. The compiler leaves out an addition of 0.
            let _ = state.compare_exchange(FREE, FREE, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Prefetches what a sender accesses to claim the ring that `search` is likely to find, and for its first message:
    /// it has last been in the caches of other cores, or in none.
    pub(in crate::tl::shm) fn prefetch_for_sender(&self, search: RingSearch) {
        let front = self.front();
        let index = search.0 as usize % RINGS;
        if let Some(start) = self.start(index) {
            prefetch_to_write(self.claim_at(index));
            prefetch_to_write(Start::first_slot(start).as_ptr());
        }
        prefetch_to_write(&raw const front.doorbell);
        prefetch_to_write(&raw const front.ready[index / 64]);
        prefetch_to_write(&raw const front.epochs);
        prefetch_to_read(&raw const front.rings);
    }

    /// Prefetches what the receiver reads of a ring that has become ready.
    fn prefetch_for_receiver(&self, index: usize) {
        prefetch_to_read(self.claim_at(index));
        if let Some(start) = self.start(index) {
            prefetch_to_read(Start::first_slot(start).as_ptr());
        }
    }

    /// Claims a free ring for `sender`.
    pub(in crate::tl::shm) fn claim(
        &self,
        sender: &RingOwner,
        search: RingSearch,
    ) -> Option<usize> {
        // Acquire: pairs with the Release store in `OwnInbox::add_rings`: the parts of all counted rings are published.
        let rings = self.front().rings.load(Ordering::Acquire) as usize;
        let rings = rings.clamp(FIRST_RINGS, RINGS);
        let start = search.0 as usize % rings;
        let index = (0..rings).map(|i| (start + i) % rings).find(|&i| {
            // Acquire on success: pairs with the Release store of FREE in `unclaim`.
            self.claim_at(i)
                .state
                .compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        })?;
        let claim = self.claim_at(index);
        let id = sender.inbox.id;
        claim.pid.store(id.pid, Ordering::Relaxed);
        claim.pid_ns.store(sender.inbox.pid_ns, Ordering::Relaxed);
        claim.ipc_ns.store(sender.inbox.ipc_ns, Ordering::Relaxed);
        claim.fd.store(id.fd, Ordering::Relaxed);
        claim.ino.store(id.ino, Ordering::Relaxed);
        claim.key.store(sender.inbox.key, Ordering::Relaxed);
        claim.uid.store(sender.uid, Ordering::Relaxed);
        let shm_place = sender.inbox.shm_place;
        claim.shm_place.store(shm_place, Ordering::Relaxed);
        Some(index)
    }

    /// Whether more rings can be created.
    fn can_grow(&self) -> bool {
        (self.front().rings.load(Ordering::Relaxed) as usize) < RINGS
    }

    /// Requests more rings: a sender has found none of at least `rings` rings free. True: the receiver is notified, and
    /// may create more.
    pub(in crate::tl::shm) fn request_rings(&self, rings: u32) -> bool {
        let can_grow = self.can_grow();
        if can_grow {
            // Relaxed, and Release: the number comes before the doorbell; pairs with the Acquire load in
            // `InboxTable::accept`.
            self.front()
                .rings_wanted
                .fetch_max(rings, Ordering::Relaxed);
            self.front().doorbell.fetch_add(1, Ordering::Release);
        }
        can_grow
    }

    /// Frees a ring, which is zero.
    pub(in crate::tl::shm) fn unclaim(&self, index: usize) {
        // Release: pairs with the Acquire exchange in `claim`; the zeroing comes before.
        self.claim_at(index).state.store(FREE, Ordering::Release);
    }

    /// Announces a claimed ring to the receiver.
    pub(in crate::tl::shm) fn announce(&self, index: usize) {
        // Release: pairs with the Acquire load in `accept`; the fields come before.
        self.claim_at(index).state.store(READY, Ordering::Release);
        self.announce_again(index);
    }

    /// Announces a ring that was announced before, as only a broken or hostile sender does.
    pub(in crate::tl::shm) fn announce_again(&self, index: usize) {
        // Release: pairs with the Acquire swap in `accept`.
        self.front().ready[index / 64].fetch_or(1 << (index % 64), Ordering::Release);
        // Release: pairs with the Acquire load in `Doorbell::has_new_ring`; the bit comes before.
        self.front().doorbell.fetch_add(1, Ordering::Release);
    }

    /// The count of the doorbell, and the senders of those of the first `rings` rings that became ready before it was
    /// read (or a little later: they are not reported again). The doorbell is read first: a ring announced in between
    /// increments it once more. The claims of rings that do not exist, which a hostile sender announces, are not read:
    /// their memory may not be reserved.
    pub(super) fn accept(&self, rings: usize) -> (u32, Vec<(usize, RingOwner)>) {
        let front = self.front();
        // Acquire: pairs with the Release add in `announce`.
        let seen = front.doorbell.load(Ordering::Acquire);
        // Acquire: pairs with the Release or in `announce`.
        let ready = (front.ready.each_ref()).map(|word| word.swap(0, Ordering::Acquire));
        let indices = || bits_of(&ready).filter(|&index| index < rings);
        indices().for_each(|index| self.prefetch_for_receiver(index));
        let mut new = Vec::with_capacity(indices().count());
        new.extend(indices().filter_map(|index| Some((index, self.sender_of(index)?))));
        (seen, new)
    }

    fn sender_of(&self, index: usize) -> Option<RingOwner> {
        let claim = self.claim_at(index);
        // Acquire: pairs with the Release store in `announce`.
        if claim.state.load(Ordering::Acquire) != READY {
            return None;
        }
        let id = MemfdId {
            pid: claim.pid.load(Ordering::Relaxed),
            fd: claim.fd.load(Ordering::Relaxed),
            ino: claim.ino.load(Ordering::Relaxed),
        };
        let inbox = InboxLocator {
            pid_ns: claim.pid_ns.load(Ordering::Relaxed),
            ipc_ns: claim.ipc_ns.load(Ordering::Relaxed),
            id,
            key: claim.key.load(Ordering::Relaxed),
            shm_place: claim.shm_place.load(Ordering::Relaxed),
        };
        Some(RingOwner {
            uid: claim.uid.load(Ordering::Relaxed),
            inbox,
        })
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
