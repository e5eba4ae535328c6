//! What a worker waits for, written on its statistics page ([`crate::wire::waits`]), and what the walks that find it
//! remember of one another.

use super::stats::store_text;
use crate::sys::memfd::PAGE;
use crate::wire::stats::header;
use crate::wire::waits::{self as layout, WaitRow, block, row};
use std::collections::HashMap;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

/// A row of the block.
#[repr(C)]
struct RowCells {
    since: AtomicU64,
    tag: AtomicU64,
    bytes: AtomicU64,
    peer: AtomicU64,
    pid: AtomicU32,
    op: AtomicU8,
    cause: AtomicU8,
    _hole: u16,
    place: [AtomicU8; layout::PLACE_LEN],
}

/// The block on the page. The progress thread writes it; readers in other processes copy it at any time.
#[repr(C)]
pub struct WaitsBlock {
    sequence: AtomicU64,
    progressed: AtomicU64,
    quiet: AtomicU64,
    armed: AtomicU64,
    rows_used: AtomicU64,
    found: AtomicU64,
    unexpected_tag: AtomicU64,
    unexpected_since: AtomicU64,
    walked: AtomicU64,
    _hole: [u64; 7],
    rows: [RowCells; layout::ROWS],
}

const _: () = assert!(
    size_of::<WaitsBlock>() == layout::BLOCK_LEN
        && size_of::<RowCells>() == layout::ROW_LEN
        && header::WAITS + layout::BLOCK_LEN <= PAGE
        && offset_of!(WaitsBlock, sequence) == block::SEQUENCE
        && offset_of!(WaitsBlock, progressed) == block::PROGRESSED
        && offset_of!(WaitsBlock, quiet) == block::QUIET
        && offset_of!(WaitsBlock, armed) == block::ARMED
        && offset_of!(WaitsBlock, rows_used) == block::ROWS_USED
        && offset_of!(WaitsBlock, found) == block::FOUND
        && offset_of!(WaitsBlock, unexpected_tag) == block::UNEXPECTED_TAG
        && offset_of!(WaitsBlock, unexpected_since) == block::UNEXPECTED_SINCE
        && offset_of!(WaitsBlock, walked) == block::WALKED
        && offset_of!(WaitsBlock, rows) == layout::ROWS_AT
        && offset_of!(RowCells, since) == row::SINCE
        && offset_of!(RowCells, tag) == row::TAG
        && offset_of!(RowCells, bytes) == row::BYTES
        && offset_of!(RowCells, peer) == row::PEER
        && offset_of!(RowCells, pid) == row::PID
        && offset_of!(RowCells, op) == row::OPERATION
        && offset_of!(RowCells, cause) == row::CAUSE
        && offset_of!(RowCells, place) == row::PLACE
);

impl WaitsBlock {
    /// The worker progresses, at coarse milliseconds `now`, and is not armed any more.
    pub fn note_progress(&self, now: u64) {
        // Relaxed: each word is a value of its own.
        self.progressed.store(now, Ordering::Relaxed);
        self.armed.store(0, Ordering::Relaxed);
    }

    /// The worker is armed: it does not progress until it is woken.
    pub fn note_armed(&self, now: u64) {
        self.progressed.store(now, Ordering::Relaxed);
        self.armed.store(now, Ordering::Relaxed);
    }

    /// Replaces what a walk has found, at coarse milliseconds `now`.
    pub fn publish(&self, found: &FoundWaits, quiet: u64, now: u64) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence | 1, Ordering::Relaxed);
        // Release: the odd number comes before all that follows. A reader copies the page by a system call, once more
        // after the copy that it uses, and compares the numbers.
        fence(Ordering::Release);
        self.walked.store(now, Ordering::Relaxed);
        self.quiet.store(quiet, Ordering::Relaxed);
        self.found.store(found.total, Ordering::Relaxed);
        let (tag, since) = found.unexpected.unwrap_or_default();
        self.unexpected_tag.store(tag, Ordering::Relaxed);
        self.unexpected_since.store(since, Ordering::Relaxed);
        self.rows_used
            .store(found.rows.len() as u64, Ordering::Relaxed);
        for (cells, row) in self.rows.iter().zip(&found.rows) {
            cells.since.store(row.since, Ordering::Relaxed);
            cells.tag.store(row.tag, Ordering::Relaxed);
            cells.bytes.store(row.bytes, Ordering::Relaxed);
            cells.peer.store(row.peer, Ordering::Relaxed);
            cells.pid.store(row.pid, Ordering::Relaxed);
            cells.op.store(row.op as u8, Ordering::Relaxed);
            cells.cause.store(row.cause as u8, Ordering::Relaxed);
            store_text(&cells.place, &row.place);
        }
        // Release: what was written comes before the even number.
        self.sequence.store((sequence | 1) + 1, Ordering::Release);
    }
}

