//! A worker's inbox: shared memory with a ring for every peer that sends to it.
//!
//! A sender claims a free ring by compare-and-swap, writes its identity into the claim, and increments the doorbell;
//! the receiver has its rings mapped and needs no system call to start reading. The first messages of a ring lie beside
//! its claim, so that its sender maps no more of the inbox than it needs to claim a ring ([`Start`]). The receiver
//! creates further rings before they run out; a sender that finds none left increments the doorbell as well, and tries
//! again. A ring has memory only from its first use on, and frees it when its sender is gone. Because the receiver owns
//! the rings, what was sent arrives even if the sender exits right after.

use super::big_buf::{BigBufs, MAX_BIG_BUFS};
use super::memory::{FIRST_RINGS, OwnInbox, PARTS, cannot_add_rings};
use super::ring::{RingParts, SLOT, Start};
use super::{InboxLocator, RingOwner};
use crate::sys::arch::OwnLine;
use crate::sys::liveness_lock::{self, LivenessLock};
use crate::sys::memfd::{Memfd, MemfdId, PAGE};
use crate::sys::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crate::sys::{host, log};
use std::io;
use std::ops::Range;
use std::ptr::NonNull;

mod doorbell;
pub use doorbell::Doorbell;

/// Rings of an inbox: peers on one host that can send to one worker at a time.
pub const RINGS: usize = if cfg!(loom) { 2 } else { 1024 };
// Every bit of `InboxHeader::ready` has a ring: untrusted processes write the bits, which index the claims.
const _: () = assert!(RINGS % 64 == 0 || cfg!(loom));
const MAGIC: u64 = u64::from_le_bytes(*b"rucpbo10");

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const READY: u32 = 2;

/// The first page of the segment (front page).
#[repr(C, align(4096))]
pub(super) struct InboxHeader {
    pub(super) magic: AtomicU64,
    /// High half of the locator's key: detects that the System V number was reused for another segment.
    nonce: AtomicU64,
    /// Counts rings that became ready.
    pub(super) doorbell: AtomicU32,
    /// Not 0: the receiver may sleep; senders check `armed` after each message.
    pub(super) wakes: AtomicU32,
    /// 1: the receiver sleeps or is about to; the sender that resets it writes to the pipe.
    armed: AtomicU32,
    /// The receiver's descriptor of the writing end of its wakeup pipe.
    pub(super) wake_fd: AtomicU32,
    /// Counts wakeups by senders that cannot write to the pipe. A futex.
    pub(super) bell: AtomicU32,
    /// One bit per ring: ready and not yet seen by the receiver.
    ready: [AtomicU64; RINGS.div_ceil(64)],
    /// The owners of the big buffers.
    pub(super) owners: [AtomicU32; MAX_BIG_BUFS],
    /// Number of rings that exist; more are created before they run out.
    pub(super) rings: AtomicU32,
    /// Request of a sender that has found no free big buffer: an `BigBufRequest`.
    pub(super) wants_big_buf: AtomicU32,
    /// How senders find the parts: 0 for a part that does not exist.
    pub(super) parts: [AtomicU32; PARTS],
    /// Number of rings that existed when a sender found none of them free: more are to be created.
    rings_wanted: AtomicU32,
    /// Counts the senders that have a position to search from for a free ring ([`InboxTable::begin_search`]).
    next: AtomicU32,
    /// Counts the epochs of its senders ([`super::order`]). Each sender loads it for each message.
    pub(super) epochs: OwnLine<AtomicU64>,
    /// Not 0: a sender reads `progressed_at`.
    is_watched: AtomicU32,
    /// When the receiver last recorded progress: monotonic nanoseconds. 0: it has yielded its core.
    progressed_at: OwnLine<AtomicU64>,
}

