//! A worker's inbox: shared memory with a ring for every peer that talks to it.
//!
//! A sender claims a free ring by compare-and-swap, says who it is, and rings the doorbell; the
//! receiver has its rings mapped and needs no system call to begin reading. It makes further ones before they run out;
//! a sender that finds none left rings the doorbell as well, and tries again. A ring has memory only from its first use
//! on, and gives it back when its sender is gone. Because the rings are the receiver's, what was sent arrives even if
//! the sender exits right after.

use super::area::{AREAS, Areas};
use super::memory::{FIRST_RINGS, Own, PARTS, cannot_add_rings};
use super::ring::RingMem;
use super::{Locator, Sender};
use crate::sys::arch::OwnLine;
use crate::sys::lifeline::{self, Lifeline};
use crate::sys::segment::{PAGE, Segment, SegmentId};
use crate::sys::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crate::sys::{log, machine};
use std::io;
use std::ptr::NonNull;

/// Rings of an inbox: peers on one host that can talk to one worker at a time.
pub const RINGS: usize = if cfg!(loom) { 2 } else { 1024 };
// Every bit of `Front::ready` is a ring's: the bits come from strangers, the claims are found by them.
const _: () = assert!(RINGS % 64 == 0 || cfg!(loom));
const MAGIC: u64 = u64::from_le_bytes(*b"rucpbox9");

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const READY: u32 = 2;

/// First page of the segment.
#[repr(C, align(4096))]
pub(super) struct Front {
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
    /// How the parts that are made on request are found: 0 for those that are not made.
    pub(super) parts: [AtomicU32; PARTS],
    /// Counts the epochs of its senders ([`super::order`]). Each looks at it with each message.
    pub(super) epochs: OwnLine<AtomicU64>,
    /// Not 0: a sender looks at `progressed_at`.
    is_watched: AtomicU32,
    /// When the receiver progressed last, as far as it has noted that: monotonic nanoseconds. 0: it has given its core away.
    progressed_at: OwnLine<AtomicU64>,
}

impl Front {
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
struct Claim {
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

const CLAIMS_AT: usize = PAGE;
/// Where the rings begin, behind the claims.
pub(super) const RINGS_AT: usize = (CLAIMS_AT + RINGS * size_of::<Claim>()).next_multiple_of(PAGE);

const _: () =
    assert!(size_of::<Front>() == PAGE && RINGS_AT % PAGE == 0 && size_of::<RingMem>() % PAGE == 0);

/// The front page and the claims, wherever they are mapped. The memory is shared with processes
/// that are not trusted.
#[derive(Clone, Copy)]
pub(super) struct Table(NonNull<u8>);

impl Table {
    /// # Safety
    /// `base` is the front page and the claims, mapped, of an inbox that stay mapped while this is used.
    pub(super) unsafe fn new(base: NonNull<u8>) -> Self {
        Self(base)
    }

    pub(super) fn front(&self) -> &Front {
        // SAFETY: the constructor's promise; all fields are atomics.
        unsafe { &*self.0.as_ptr().cast::<Front>() }
    }

    fn claim_at(&self, index: usize) -> &Claim {
        // SAFETY: the constructor's promise; indices come from loops below RINGS.
        unsafe { &*self.0.as_ptr().add(CLAIMS_AT).cast::<Claim>().add(index) }
    }

    /// Whether this is the inbox that a locator with this key names.
    pub(super) fn is_inbox(&self, key: u64) -> bool {
        // Acquire: pairs with the Release store in `Inbox::create`.
        self.front().magic.load(Ordering::Acquire) == MAGIC
            && self.front().nonce.load(Ordering::Relaxed) == key >> 32
    }

