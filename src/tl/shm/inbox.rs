//! A worker's inbox: shared memory with a ring for every peer that sends to it.
//!
//! A sender claims a free ring by compare-and-swap, writes its identity into the claim, and increments the doorbell;
//! the receiver has its rings mapped and needs no system call to start reading. The first messages of a ring lie beside
//! its claim, so that its sender maps no more of the inbox than it needs to claim a ring
//! ([`Start`](super::ring::Start)). The receiver creates further rings before they run out; a sender that finds none
//! left increments the doorbell as well, and tries again. A ring has memory only from its first use on, and frees it
//! when its sender is gone. Because the receiver owns the rings, what was sent arrives even if the sender exits right
//! after.

use super::big_buf::BigBufs;
use super::memory::{OwnInbox, cannot_add_rings};
use super::ring::RingParts;
use super::{InboxLocator, RingOwner};
use crate::sys::liveness_lock::{self, LivenessLock};
use crate::sys::memfd::Memfd;
#[cfg(not(loom))]
use crate::sys::sync::AtomicU32;
use crate::sys::sync::Ordering;
use crate::sys::{host, log, shared_heap};
use std::io;
#[cfg(not(loom))]
use std::ptr::NonNull;

mod doorbell;
mod table;

use table::MAGIC;

pub use doorbell::Doorbell;
pub(super) use table::{
    FRONT_LEN, InboxHeader, InboxTable, RingSearch, STARTS, entry_bytes, start_at,
};

/// Rings of an inbox: peers on one host that can send to one worker at a time.
pub const RINGS: usize = if cfg!(loom) { 2 } else { 1024 };
// Every bit of `InboxHeader::ready` has a ring: untrusted processes write the bits, which index the claims.
const _: () = assert!(RINGS % 64 == 0 || cfg!(loom));

/// The inbox of a worker, at the receiver.
pub struct Inbox {
    /// Shows that the owner is alive; also holds the memory if that is neither System V segments nor a named file.
    identity: Memfd,
    memory: OwnInbox,
    key: u64,
    /// The user that the memory belongs to.
    user: u32,
    /// Shows in other PID namespaces that the owner is alive, if the lock is available.
    liveness_lock: Option<LivenessLock>,
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
        let key = if is_block {
            (host::random_u64() | 1 << 32) & !0xFFFF_FFFF | number
        } else {
            number
        };
        let table = memory.table();
        table.front().nonce.store(key >> 32, Ordering::Relaxed);
        if let Some(directory) = shared_heap::directory_id() {
            table.front().heap.publish(directory);
        }
        // Release: pairs with the Acquire load in `InboxTable::is_inbox`.
        table.front().magic.store(MAGIC, Ordering::Release);
        Ok(Self {
            identity,
            memory,
            key,
            user: host::user(),
            liveness_lock: is_block.then(|| LivenessLock::hold(key).ok()).flatten(),
            table,
            accepted: [0; RINGS.div_ceil(64)],
        })
    }

    /// Where peers find the inbox.
    pub fn locator(&self) -> InboxLocator {
        let here = host::place();
        InboxLocator {
            pid_ns: here.pid_ns,
            ipc_ns: if self.memory.is_named() {
                0
            } else {
                here.ipc_ns
            },
            id: self.identity.id(),
            key: self.key,
            shm_place: match self.liveness_lock {
                Some(_) => liveness_lock::place(),
                None if self.memory.is_named() => liveness_lock::place(),
                None => 0,
            },
        }
    }

    /// The user that the inbox belongs to: that of the process when it was created.
    pub fn user(&self) -> u32 {
        self.user
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

    /// Number of epochs that senders have begun ([`order`](super::order)).
    #[inline(always)]
    pub fn epoch(&self) -> u64 {
        // Relaxed: whatever is read is as if the senders that began later had not sent yet.
        self.table.front().epochs.0.load(Ordering::Relaxed)
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

#[cfg(all(test, not(loom)))]
mod tests;
