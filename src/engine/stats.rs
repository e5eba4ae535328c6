//! The statistics of a worker, written where other processes can read them (`rucp_top`).
//!
//! Each counter has one writer at a time: the thread that holds the peer's lock for sending, the progress thread, or
//! the thread that holds the lock of the matcher or the pool. So an addition is a load and a store without a lock
//! prefix, and a reader is never more than one operation behind. Only remote accesses to mapped memory take no lock:
//! threads that share a peer can lose some of each other's counts.

use super::waits::WaitsBlock;
use crate::sys::memfd::PAGE;
use crate::sys::populate::{PageAccess, populate};
use crate::sys::ro_memfd::RoMemfd;
use crate::wire::stats::{self as layout, StatProtocol, entry, header};
use parking_lot::Mutex;
use std::fmt::{self, Display, Write};
use std::io;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Messages and bytes.
#[repr(C)]
#[derive(Debug, Default)]
pub struct TallyCell {
    messages: AtomicU64,
    bytes: AtomicU64,
}

impl TallyCell {
    /// Adds one message.
    #[inline(always)]
    pub fn add(&self, bytes: usize) {
        self.add_many(1, bytes as u64);
    }

    /// Messages so far.
    pub fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    /// Adds several.
    #[inline(always)]
    pub fn add_many(&self, messages: u64, bytes: u64) {
        bump(&self.messages, messages);
        bump(&self.bytes, bytes);
    }
}

/// Relaxed: a reader needs only some recent value of each counter.
#[inline(always)]
fn bump(counter: &AtomicU64, by: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(by),
        Ordering::Relaxed,
    );
}

/// First page.
#[repr(C, align(4096))]
pub struct WorkerEntry {
    magic: AtomicU64,
    version: AtomicU32,
    pid: AtomicU32,
    uid: AtomicU64,
    entries_used: AtomicU32,
    thread_mode: AtomicU32,
    unexpected: AtomicU64,
    unexpected_total: AtomicU64,
    /// The pool's own count.
    requests: AtomicU64,
    _hole: [u8; header::NAME - 56],
    name: [AtomicU8; layout::NAME_LEN],
    context: [AtomicU8; layout::NAME_LEN],
    waits: WaitsBlock,
}

/// An entry.
#[repr(C, align(256))]
pub struct PeerEntry {
    state: AtomicU32,
    pid: AtomicU32,
    uid: AtomicU64,
    endpoints: AtomicU32,
    pending: AtomicU32,
    /// By the progressing thread.
    pub received: TallyCell,
    lanes: [[AtomicU8; layout::LANE_LEN]; 2],
    _hole: u64,
    tallies: [TallyCell; StatProtocol::ALL.len()],
}

const _: () = assert!(
    size_of::<WorkerEntry>() == layout::HEADER_LEN
        && size_of::<PeerEntry>() == layout::ENTRY_LEN
        && offset_of!(WorkerEntry, pid) == header::PID
        && offset_of!(WorkerEntry, uid) == header::UID
        && offset_of!(WorkerEntry, entries_used) == header::ENTRIES_USED
        && offset_of!(WorkerEntry, thread_mode) == header::THREAD_MODE
        && offset_of!(WorkerEntry, unexpected) == header::UNEXPECTED
        && offset_of!(WorkerEntry, unexpected_total) == header::UNEXPECTED_TOTAL
        && offset_of!(WorkerEntry, requests) == header::REQUESTS
        && offset_of!(WorkerEntry, name) == header::NAME
        && offset_of!(WorkerEntry, context) == header::CONTEXT
        && offset_of!(WorkerEntry, waits) == header::WAITS
        && offset_of!(PeerEntry, pid) == entry::PID
        && offset_of!(PeerEntry, uid) == entry::UID
        && offset_of!(PeerEntry, endpoints) == entry::ENDPOINTS
        && offset_of!(PeerEntry, pending) == entry::PENDING
        && offset_of!(PeerEntry, received) == entry::RECEIVED
        && offset_of!(PeerEntry, lanes) == entry::LANES
        && offset_of!(PeerEntry, tallies) == entry::TALLIES
);

impl PeerEntry {
    /// The tally of a protocol.
    #[inline(always)]
    pub fn of(&self, protocol: StatProtocol) -> &TallyCell {
        &self.tallies[protocol as usize]
    }

    /// Messages in both directions, without accesses to mapped memory, modulo 2^64.
    pub fn traffic(&self) -> u64 {
        let mapped = [StatProtocol::RmaMapped, StatProtocol::AmoMapped];
        let sent = StatProtocol::ALL
            .into_iter()
            .filter(|p| !mapped.contains(p));
        sent.fold(self.received.messages(), |sum, protocol| {
            sum.wrapping_add(self.of(protocol).messages())
        })
    }

    /// Requests that wait for room.
    pub fn set_pending(&self, n: usize) {
        self.pending.store(n as u32, Ordering::Relaxed);
    }

    /// Endpoints to the peer.
    pub fn set_endpoints(&self, n: usize) {
        self.endpoints.store(n as u32, Ordering::Relaxed);
    }

