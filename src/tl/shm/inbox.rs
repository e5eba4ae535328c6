//! A worker's inbox: shared memory with a ring for every peer that talks to it.
//!
//! A sender claims a free ring by compare-and-swap, writes its identity beside it, and rings the doorbell; the receiver
//! has its rings mapped and needs no system call to begin reading. The first messages of a ring lie beside its claim,
//! so that its sender needs no more of the inbox than what is mapped to claim a ring ([`Start`]). The receiver makes
//! further rings before they run out; a sender that finds none left rings the doorbell as well, and tries again. A ring
//! has memory only from its first use on, and gives it back when its sender is gone. Because the rings are the
//! receiver's, what was sent arrives even if the sender exits right after.

use super::big_buf::{AREAS, BigBufs};
use super::memory::{FIRST_RINGS, OwnInbox, PARTS, cannot_add_rings};
use super::ring::{RingParts, Start};
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

/// Rings of an inbox: peers on one host that can talk to one worker at a time.
pub const RINGS: usize = if cfg!(loom) { 2 } else { 1024 };
// Every bit of `InboxHeader::ready` is a ring's: the bits come from strangers, the claims are found by them.
const _: () = assert!(RINGS % 64 == 0 || cfg!(loom));
const MAGIC: u64 = u64::from_le_bytes(*b"rucpbox9");

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const READY: u32 = 2;

/// First page of the segment.
#[repr(C, align(4096))]
pub(super) struct InboxHeader {
    pub(super) magic: AtomicU64,
    /// High half of the locator's key: a number that was given to another segment is noticed.
    nonce: AtomicU64,
    /// Counts rings that became ready.
    pub(super) doorbell: AtomicU32,
    /// Not 0: the receiver may sleep; senders look at `armed` after each message.
    pub(super) wakes: AtomicU32,
    /// 1: the receiver sleeps or is about to; whoever resets it writes to the pipe.
    armed: AtomicU32,
    /// The receiver's descriptor of the writing end of its wake-up pipe.
    pub(super) wake_fd: AtomicU32,
    /// Counts wakeups by senders that cannot write to the pipe. A futex.
    pub(super) bell: AtomicU32,
    /// One bit per ring: ready and not yet seen by the receiver.
    ready: [AtomicU64; RINGS.div_ceil(64)],
    /// Whose the areas are.
    pub(super) owners: [AtomicU32; AREAS],
    /// Rings that there are; more are made before they run out.
    pub(super) rings: AtomicU32,
    /// What a sender wants that has found no area that is free: an `AreaRequest`.
    pub(super) wants_area: AtomicU32,
    /// How the parts are found: 0 for those that are not made.
    pub(super) parts: [AtomicU32; PARTS],
    /// How many rings there were when a sender found none of them free: more are to be made.
    wants_ring: AtomicU32,
    /// Counts the senders that have looked for a free ring: where the next one begins to look.
    next: AtomicU32,
    /// Counts the epochs of its senders ([`super::order`]). Each looks at it with each message.
    pub(super) epochs: OwnLine<AtomicU64>,
    /// Not 0: a sender looks at `progressed_at`.
    is_watched: AtomicU32,
    /// When the receiver progressed last, as far as it has noted that: monotonic nanoseconds. 0: it has given its core
    /// away.
    progressed_at: OwnLine<AtomicU64>,
}

impl InboxHeader {
    /// Asks senders to wake the receiver. It then looks for messages once more before it sleeps: one
    /// sent before a sender could see this is in a ring by then.
    fn arm(&self) {
        // SeqCst: the store comes before the caller's look at the rings, as the sender's message
        // comes before its look at `armed` (`must_wake`): one of the two sees the other.
        self.armed.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// When the receiver progressed last, in monotonic nanoseconds; 0: it has not noted it.
    pub(super) fn progressed_at(&self) -> u64 {
        // Relaxed, here and where the two are written: a hint, nothing is published by it.
        if self.is_watched.load(Ordering::Relaxed) == 0 {
            self.is_watched.store(1, Ordering::Relaxed);
        }
        self.progressed_at.0.load(Ordering::Relaxed)
    }

    /// Whether the caller, who has just sent something, is the one to wake the receiver.
    pub(super) fn must_wake(&self) -> bool {
        // SeqCst: pairs with `arm`.
        fence(Ordering::SeqCst);
        self.armed.load(Ordering::Relaxed) == 1 && self.armed.swap(0, Ordering::AcqRel) == 1
    }
}

/// Who has a ring. Plain fields are written between CLAIMED and READY by the claimant alone.
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
    lifeline: AtomicU32,
}