/// What a walk has found: the oldest operations that wait, oldest first, and the number of all.
#[derive(Debug, Default)]
pub struct FoundWaits {
    pub rows: Vec<WaitRow>,
    pub total: u64,
    /// Tag of the oldest message that no receive matches, and since when.
    pub unexpected: Option<(u64, u64)>,
}

impl FoundWaits {
    /// Adds an operation that waits since `since`; `row` describes it, if it is one of the oldest.
    pub fn add(&mut self, since: u64, row: impl FnOnce() -> WaitRow) {
        self.total += 1;
        let at = self.rows.partition_point(|other| other.since <= since);
        if at == layout::ROWS {
            return;
        }
        self.rows.truncate(layout::ROWS - 1);
        self.rows.insert(at, WaitRow { since, ..row() });
    }
}

/// Movement of one peer.
#[derive(Clone, Copy)]
struct Moved {
    /// Counts messages and bytes that were sent to it and received from it.
    count: u64,
    /// Since when the count is this one.
    since: u64,
}

/// What walks remember of the last one. The progress thread's.
#[derive(Default)]
pub struct WaitBook {
    /// When the last walk was, and when the next one is due, coarse milliseconds.
    pub last: u64,
    pub next: u64,
    /// Where the next walk begins among the ids of requests, and the buckets of posted receives, if these are very
    /// many.
    pub next_id: usize,
    pub next_bucket: usize,
    /// The peers for which something waits.
    peers: HashMap<u64, Moved>,
    /// Those of the walk that goes on.
    peers_now: HashMap<u64, Moved>,
    worker: Option<Moved>,
    /// The oldest unexpected message of the last walk: its number, and since when it is the oldest.
    unexpected: Option<(u64, u64)>,
}

impl WaitBook {
    /// Most peers whose movement is remembered.
    const PEERS: usize = 1024;

    /// Since when nothing has moved between the worker and a peer, whose count is `count`: at most since the walk that
    /// has seen something wait for it first.
    pub fn peer_quiet_since(&mut self, uid: u64, count: u64, now: u64) -> u64 {
        let before = self.peers.get(&uid).filter(|moved| moved.count == count);
        let since = before.map_or(now, |moved| moved.since);
        if self.peers_now.len() < Self::PEERS {
            self.peers_now.insert(uid, Moved { count, since });
        }
        since
    }

    /// Since when the worker has neither sent nor received, if it counts `count` messages.
    pub fn quiet_since(&mut self, count: u64, now: u64) -> u64 {
        let before = self.worker.filter(|moved| moved.count == count);
        let since = before.map_or(now, |moved| moved.since);
        self.worker = Some(Moved { count, since });
        since
    }

    /// Since when the message with this number is the oldest one that no receive matches.
    pub fn unexpected_since(&mut self, number: Option<u64>, now: u64) -> Option<u64> {
        let before = self.unexpected;
        self.unexpected = number.map(|number| match before {
            Some((old, since)) if old == number => (number, since),
            _ => (number, now),
        });
        self.unexpected.map(|(_, since)| since)
    }

    /// The walk is done.
    pub fn end_walk(&mut self) {
        self.peers = std::mem::take(&mut self.peers_now);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::wire::waits::{WaitCause, WaitOp};

    fn row(tag: u64) -> WaitRow {
        WaitRow {
            since: 0,
            op: WaitOp::TagRecv,
            cause: WaitCause::Unmatched,
            tag,
            bytes: 8,
            peer: 3,
            pid: 4,
            place: "10.0.0.1:5".into(),
        }
    }

    #[test]
    fn the_oldest_have_rows() {
        let mut found = FoundWaits::default();
        for tag in 0..3 * layout::ROWS as u64 {
            found.add(1000 - tag, || row(tag));
        }
        assert_eq!(found.total, 3 * layout::ROWS as u64);
        assert_eq!(found.rows.len(), layout::ROWS);
        assert!(found.rows.is_sorted_by_key(|row| row.since));
        assert_eq!(found.rows[0].tag, found.total - 1);
    }

    #[test]
    fn a_peer_is_quiet_until_its_count_changes() {
        let mut book = WaitBook::default();
        let mut walk = |count, now| {
            let since = book.peer_quiet_since(7, count, now);
            book.end_walk();
            since
        };
        assert_eq!((walk(1, 10), walk(1, 20), walk(2, 30)), (10, 10, 30));
        assert_eq!(walk(2, 40), 30);
    }

    #[test]
    fn a_peer_for_which_nothing_waited_begins_again() {
        let mut book = WaitBook::default();
        book.peer_quiet_since(7, 1, 10);
        book.end_walk();
        book.end_walk();
        assert_eq!(book.peer_quiet_since(7, 1, 30), 30);
    }
}