    /// Names of the lanes for messages and for copies.
    pub fn set_lanes(&self, messages: impl Display, copies: impl Display) {
        store_text(&self.lanes[0], messages);
        store_text(&self.lanes[1], copies);
    }

    /// The peer has failed: nothing more is counted.
    pub fn set_failed(&self) {
        self.state.store(layout::FAILED, Ordering::Relaxed);
    }
}

/// The page of a worker.
pub struct StatsPage {
    page: RoMemfd,
    /// Held by a thread that takes an entry for a peer.
    pub claims: Mutex<()>,
}

impl StatsPage {
    /// A page on which nothing is counted yet. `visible`: for other processes.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(uid: u64, visible: bool) -> io::Result<Self> {
        let stats = Self {
            page: RoMemfd::create(layout::PAGE_LEN, visible)?,
            claims: Mutex::new(()),
        };
        let head = stats.worker();
        head.version.store(layout::VERSION, Ordering::Relaxed);
        head.pid.store(std::process::id(), Ordering::Relaxed);
        head.uid.store(uid, Ordering::Relaxed);
        head.entries_used.store(1, Ordering::Relaxed);
        // Release: pairs with the reader's Acquire load of the magic; publishes the header.
        head.magic.store(layout::MAGIC, Ordering::Release);
        Ok(stats)
    }

    /// Stores the program's names of the worker and its context.
    pub fn set_names(&self, worker: &str, context: &str, thread_mode: u32) {
        store_text(&self.worker().name, worker);
        store_text(&self.worker().context, context);
        self.worker()
            .thread_mode
            .store(thread_mode, Ordering::Relaxed);
    }

    /// The header.
    #[inline(always)]
    pub fn worker(&self) -> &WorkerEntry {
        // SAFETY: the mapping begins with it, is aligned to a page, and all fields are atomics.
        unsafe { self.page.ptr().cast().as_ref() }
    }

    /// The entry of peers without an entry of their own.
    pub fn overflow_entry(&self) -> NonNull<PeerEntry> {
        self.entry(0)
    }

    /// An entry for a peer; when all are taken, the overflow entry. Valid as long as this page.
    pub fn claim(&self, uid: u64, pid: u32) -> NonNull<PeerEntry> {
        let used = &self.worker().entries_used;
        // Relaxed: the entry is published by its state.
        let claimed = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
            (n < layout::ENTRIES as u32).then_some(n + 1)
        });
        self.populate(claimed.unwrap_or(0) as usize);
        let place = self.entry(claimed.unwrap_or(0) as usize);
        // SAFETY: inside of the mapping, which lives as long as `self`.
        let entry = unsafe { place.as_ref() };
        if claimed.is_ok() {
            entry.uid.store(uid, Ordering::Relaxed);
            entry.pid.store(pid, Ordering::Relaxed);
        }
        // Release: pairs with the reader's Acquire load of the state; publishes the entry.
        entry.state.store(layout::CONNECTED, Ordering::Release);
        place
    }

    /// Populates pages of entries in front of this one, as many as there are already, where the number of these is a
    /// power of two: the entries of many peers then cost few page faults.
    fn populate(&self, index: usize) {
        const PER_PAGE: usize = PAGE / layout::ENTRY_LEN;
        let pages = index / PER_PAGE;
        if index % PER_PAGE == 0 && pages > 1 && pages.is_power_of_two() {
            let len = (layout::ENTRIES - index).min(index) * layout::ENTRY_LEN;
            // SAFETY: entries of the mapping, which lives as long as `self`.
            unsafe { populate(self.entry(index).as_ptr().cast(), len, PageAccess::Write) };
        }
    }

    /// Operations of the worker that need peers or the kernel. Accesses to mapped memory are not counted: a loop of
    /// them may only wait.
    pub fn operations(&self) -> u64 {
        let mapped = [StatProtocol::RmaMapped, StatProtocol::AmoMapped];
        let others = StatProtocol::ALL
            .into_iter()
            .filter(|p| !mapped.contains(p));
        others.fold(0, |sum, protocol| sum.wrapping_add(self.messages(protocol)))
    }

    /// Messages that the worker has sent to its peers and received from them, without accesses to mapped memory, modulo
    /// 2^64. Reads the entries of all peers.
    pub fn traffic(&self) -> u64 {
        let used = self.worker().entries_used.load(Ordering::Relaxed) as usize;
        let entries = (0..used.min(layout::ENTRIES)).map(|i| {
            // SAFETY: inside of the mapping, which lives as long as `self`.
            unsafe { self.entry(i).as_ref() }
        });
        entries.fold(0, |sum: u64, entry| sum.wrapping_add(entry.traffic()))
    }

    /// Atomic operations of the worker.
    pub fn atomics(&self) -> u64 {
        let mapped = self.messages(StatProtocol::AmoMapped);
        mapped.wrapping_add(self.messages(StatProtocol::AmoMessages))
    }

    /// Operations by a protocol, to the first peers (a sum over many thousands would take long).
    fn messages(&self, protocol: StatProtocol) -> u64 {
        const PEERS: usize = 32;
        let used = self.worker().entries_used.load(Ordering::Relaxed) as usize;
        let entries = (0..used.min(PEERS)).map(|i| {
            // SAFETY: inside of the mapping, which lives as long as `self`.
            unsafe { self.entry(i).as_ref() }
        });
        entries.fold(0, |sum: u64, entry| {
            sum.wrapping_add(entry.of(protocol).messages())
        })
    }

    fn entry(&self, index: usize) -> NonNull<PeerEntry> {
        debug_assert!(index < layout::ENTRIES);
        // SAFETY: inside of the mapping.
        unsafe {
            let first = self.page.ptr().add(layout::HEADER_LEN).cast::<PeerEntry>();
            first.add(index)
        }
    }
}