impl InboxHeader {
    /// Requests that senders wake the receiver. The receiver then looks for messages once more before it sleeps: a
    /// message sent before its sender could see the request is in a ring by then.
    fn arm(&self) {
        // SeqCst: the store comes before the caller's look at the rings, as the sender's message comes before its load
        // of `armed` (`must_wake`): one of the two sees the other.
        self.armed.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// When the receiver last recorded progress, in monotonic nanoseconds; 0: it has not recorded any.
    pub(super) fn progressed_at(&self) -> u64 {
        // Relaxed, here and where the two words are written: a hint that publishes no other memory.
        if self.is_watched.load(Ordering::Relaxed) == 0 {
            self.is_watched.store(1, Ordering::Relaxed);
        }
        self.progressed_at.0.load(Ordering::Relaxed)
    }

    /// Whether the caller, which has just sent a message, has to wake the receiver.
    pub(super) fn must_wake(&self) -> bool {
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
    liveness_place: AtomicU32,
}

/// Where a sender begins to search for a free ring: at the ring of this number, modulo the rings that exist.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingSearch(u32);

/// The claim of a ring, and its start.
#[repr(C)]
struct Entry {
    claim: RingClaim,
    start: Start,
}

/// Rings that have an entry. Each sender maps all entries, which costs 512 KiB of address space; the start of a ring
/// without an entry is in its body, which is mapped with its first message.
pub(super) const STARTS: usize = if cfg!(loom) { RINGS } else { 512 };
const ENTRIES_AT: usize = PAGE;
/// Offset of the claims of the other rings.
const CLAIMS_AT: usize = ENTRIES_AT + STARTS * size_of::<Entry>();
/// Bytes of front page, entries and claims (the front).
pub(super) const FRONT_LEN: usize =
    (CLAIMS_AT + (RINGS - STARTS) * size_of::<RingClaim>()).next_multiple_of(PAGE);

const _: () = assert!(size_of::<InboxHeader>() == PAGE);
// The number of slots of a start is such that an entry is a quarter of a page.
const _: () = assert!(size_of::<Entry>() == PAGE / 4 || cfg!(loom));
// Slots are at multiples of their size, see `RingSlot`.
const _: () = assert!(std::mem::offset_of!(Entry, start) % SLOT == SLOT / 2 || cfg!(loom));

/// Offset in the front of the entry of a ring, or of the claim of a ring without an entry. The claims follow the
/// entries.
fn entry_at(ring: usize) -> usize {
    match ring < STARTS {
        true => ENTRIES_AT + ring * size_of::<Entry>(),
        false => CLAIMS_AT + (ring - STARTS) * size_of::<RingClaim>(),
    }
}

/// Offset in the front of the start of a ring, if it has an entry.
pub(super) fn start_at(ring: usize) -> Option<usize> {
    (ring < STARTS).then(|| entry_at(ring) + std::mem::offset_of!(Entry, start))
}

/// The range in the front of the entries and claims of these rings.
pub(super) fn entry_bytes(rings: Range<usize>) -> Range<usize> {
    entry_at(rings.start)..entry_at(rings.end)
}

/// The front page, the entries and the claims, mapped by the receiver or by a sender. Untrusted processes share the
/// memory.
#[derive(Clone, Copy)]
pub(super) struct InboxTable(NonNull<u8>);

impl InboxTable {
    /// # Safety
    /// `base` is the front of an inbox, mapped as long as this value is used.
    pub(super) unsafe fn new(base: NonNull<u8>) -> Self {
        Self(base)
    }

    pub(super) fn front(&self) -> &InboxHeader {
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
    pub(super) fn start(&self, index: usize) -> Option<NonNull<Start>> {
        // SAFETY: the constructor's promise: the front is mapped, and `start_at` is inside of it.
        start_at(index).map(|at| unsafe { self.0.add(at).cast() })
    }

    /// Whether this is the inbox of a locator with this key.
    pub(super) fn is_inbox(&self, key: u64) -> bool {
        // Acquire: pairs with the Release store in `Inbox::create`.
        self.front().magic.load(Ordering::Acquire) == MAGIC
            && self.front().nonce.load(Ordering::Relaxed) == key >> 32
    }

    /// Where the caller is to search for a free ring: behind the previous sender, so that many senders that search at
    /// once find a ring at the first try.
    pub(super) fn begin_search(&self) -> RingSearch {
        // Relaxed: a hint.
        RingSearch(self.front().next.fetch_add(1, Ordering::Relaxed))
    }

    /// Causes the page fault of the entry that `search` finds once there are enough rings. The page exists afterwards,
    /// whether the ring does or not.
    pub(super) fn touch(&self, search: RingSearch) {
        let index = search.0 as usize % RINGS;
        if index < STARTS {
            // Relaxed: the value is not used.
            std::hint::black_box(self.claim_at(index).state.load(Ordering::Relaxed));
        }
    }

    /// Claims a free ring for `sender`.
    pub(super) fn claim(&self, sender: &RingOwner, search: RingSearch) -> Option<usize> {
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
        let liveness_place = sender.inbox.liveness_place;
        claim
            .liveness_place
            .store(liveness_place, Ordering::Relaxed);
        Some(index)
    }

    /// Whether more rings can be created.
    fn can_grow(&self) -> bool {
        (self.front().rings.load(Ordering::Relaxed) as usize) < RINGS
    }

    /// Requests more rings: a sender has found none of at least `rings` rings free. True: the receiver is notified, and
    /// may create more.
    pub(super) fn request_rings(&self, rings: u32) -> bool {
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
    pub(super) fn unclaim(&self, index: usize) {
        // Release: pairs with the Acquire exchange in `claim`; the zeroing comes before.
        self.claim_at(index).state.store(FREE, Ordering::Release);
    }

    /// Announces a claimed ring to the receiver.
    pub(super) fn announce(&self, index: usize) {
        // Release: pairs with the Acquire load in `accept`; the fields come before.
        self.claim_at(index).state.store(READY, Ordering::Release);
        self.announce_again(index);
    }

    /// Announces a ring that was announced before, as only a broken or hostile sender does.
    pub(super) fn announce_again(&self, index: usize) {
        // Release: pairs with the Acquire swap in `accept`.
        self.front().ready[index / 64].fetch_or(1 << (index % 64), Ordering::Release);
        // Release: pairs with the Acquire load in `Doorbell::has_new_ring`; the bit comes before.
        self.front().doorbell.fetch_add(1, Ordering::Release);
    }

    /// The count of the doorbell, and the senders of those of the first `rings` rings that became ready before it was
    /// read (or a little later: they are not reported again). The doorbell is read first: a ring announced in between
    /// increments it once more. The claims of rings that do not exist, which a hostile sender announces, are not read:
    /// their memory may not be reserved.
    fn accept(&self, rings: usize) -> (u32, Vec<(usize, RingOwner)>) {
        let front = self.front();
        // Acquire: pairs with the Release add in `announce`.
        let seen = front.doorbell.load(Ordering::Acquire);
        let mut new = Vec::new();
        for (word, ready) in front.ready.iter().enumerate() {
            // Acquire: pairs with the Release or in `announce`.
            let mut bits = ready.swap(0, Ordering::Acquire);
            while bits != 0 {
                let index = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let sender = (index < rings).then(|| self.sender_of(index)).flatten();
                new.extend(sender.map(|sender| (index, sender)));
            }
        }
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
            liveness_place: claim.liveness_place.load(Ordering::Relaxed),
        };
        Some(RingOwner {
            uid: claim.uid.load(Ordering::Relaxed),
            inbox,
        })
    }
}

/// The inbox of a worker, at the receiver.
pub struct Inbox {
    /// Shows that the owner is alive; also holds the memory if that is neither System V segments nor a named file.
    identity: Memfd,
    memory: OwnInbox,
    key: u64,
    /// Shows in other PID namespaces that the owner is alive, if the lock is available.
    liveness_place: Option<LivenessLock>,
    table: InboxTable,
    /// One bit per ring: the receiver has accepted its sender and not freed it since.
    accepted: [u64; RINGS.div_ceil(64)],
}

impl Inbox {
    /// Creates an inbox. `named`: with a name in /dev/shm.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`, `ENOSPC`.
    pub fn create(named: bool) -> io::Result<Self> {
        let (memory, identity, number) = OwnInbox::create(named)?;
        let is_block = memory.is_block();
        let key = match is_block {
            true => (host::random_u64() | 1 << 32) & !0xFFFF_FFFF | number,
            false => number,
        };
        let table = memory.table();
        table.front().nonce.store(key >> 32, Ordering::Relaxed);
        // Release: pairs with the Acquire load in `InboxTable::is_inbox`.
        table.front().magic.store(MAGIC, Ordering::Release);
        Ok(Self {
            identity,
            memory,
            key,
            liveness_place: is_block.then(|| LivenessLock::hold(key).ok()).flatten(),
            table,
            accepted: [0; RINGS.div_ceil(64)],
        })
    }

    /// Where peers find the inbox.
    pub fn locator(&self) -> InboxLocator {
        let here = host::place();
        InboxLocator {
            pid_ns: here.pid_ns,
            ipc_ns: match self.memory.is_named() {
                true => 0,
                false => here.ipc_ns,
            },
            id: self.identity.id(),
            key: self.key,
            liveness_place: self
                .liveness_place
                .as_ref()
                .map_or(0, |_| liveness_lock::place()),
        }
    }

    /// The doorbell; not to be used after the inbox is dropped.
    pub fn doorbell(&self) -> Doorbell {
        Doorbell::of(&self.table.front().doorbell)
    }

    /// Rings that became ready since the last call, with the identities that their senders have written. Rings that
    /// were accepted before and are not freed are not among them. Only the progress thread calls it.
    pub fn accept(&mut self, doorbell: &Doorbell) -> Vec<(usize, RingOwner)> {
        let (seen, mut new) = self.table.accept(self.memory.rings());
        // Relaxed: the progress thread alone reads and writes it.
        doorbell.seen.store(seen, Ordering::Relaxed);
        // A hostile sender can announce a ring again that is being read.
        new.retain(|&(index, _)| self.note_accepted(index));
        self.grow(doorbell.expected.load(Ordering::Relaxed) as usize);
        new
    }

    /// Marks a ring as accepted. False: it was accepted before.
    fn note_accepted(&mut self, index: usize) -> bool {
        let (word, bit) = (&mut self.accepted[index / 64], 1 << (index % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Creates rings when three quarters of them are accepted, when fewer exist than senders are expected, or when a
    /// sender has found none free (processes that died before they announced a ring leave claims), and a big buffer
    /// when a sender has requested one.
    fn grow(&mut self, expected: usize) {
        let accepted: u32 = self.accepted.iter().map(|word| word.count_ones()).sum();
        // Relaxed: the Acquire load of the doorbell came before, and the sender adds to the doorbell after the number.
        let wanted = self.table.front().rings_wanted.swap(0, Ordering::Relaxed) as usize;
        // A hostile sender can write any number: it causes more rings to be created once.
        let expected = expected.max(wanted.min(self.memory.rings()));
        loop {
            let rings = self.memory.rings();
            if rings >= RINGS || rings > expected && 4 * (accepted as usize) < 3 * rings {
                break;
            }
            // Each sender that finds no ring causes another try: logged once.
            let logged = cannot_add_rings(self.table.front(), rings);
            if let Err(e) = self.memory.add_rings(&self.identity, expected) {
                if !logged {
                    log::warn!(
                        "shared memory for more than {rings} peers cannot be allocated: {e}; further peers use tcp \
                         if they can"
                    );
                }
                break;
            }
        }
        if let Err(e) = self.memory.add_wanted_big_buf(&self.identity) {
            log::debug!("no further big buffer for long messages: {e}");
        }
    }

    /// The memory of a ring, mapped as long as the inbox exists.
    pub fn ring(&self, index: usize) -> RingParts {
        self.memory.ring(index)
    }

    /// The big buffers, one of which the ring's sender may take, mapped as long as the inbox exists.
    pub fn big_bufs(&self, ring: usize) -> Option<BigBufs> {
        self.memory.big_bufs(ring)
    }

    /// Frees a ring. Its sender is gone or has closed it; its consumer must be dropped.
    pub fn free(&mut self, index: usize) {
        self.memory.empty(index);
        self.accepted[index / 64] &= !(1 << (index % 64));
        self.table.unclaim(index);
    }

    /// Records that the worker progresses, at the time that `now` returns; 0: that it does not for a while.
    #[inline]
    pub fn note_progress(&self, now: impl FnOnce() -> u64) {
        let front = self.table.front();
        // Relaxed: a hint; pairs with the loads in `InboxHeader::progressed_at`.
        if front.is_watched.load(Ordering::Relaxed) != 0 {
            front.progressed_at.0.store(now(), Ordering::Relaxed);
        }
    }

    /// Enables senders to wake this worker: `fd` is the writing end of its wakeup pipe.
    pub fn enable_wake(&self, fd: u32) {
        let front = self.table.front();
        front.wake_fd.store(fd, Ordering::Relaxed);
        // Release: pairs with the Acquire load in `Outbox::open`.
        front.wakes.store(1, Ordering::Release);
    }

    /// The futex that senders which cannot open the pipe increment and wake. It exists as long as the inbox.
    #[cfg(not(loom))]
    pub fn bell(&self) -> NonNull<AtomicU32> {
        NonNull::from(&self.table.front().bell)
    }

    /// Requests that senders wake this worker. The caller then looks for messages once more before it sleeps: a message
    /// sent before its sender could see the request is in a ring by then.
    pub fn arm(&self) {
        self.table.front().arm();
    }

    /// Withdraws the request of [`arm`](Self::arm).
    pub fn disarm(&self) {
        self.table.front().armed.store(0, Ordering::Relaxed);
    }
}

impl Drop for Inbox {
    /// Marks the inbox as destroyed: peers do not open it any more and treat the worker as dead. Not in a forked child,
    /// which shares the memory.
    fn drop(&mut self) {
        if self.identity.id().pid == std::process::id() {
            // Relaxed: publishes no other memory.
            self.table.front().magic.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests;