    /// Takes a free ring for `sender`. The search starts at a place that depends on the sender,
    /// so that many peers starting together do not fight for the same entry.
    pub(super) fn claim(&self, sender: &Sender) -> Option<usize> {
        // Acquire: pairs with the Release stores in `Own`: the ring's part can be found.
        let rings = self.front().rings.load(Ordering::Acquire) as usize;
        let rings = rings.clamp(FIRST_RINGS, RINGS);
        let start = (sender.uid as usize).wrapping_mul(0x9E37_79B9) % FIRST_RINGS;
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

    /// A sender has found no free ring. True: the receiver was told, and may make more.
    pub(super) fn want_ring(&self) -> bool {
        let can_grow = self.can_grow();
        if can_grow {
            // Release: as in `announce`.
            self.front().doorbell.fetch_add(1, Ordering::Release);
        }
        can_grow
    }

    /// How many of so many rings are taken.
    fn taken(&self, rings: usize) -> usize {
        let is_taken = |&i: &usize| self.claim_at(i).state.load(Ordering::Relaxed) != FREE;
        (0..rings).filter(is_taken).count()
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

    /// What the doorbell counted, and the rings that became ready up to then (or a little later: they
    /// are not reported again). The bell first: a ring announced in between rings it once more.
    fn accept(&self) -> (u32, Vec<(usize, Sender)>) {
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
                new.extend(self.sender_of(index).map(|sender| (index, sender)));
            }
        }
        (seen, new)
    }

    fn sender_of(&self, index: usize) -> Option<Sender> {
        let claim = self.claim_at(index);
        // Acquire: pairs with the Release store in `announce`.
        if claim.state.load(Ordering::Acquire) != READY {
            return None;
        }
        let id = SegmentId {
            pid: claim.pid.load(Ordering::Relaxed),
            fd: claim.fd.load(Ordering::Relaxed),
            ino: claim.ino.load(Ordering::Relaxed),
        };
        let inbox = Locator {
            pid_ns: claim.pid_ns.load(Ordering::Relaxed),
            ipc_ns: claim.ipc_ns.load(Ordering::Relaxed),
            id,
            key: claim.key.load(Ordering::Relaxed),
            lifeline: claim.lifeline.load(Ordering::Relaxed),
        };
        Some(Sender {
            uid: claim.uid.load(Ordering::Relaxed),
            inbox,
        })
    }
}

/// What new senders ring.
pub struct Doorbell {
    /// Counts rings that became ready. In the inbox.
    rung: NonNull<AtomicU32>,
    /// Its value when the ready bits were last read.
    seen: AtomicU32,
    /// Senders that may come, as far as the receiver knows.
    expected: AtomicU32,
}

// SAFETY: atomics, of which one lies in memory that lives as long as the inbox.
unsafe impl Send for Doorbell {}
// SAFETY: as above.
unsafe impl Sync for Doorbell {}

impl Doorbell {
    /// The doorbell of a worker without an inbox.
    #[cfg(not(any(loom, tsan)))]
    pub fn silent() -> Self {
        static NEVER: AtomicU32 = AtomicU32::new(0);
        Self::of(&NEVER)
    }

    /// The doorbell of a worker without an inbox. The atomics of loom and of ThreadSanitizer cannot be static.
    #[cfg(any(loom, tsan))]
    pub fn silent() -> Self {
        Self::of(Box::leak(Box::new(AtomicU32::new(0))))
    }

    /// One sender more may come: rings are made by the receiver's next progress, before there are too few.
    pub fn expect_one(&self) {
        // Relaxed: the bell that makes progress look comes behind it.
        let expected = self.expected.fetch_add(1, Ordering::Relaxed) + 1;
        if expected >= FIRST_RINGS as u32 && expected.is_power_of_two() {
            // SAFETY: the inbox lives. Release: pairs with the Acquire load in `Table::accept`.
            unsafe { self.rung.as_ref() }.fetch_add(1, Ordering::Release);
        }
    }

    /// One that was expected does not come any more.
    pub fn expect_one_less(&self) {
        self.expected.fetch_sub(1, Ordering::Relaxed);
    }

    fn of(rung: &AtomicU32) -> Self {
        Self {
            rung: NonNull::from(rung),
            seen: AtomicU32::new(0),
            expected: AtomicU32::new(0),
        }
    }