/// A ring's claim, and its start.
#[repr(C)]
struct Entry {
    claim: RingClaim,
    start: Start,
}

/// Rings that have an entry. Each sender maps all entries, and that costs address space, 512 KiB; the start of a ring
/// without an entry is in its body, which is mapped with its first message.
pub(super) const STARTS: usize = if cfg!(loom) { RINGS } else { 256 };
const ENTRIES_AT: usize = PAGE;
/// The claims of the other rings.
const CLAIMS_AT: usize = ENTRIES_AT + STARTS * size_of::<Entry>();
/// Bytes of front page, entries and claims.
pub(super) const FRONT_LEN: usize =
    (CLAIMS_AT + (RINGS - STARTS) * size_of::<RingClaim>()).next_multiple_of(PAGE);

const _: () = assert!(size_of::<InboxHeader>() == PAGE);
// The number of slots of a start is such that an entry fills its share of a page.
const _: () = assert!(size_of::<Entry>() == 2048 || cfg!(loom));

/// Where the entry of a ring lies in the front, or the claim of a ring without one. The claims follow the entries.
fn entry_at(ring: usize) -> usize {
    match ring < STARTS {
        true => ENTRIES_AT + ring * size_of::<Entry>(),
        false => CLAIMS_AT + (ring - STARTS) * size_of::<RingClaim>(),
    }
}

/// Where the start of a ring lies in the front, if it has an entry.
pub(super) fn start_at(ring: usize) -> Option<usize> {
    (ring < STARTS).then(|| entry_at(ring) + std::mem::offset_of!(Entry, start))
}

/// The entries and claims of these rings in the front.
pub(super) fn entry_bytes(rings: Range<usize>) -> Range<usize> {
    entry_at(rings.start)..entry_at(rings.end)
}

/// The front page, the entries and the claims, wherever they are mapped. The memory is shared with processes
/// that are not trusted.
#[derive(Clone, Copy)]
pub(super) struct InboxTable(NonNull<u8>);

impl InboxTable {
    /// # Safety
    /// `base` is the front of an inbox, mapped as long as this is used.
    pub(super) unsafe fn new(base: NonNull<u8>) -> Self {
        Self(base)
    }

    pub(super) fn front(&self) -> &InboxHeader {
        // SAFETY: the constructor's promise; all fields are atomics.
        unsafe { &*self.0.as_ptr().cast::<InboxHeader>() }
    }

    fn claim_at(&self, index: usize) -> &RingClaim {
        assert!(index < RINGS);
        // SAFETY: the constructor's promise; an entry begins with its claim.
        unsafe { self.0.add(entry_at(index)).cast().as_ref() }
    }

    /// The start of a ring that has an entry.
    pub(super) fn start(&self, index: usize) -> Option<NonNull<Start>> {
        // SAFETY: the constructor's promise.
        start_at(index).map(|at| unsafe { self.0.add(at).cast() })
    }

    /// Whether this is the inbox that a locator with this key names.
    pub(super) fn is_inbox(&self, key: u64) -> bool {
        // Acquire: pairs with the Release store in `Inbox::create`.
        self.front().magic.load(Ordering::Acquire) == MAGIC
            && self.front().nonce.load(Ordering::Relaxed) == key >> 32
    }