impl WorkerEntry {
    /// Messages that wait for a receive. Called under the matcher's lock.
    pub fn set_unexpected(&self, n: usize) {
        self.unexpected.store(n as u64, Ordering::Relaxed);
    }

    /// Messages that have had to wait, ever.
    pub fn unexpected_total(&self) -> u64 {
        self.unexpected_total.load(Ordering::Relaxed)
    }

    /// Counts one more message that waits. Called under the matcher's lock.
    pub fn note_unexpected(&self, n: usize) {
        bump(&self.unexpected_total, 1);
        self.set_unexpected(n);
    }

    /// What the worker waits for.
    pub fn waits(&self) -> &WaitsBlock {
        &self.waits
    }

    /// Where the pool of requests counts those in use.
    pub fn requests(&self) -> &AtomicU64 {
        &self.requests
    }
}

/// Text in a page that other processes read at any time.
struct AtomicText<'a> {
    room: std::slice::Iter<'a, AtomicU8>,
}

impl fmt::Write for AtomicText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for (byte, place) in text.bytes().zip(&mut self.room) {
            place.store(byte, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Stores as much of the text as there is room for, and zeros behind it, at least one.
pub(super) fn store_text(place: &[AtomicU8], text: impl Display) {
    let Some((last, room)) = place.split_last() else {
        return;
    };
    let mut out = AtomicText { room: room.iter() };
    // Writing to the page cannot fail.
    let _ = write!(out, "{text}");
    for rest in out.room {
        rest.store(0, Ordering::Relaxed);
    }
    last.store(0, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::ro_memfd;
    use crate::wire::stats::{StatLane, decode};

    fn read_back(uid: u64) -> layout::WorkerStats {
        let pages = ro_memfd::of_process(std::process::id());
        let copies = pages
            .iter()
            .filter_map(|path| ro_memfd::read(path, layout::PAGE_LEN).ok());
        copies
            .filter_map(|copy| decode(&copy).ok())
            .find(|stats| stats.uid == uid)
            .expect("the page of this test")
    }

    #[test]
    fn counted_values_are_read() {
        let stats = StatsPage::new(0x5151, true).unwrap();
        stats.set_names("a worker", "a context", 2);
        let place = stats.claim(9, 77);
        // SAFETY: the page lives.
        let peer = unsafe { place.as_ref() };
        peer.set_lanes("posix/memory", "cma/memory");
        peer.of(StatProtocol::Short).add(8);
        peer.of(StatProtocol::Short).add(4);
        peer.of(StatProtocol::RndvCopy).add(1 << 20);
        peer.received.add_many(3, 30);
        peer.set_pending(5);
        peer.set_endpoints(2);
        stats.worker().note_unexpected(1);
        stats.worker().note_unexpected(2);
        stats.worker().set_unexpected(0);
        let read = read_back(0x5151);
        assert_eq!(
            (read.name.as_str(), read.context.as_str()),
            ("a worker", "a context")
        );
        assert_eq!((read.unexpected, read.unexpected_total), (0, 2));
        assert_eq!((read.pid, read.peers.len()), (std::process::id(), 1));
        let peer = &read.peers[0];
        assert_eq!(
            (peer.uid, peer.pid, peer.pending, peer.endpoints),
            (9, 77, 5, 2)
        );
        assert_eq!(
            peer.sent[0],
            layout::MsgBytes {
                messages: 2,
                bytes: 12
            }
        );
        assert_eq!(
            peer.received,
            layout::MsgBytes {
                messages: 3,
                bytes: 30
            }
        );
        assert_eq!(peer.lane(StatProtocol::RndvCopy.carrier()), "cma/memory");
        assert_eq!(peer.lane(StatLane::Messages), "posix/memory");
    }

    #[test]
    fn peers_beyond_the_last_entry_share_one() {
        let stats = StatsPage::new(0x5252, true).unwrap();
        for peer in 1..layout::ENTRIES as u64 {
            assert_ne!(stats.claim(peer, 1), stats.overflow_entry());
        }
        assert_eq!(stats.claim(1 << 40, 1), stats.overflow_entry());
        let read = read_back(0x5252);
        assert_eq!(read.peers.len(), layout::ENTRIES);
        assert!(read.peers[0].is_rest && read.peers[0].uid == 0);
    }
}