    /// Whether a ring may have become ready. One load from shared memory.
    #[inline(always)]
    pub fn has_new_ring(&self) -> bool {
        // SAFETY: the inbox lives. Acquire: pairs with the Release add in `Table::announce`.
        // Relaxed: the progress thread alone reads and writes `seen`.
        let rung = unsafe { self.rung.as_ref() }.load(Ordering::Acquire);
        rung != self.seen.load(Ordering::Relaxed)
    }
}

/// The receiver's side.
pub struct Inbox {
    /// Says that the owner lives; the memory lies in it if it is neither blocks nor a file with a name.
    identity: Segment,
    memory: Own,
    key: u64,
    /// Says so in other PID namespaces, if it can be had.
    lifeline: Option<Lifeline>,
    table: Table,
}

impl Inbox {
    /// A new inbox. `named`: with a name in /dev/shm.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`, `ENOSPC`.
    pub fn create(named: bool) -> io::Result<Self> {
        let (memory, identity, number) = Own::create(named)?;
        let is_block = memory.is_block();
        let key = match is_block {
            true => (machine::random_u64() | 1 << 32) & !0xFFFF_FFFF | number,
            false => number,
        };
        let table = memory.table();
        table.front().nonce.store(key >> 32, Ordering::Relaxed);
        // Release: pairs with the Acquire load in `Table::is_inbox`.
        table.front().magic.store(MAGIC, Ordering::Release);
        Ok(Self {
            identity,
            memory,
            key,
            lifeline: is_block.then(|| Lifeline::hold(key).ok()).flatten(),
            table,
        })
    }

    /// Where peers find it.
    pub fn locator(&self) -> Locator {
        let here = machine::place();
        Locator {
            pid_ns: here.pid_ns,
            ipc_ns: match self.memory.is_named() {
                true => 0,
                false => here.ipc_ns,
            },
            id: self.identity.id(),
            key: self.key,
            lifeline: self.lifeline.as_ref().map_or(0, |_| lifeline::place()),
        }
    }

    /// The doorbell, which is used no longer than the inbox.
    pub fn doorbell(&self) -> Doorbell {
        Doorbell::of(&self.table.front().doorbell)
    }

    /// Rings that became ready since the last call, with what their senders say of themselves. Only the progress thread
    /// calls it.
    pub fn accept(&mut self, doorbell: &Doorbell) -> Vec<(usize, Sender)> {
        let (seen, mut new) = self.table.accept();
        // Relaxed: the progress thread alone reads and writes it.
        doorbell.seen.store(seen, Ordering::Relaxed);
        // Whoever maps the inbox can announce a ring that there is not.
        new.retain(|(index, _)| *index < self.memory.rings());
        self.grow(doorbell.expected.load(Ordering::Relaxed) as usize);
        new
    }

    /// Makes rings when three quarters of those that there are are taken, or fewer are there than senders are expected,
    /// and an area when a sender wants one.
    fn grow(&mut self, expected: usize) {
        loop {
            let rings = self.memory.rings();
            if rings >= RINGS || rings > expected && 4 * self.table.taken(rings) < 3 * rings {
                break;
            }
            // Each sender that finds no ring has it tried again: logged once.
            let logged = cannot_add_rings(self.table.front(), rings);
            if let Err(e) = self.memory.add_rings(&self.identity) {
                if !logged {
                    log::warn!(
                        "shared memory for more than {rings} peers cannot be had: {e}; further peers use tcp if they can"
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
    pub fn ring(&self, index: usize) -> NonNull<RingMem> {
        self.memory.ring(index)
    }

    /// The areas that the ring's sender may take one of, mapped as long as the inbox lives.
    pub fn areas(&self, ring: usize) -> Option<Areas> {
        self.memory.areas(ring)
    }

    /// Makes a ring free again. Its sender is gone or has closed it; its consumer must be dropped.
    pub fn free(&mut self, index: usize) {
        self.memory.empty(index);
        self.table.unclaim(index);
    }

    /// The worker progresses, at the time that `now` tells; or does not for a while, if that is 0.
    #[inline]
    pub fn note_progress(&self, now: impl FnOnce() -> u64) {
        let front = self.table.front();
        // Relaxed: as in `Front::progressed_at`.
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