    /// Takes a free ring for `sender`. Each search starts behind the one before, so that many senders that come
    /// together find one at once.
    pub(super) fn claim(&self, sender: &RingOwner) -> Option<usize> {
        // Acquire: pairs with the Release stores in `OwnInbox`: the ring's part can be found.
        let rings = self.front().rings.load(Ordering::Acquire) as usize;
        let rings = rings.clamp(FIRST_RINGS, RINGS);
        // Relaxed: a hint.
        let start = self.front().next.fetch_add(1, Ordering::Relaxed) as usize;
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
        let lifeline = sender.inbox.lifeline;
        claim.lifeline.store(lifeline, Ordering::Relaxed);
        Some(index)
    }

    /// Whether rings can be made beside those that there are.
    fn can_grow(&self) -> bool {
        (self.front().rings.load(Ordering::Relaxed) as usize) < RINGS
    }

    /// A sender has found no free ring, and there were so many at least. True: the receiver is signaled, and may make
    /// more.
    pub(super) fn want_ring(&self, rings: u32) -> bool {
        let can_grow = self.can_grow();
        if can_grow {
            // Relaxed, and Release: the number comes before the bell, as in `announce`.
            self.front().wants_ring.fetch_max(rings, Ordering::Relaxed);
            self.front().doorbell.fetch_add(1, Ordering::Release);
        }
        can_grow
    }

    /// Gives a ring back that is zero.
    pub(super) fn unclaim(&self, index: usize) {
        // Release: pairs with the Acquire exchange in `claim`; the zeroing comes before.
        self.claim_at(index).state.store(FREE, Ordering::Release);
    }

    /// Makes a claimed ring known to the receiver.
    pub(super) fn announce(&self, index: usize) {
        // Release: pairs with the Acquire load in `accept`; the fields come before.
        self.claim_at(index).state.store(READY, Ordering::Release);
        self.announce_again(index);
    }

    /// Makes a ring known to the receiver that was announced before, as only a broken or hostile sender would.
    pub(super) fn announce_again(&self, index: usize) {
        // Release: pairs with the Acquire swap in `accept`.
        self.front().ready[index / 64].fetch_or(1 << (index % 64), Ordering::Release);
        // Release: pairs with the Acquire load in `Doorbell::has_new_ring`; the bit comes before.
        self.front().doorbell.fetch_add(1, Ordering::Release);
    }

    /// What the doorbell counted, and those of so many rings that became ready up to then (or a little later: they
    /// are not reported again). The bell first: a ring announced in between rings it once more. The claims of rings
    /// that a hostile sender announces and that there are not, may lie where no memory is reserved.
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
            lifeline: claim.lifeline.load(Ordering::Relaxed),
        };
        Some(RingOwner {
            uid: claim.uid.load(Ordering::Relaxed),
            inbox,
        })
    }
}

/// The receiver's side.
pub struct Inbox {
    /// Says that the owner lives; the memory lies in it if it is neither blocks nor a file with a name.
    identity: Memfd,
    memory: OwnInbox,
    key: u64,
    /// Says so in other PID namespaces, if it can be had.
    lifeline: Option<LivenessLock>,
    table: InboxTable,
    /// One bit per ring: the receiver has accepted its sender and not freed it since.
    accepted: [u64; RINGS.div_ceil(64)],
}

