//! A worker's inbox: one sparse piece of shared memory with a ring for every peer that talks to it.
//!
//! A sender claims a free ring by compare-and-swap, says who it is, and rings the doorbell; the
//! receiver has all of it mapped and needs no system call to begin reading. A ring has
//! memory only from its first use on, and gives it back when its sender is gone. Because the rings
//! are the receiver's, what was sent arrives even if the sender exits right after.

use super::area::{AREA, AREAS, Areas};
use super::ring::RingMem;
use super::{Kind, Locator, Sender};
use crate::sys::arch::OwnLine;
use crate::sys::lifeline::{self, Lifeline};
use crate::sys::machine;
use crate::sys::named::Named;
use crate::sys::segment::{Mapping, PAGE, Segment, SegmentId};
use crate::sys::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crate::sys::sysv::Block;
use std::io;
use std::ptr::NonNull;

/// Rings of an inbox: peers on one host that can talk to one worker at a time.
pub const RINGS: usize = if cfg!(loom) { 2 } else { 1024 };
// Every bit of `Front::ready` is a ring's: the bits come from strangers, the claims are found by them.
const _: () = assert!(RINGS % 64 == 0 || cfg!(loom));
const MAGIC: u64 = u64::from_le_bytes(*b"rucpbox6");

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
    doorbell: AtomicU32,
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
    owners: [AtomicU32; AREAS],
    /// Counts the epochs of its senders ([`super::order`]). Each looks at it with each message.
    epochs: OwnLine<AtomicU64>,
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
const RINGS_AT: usize = (CLAIMS_AT + RINGS * size_of::<Claim>()).next_multiple_of(PAGE);
const AREAS_AT: usize = RINGS_AT + RINGS * size_of::<RingMem>();
/// Bytes of an inbox, nearly all of them untouched.
pub const INBOX_LEN: usize = AREAS_AT + AREAS * AREA;

const _: () =
    assert!(size_of::<Front>() == PAGE && RINGS_AT % PAGE == 0 && size_of::<RingMem>() % PAGE == 0);