impl Inbox {
    /// A new inbox. `named`: with a name in /dev/shm.
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
            lifeline: is_block.then(|| LivenessLock::hold(key).ok()).flatten(),
            table,
            accepted: [0; RINGS.div_ceil(64)],
        })
    }

    /// Where peers find it.
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
            lifeline: self.lifeline.as_ref().map_or(0, |_| liveness_lock::place()),
        }
    }

    /// The doorbell, which is used no longer than the inbox.
    pub fn doorbell(&self) -> Doorbell {
        Doorbell::of(&self.table.front().doorbell)
    }

    /// Rings that became ready since the last call, with what their senders say of themselves. None of them is among
    /// those that were accepted before and are not free. Only the progress thread calls it.
    pub fn accept(&mut self, doorbell: &Doorbell) -> Vec<(usize, RingOwner)> {
        let (seen, mut new) = self.table.accept(self.memory.rings());
        // Relaxed: the progress thread alone reads and writes it.
        doorbell.seen.store(seen, Ordering::Relaxed);
        // A hostile sender can announce a ring again that is being read.
        new.retain(|&(index, _)| self.note_accepted(index));
        self.grow(doorbell.expected.load(Ordering::Relaxed) as usize);
        new
    }

    /// False: it was accepted before.
    fn note_accepted(&mut self, index: usize) -> bool {
        let (word, bit) = (&mut self.accepted[index / 64], 1 << (index % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Makes rings when three quarters of them are accepted, fewer are there than senders are expected, or a sender
    /// found none free (claims can be left by processes that died before they announced them), and an area when a
    /// sender wants one.
    fn grow(&mut self, expected: usize) {
        let accepted: u32 = self.accepted.iter().map(|word| word.count_ones()).sum();
        // Relaxed: the bell that called us comes after the number.
        let wanted = self.table.front().wants_ring.swap(0, Ordering::Relaxed) as usize;
        // A hostile sender can write any number: more rings are made once.
        let expected = expected.max(wanted.min(self.memory.rings()));
        loop {
            let rings = self.memory.rings();
            if rings >= RINGS || rings > expected && 4 * (accepted as usize) < 3 * rings {
                break;
            }
            // Each sender that finds no ring has it tried again: logged once.
            let logged = cannot_add_rings(self.table.front(), rings);
            if let Err(e) = self.memory.add_rings(&self.identity) {
                if !logged {
                    log::warn!(
                        "shared memory for more than {rings} peers cannot be had: {e}; further peers use tcp \
                         if they can"
                    );
                }
                break;
            }
        }
        if let Err(e) = self.memory.add_wanted_area(&self.identity) {
            log::debug!("peers do without another area of shared memory for long messages: {e}");
        }
    }

    /// The memory of a ring, mapped as long as the inbox lives.
    pub fn ring(&self, index: usize) -> RingParts {
        self.memory.ring(index)
    }

    /// The areas that the ring's sender may take one of, mapped as long as the inbox lives.
    pub fn areas(&self, ring: usize) -> Option<BigBufs> {
        self.memory.areas(ring)
    }

    /// Makes a ring free again. Its sender is gone or has closed it; its consumer must be dropped.
    pub fn free(&mut self, index: usize) {
        self.memory.empty(index);
        self.accepted[index / 64] &= !(1 << (index % 64));
        self.table.unclaim(index);
    }

    /// The worker progresses, at the time that `now` tells; or does not for a while, if that is 0.
    #[inline]
    pub fn note_progress(&self, now: impl FnOnce() -> u64) {
        let front = self.table.front();
        // Relaxed: as in `InboxHeader::progressed_at`.
        if front.is_watched.load(Ordering::Relaxed) != 0 {
            front.progressed_at.0.store(now(), Ordering::Relaxed);
        }
    }

    /// Lets this worker's senders wake it: `fd` is the writing end of its pipe.
    pub fn enable_wake(&self, fd: u32) {
        let front = self.table.front();
        front.wake_fd.store(fd, Ordering::Relaxed);
        // Release: pairs with the Acquire load in `Outbox::open`.
        front.wakes.store(1, Ordering::Release);
    }

    /// What senders that cannot open the pipe change, and wake as a futex. It lives as long as the inbox.
    #[cfg(not(loom))]
    pub fn bell(&self) -> NonNull<AtomicU32> {
        NonNull::from(&self.table.front().bell)
    }

    /// Asks senders to wake this worker. The caller then looks for messages once more before it
    /// sleeps: one sent before a sender could see this is in a ring by then.
    pub fn arm(&self) {
        self.table.front().arm();
    }

    /// The opposite of [`arm`](Self::arm).
    pub fn disarm(&self) {
        self.table.front().armed.store(0, Ordering::Relaxed);
    }
}

impl Drop for Inbox {
    /// Marks the inbox: peers do not open it any more, and take the worker for gone. Not in a forked child, which has
    /// the same memory.
    fn drop(&mut self) {
        if self.identity.id().pid == std::process::id() {
            // Relaxed: nothing was published by it.
            self.table.front().magic.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests;