/// Where ring `index` lies in the segment.
pub(super) fn ring_offset(index: usize) -> usize {
    RINGS_AT + index * size_of::<RingMem>()
}

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
        let start = (sender.uid as usize).wrapping_mul(0x9E37_79B9) % 64;
        let index = (0..RINGS).map(|i| (start + i) % RINGS).find(|&i| {
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

    /// Gives a ring back that is zero.
    pub(super) fn unclaim(&self, index: usize) {
        // Release: pairs with the Acquire exchange in `claim`; the zeroing comes before.
        self.claim_at(index).state.store(FREE, Ordering::Release);
    }

    /// Makes a claimed ring known to the receiver.
    pub(super) fn announce(&self, index: usize) {
        // Release: pairs with the Acquire load in `accept`; the fields come before.
        self.claim_at(index).state.store(READY, Ordering::Release);
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

/// The memory of an inbox, in its owner or in a peer.
pub(super) enum Memory {
    /// The usual case.
    Block(Block),
    /// For processes that share nothing but /dev/shm.
    Named(Named),
    /// Where System V memory cannot be had.
    Mapping(Mapping),
}

impl Memory {
    /// Maps a peer's inbox.
    pub(super) fn open(peer: Locator) -> io::Result<Self> {
        let memory = match peer.kind() {
            Kind::Block => Memory::Block(Block::attach(peer.key as u32, INBOX_LEN)?),
            Kind::Named => Memory::Named(Named::open(peer.key, INBOX_LEN)?),
            Kind::File => {
                let segment = Segment::open(peer.id, INBOX_LEN as u64)?;
                Memory::Mapping(segment.map(0, INBOX_LEN, None)?)
            }
        };
        if memory.table().is_inbox(peer.key) {
            Ok(memory)
        } else {
            Err(io::Error::new(io::ErrorKind::NotFound, "not that inbox"))
        }
    }

    fn base(&self) -> NonNull<u8> {
        match self {
            Memory::Block(block) => block.ptr(),
            Memory::Named(file) => file.ptr(),
            Memory::Mapping(map) => map.start(),
        }
    }

    /// Front page and claims; not to be used after `self`.
    pub(super) fn table(&self) -> Table {
        // SAFETY: INBOX_LEN bytes are mapped; users keep `self` beside it.
        unsafe { Table::new(self.base()) }
    }

    /// Makes sure that a ring has memory behind it, where that is not certain.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub(super) fn reserve(&self, index: usize) -> io::Result<()> {
        match self {
            Memory::Named(file) => file.reserve(ring_offset(index), size_of::<RingMem>()),
            Memory::Block(_) | Memory::Mapping(_) => Ok(()),
        }
    }

    /// A ring; not to be used after `self`.
    pub(super) fn ring(&self, index: usize) -> NonNull<RingMem> {
        assert!(index < RINGS);
        // SAFETY: inside of INBOX_LEN.
        unsafe { self.base().add(ring_offset(index)).cast() }
    }

    /// The counter of the senders' epochs; not to be used after `self`.
    pub(super) fn epochs(&self) -> NonNull<AtomicU64> {
        NonNull::from(&self.table().front().epochs.0)
    }

    /// The areas, as a ring's ends see them; not to be used after `self`. None where memory has to be reserved: nobody
    /// could do without once a message lies there.
    pub(super) fn areas(&self, ring: usize) -> Option<Areas> {
        if matches!(self, Memory::Named(_)) {
            return None;
        }
        let owners = NonNull::from(&self.table().front().owners).cast();
        // SAFETY: inside of INBOX_LEN.
        Some(unsafe { Areas::new(owners, self.base().add(AREAS_AT), ring) })
    }

    /// Frees what a ring's sender wrote, in the memory of an inbox whose owner is gone: it stays as long as anybody has it
    /// mapped.
    pub(super) fn forsake(&self, ring: usize) {
        // SAFETY: inside of INBOX_LEN; nobody reads it any more.
        self.empty(ring, |at, len| unsafe {
            libc::madvise(self.base().add(at).as_ptr().cast(), len, libc::MADV_REMOVE);
        });
    }

    /// Gives back a ring's areas, and frees by `discard` what was written there and in the ring: an offset and a length.
    fn empty(&self, ring: usize, discard: impl Fn(usize, usize)) {
        if let Some(areas) = self.areas(ring) {
            areas.release(|offset| discard(AREAS_AT + offset, AREA));
        }
        discard(ring_offset(ring), size_of::<RingMem>());
    }

    /// Frees a part of it, which is zero afterwards.
    fn discard(&self, at: usize, len: usize) {
        match self {
            Memory::Block(block) => block.discard(at, len),
            Memory::Named(named) => named.discard(at, len),
            Memory::Mapping(map) => map.discard(at, len),
        }
    }
}

/// What new senders ring.
pub struct Doorbell {
    /// Counts rings that became ready. In the inbox.
    rung: NonNull<AtomicU32>,
    /// Its value when the ready bits were last read.
    seen: AtomicU32,
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

    fn of(rung: &AtomicU32) -> Self {
        Self {
            rung: NonNull::from(rung),
            seen: AtomicU32::new(0),
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
    /// Says that the owner lives; holds the memory if it is not a block.
    identity: Segment,
    memory: Memory,
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
        if named {
            let file = Named::create(INBOX_LEN)?;
            file.reserve(0, RINGS_AT)?;
            let key = file.key();
            return Ok(Self::with(Segment::create(PAGE)?, Memory::Named(file), key));
        }
        if let Ok(block) = Block::create(INBOX_LEN, None) {
            let nonce = machine::random_u64() | 1 << 32;
            let key = nonce & !0xFFFF_FFFF | u64::from(block.number());
            let mut inbox = Self::with(Segment::create(PAGE)?, Memory::Block(block), key);
            inbox.lifeline = Lifeline::hold(key).ok();
            return Ok(inbox);
        }
        let segment = Segment::create(INBOX_LEN)?;
        let map = segment.map(0, INBOX_LEN, None)?;
        Ok(Self::with(segment, Memory::Mapping(map), 0))
    }

    fn with(identity: Segment, memory: Memory, key: u64) -> Self {
        let table = memory.table();
        table.front().nonce.store(key >> 32, Ordering::Relaxed);
        // Release: pairs with the Acquire load in `Table::is_inbox`.
        table.front().magic.store(MAGIC, Ordering::Release);
        Self {
            identity,
            memory,
            key,
            lifeline: None,
            table,
        }
    }

    /// Where peers find it.
    pub fn locator(&self) -> Locator {
        let here = machine::place();
        Locator {
            pid_ns: here.pid_ns,
            ipc_ns: match self.memory {
                Memory::Named(_) => 0,
                Memory::Block(_) | Memory::Mapping(_) => here.ipc_ns,
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
        let (seen, new) = self.table.accept();
        // Relaxed: the progress thread alone reads and writes it.
        doorbell.seen.store(seen, Ordering::Relaxed);
        new
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
        let memory = &self.memory;
        memory.empty(index, |at, len| memory.discard(at, len));
        self.table.unclaim(index);
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
