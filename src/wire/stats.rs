//! The statistics page of a worker: its layout, and how a copy of it is read.
//!
//! A header, then an entry for each peer, all of little-endian words. Entry 0 is for the peers that have no entry of
//! their own. The writer is `engine::stats`; readers (`rucp_top`) check everything.
#![forbid(unsafe_code)]

use super::waits::{self, WaitSnapshot};
use std::ops::Range;

/// First word of a page.
pub const MAGIC: u64 = u64::from_le_bytes(*b"rucpstat");
/// Version of the layout.
pub const VERSION: u32 = 1;
/// Bytes in front of the entries.
pub const HEADER_LEN: usize = 4096;
/// Bytes of an entry.
pub const ENTRY_LEN: usize = 256;
/// Entries of a page, most of them never touched.
pub const ENTRIES: usize = 4096;
/// Bytes of a page.
pub const PAGE_LEN: usize = HEADER_LEN + ENTRIES * ENTRY_LEN;
/// Bytes of a name in the header.
pub const NAME_LEN: usize = 64;
/// Bytes of a lane's name.
pub const LANE_LEN: usize = 24;

/// Kind of lane that a protocol uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatLane {
    /// The lane that messages take: a ring or a connection.
    Messages,
    /// The lane that copies between two address spaces.
    Copy,
    /// Loads and stores on memory that is mapped here.
    Mapped,
}

/// A protocol, whose messages to the peer are counted separately. The discriminant is its index in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatProtocol {
    /// Inline in a slot of a ring, or in one short frame.
    Short,
    /// Copied through buffers, with the header.
    Eager,
    Stream,
    /// A rendezvous by `Data` messages, after an RTR.
    RndvMessages,
    /// A rendezvous whose receiver copies from the sender's memory.
    RndvCopy,
    /// Puts and gets that the peer executes.
    RmaMessages,
    RmaCopy,
    RmaMapped,
    AmoMessages,
    AmoMapped,
}

impl StatProtocol {
    /// In the order of their indices.
    pub const ALL: [StatProtocol; 10] = [
        StatProtocol::Short,
        StatProtocol::Eager,
        StatProtocol::Stream,
        StatProtocol::RndvMessages,
        StatProtocol::RndvCopy,
        StatProtocol::RmaMessages,
        StatProtocol::RmaCopy,
        StatProtocol::RmaMapped,
        StatProtocol::AmoMessages,
        StatProtocol::AmoMapped,
    ];

    /// Name of the protocol for users, whatever lane it uses.
    pub fn name(self) -> &'static str {
        match self {
            StatProtocol::Short => "short",
            StatProtocol::Eager => "eager",
            StatProtocol::Stream => "stream",
            StatProtocol::RndvMessages | StatProtocol::RndvCopy => "rendezvous",
            StatProtocol::RmaMessages | StatProtocol::RmaCopy | StatProtocol::RmaMapped => "rma",
            StatProtocol::AmoMessages | StatProtocol::AmoMapped => "amo",
        }
    }

    /// The kind of lane that it uses.
    pub fn carrier(self) -> StatLane {
        match self {
            StatProtocol::RndvCopy | StatProtocol::RmaCopy => StatLane::Copy,
            StatProtocol::RmaMapped | StatProtocol::AmoMapped => StatLane::Mapped,
            _ => StatLane::Messages,
        }
    }
}

/// Offsets in the header.
pub mod header {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 8;
    pub const PID: usize = 12;
    pub const UID: usize = 16;
    pub const ENTRIES_USED: usize = 24;
    pub const THREAD_MODE: usize = 28;
    pub const UNEXPECTED: usize = 32;
    pub const UNEXPECTED_TOTAL: usize = 40;
    pub const REQUESTS: usize = 48;
    pub const NAME: usize = 128;
    pub const CONTEXT: usize = 192;
    /// What the worker waits for ([`crate::wire::waits`]).
    pub const WAITS: usize = 256;
}

/// Offsets in an entry.
pub mod entry {
    pub const STATE: usize = 0;
    pub const PID: usize = 4;
    pub const UID: usize = 8;
    pub const ENDPOINTS: usize = 16;
    pub const PENDING: usize = 20;
    pub const RECEIVED: usize = 24;
    pub const LANES: usize = 40;
    pub const TALLIES: usize = 96;
}

/// States of an entry.
pub const UNUSED: u32 = 0;
pub const CONNECTED: u32 = 1;
pub const FAILED: u32 = 2;

/// Messages and bytes since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MsgBytes {
    pub messages: u64,
    pub bytes: u64,
}

/// The worker's fields of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerStats {
    /// Process id in the worker's own PID namespace.
    pub pid: u32,
    pub uid: u64,
    /// Name that the program gave; empty if none.
    pub name: String,
    pub context: String,
    /// `ucs_thread_mode_t`.
    pub thread_mode: u32,
    /// Messages that wait for a receive.
    pub unexpected: u64,
    /// Messages that have ever waited.
    pub unexpected_total: u64,
    /// Requests that the program holds.
    pub requests: u64,
    /// What it waits for; `None`: its library does not say.
    pub waits: Option<WaitSnapshot>,
    pub peers: Vec<PeerStats>,
}

/// The fields of one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStats {
    /// The sum of all peers without an entry of their own.
    pub is_rest: bool,
    pub failed: bool,
    /// 0 if it is on another host.
    pub pid: u32,
    pub uid: u64,
    pub endpoints: u32,
    /// Requests that wait for room.
    pub pending: u32,
    /// Names of the lanes for messages and for copies.
    pub lanes: [String; 2],
    /// All messages that arrived from it, headers included.
    pub received: MsgBytes,
    /// By [`StatProtocol`].
    pub sent: [MsgBytes; StatProtocol::ALL.len()],
}

impl PeerStats {
    /// The name of the lane of a protocol.
    pub fn lane(&self, carrier: StatLane) -> &str {
        match carrier {
            StatLane::Messages => &self.lanes[0],
            StatLane::Copy => &self.lanes[1],
            StatLane::Mapped => "mapped",
        }
    }
}

/// Why a page is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// Shorter than its header.
    Short,
    /// No statistics page, or not finished.
    Foreign,
    /// Of a newer library.
    Version(u32),
}

/// Decodes a copy of a page. Entries beyond its end are left out; no value is trusted.
///
/// # Errors
/// Why it is no page.
pub fn decode(page: &[u8]) -> Result<WorkerStats, Unreadable> {
    let head = page.get(..HEADER_LEN).ok_or(Unreadable::Short)?;
    if u64_at(head, header::MAGIC) != MAGIC {
        return Err(Unreadable::Foreign);
    }
    match u32_at(head, header::VERSION) {
        VERSION => {}
        other => return Err(Unreadable::Version(other)),
    }
    let used = (u32_at(head, header::ENTRIES_USED) as usize).min(ENTRIES);
    let entries = page[HEADER_LEN..].chunks_exact(ENTRY_LEN).take(used);
    Ok(WorkerStats {
        pid: u32_at(head, header::PID),
        uid: u64_at(head, header::UID),
        name: text_at(head, header::NAME..header::NAME + NAME_LEN),
        context: text_at(head, header::CONTEXT..header::CONTEXT + NAME_LEN),
        thread_mode: u32_at(head, header::THREAD_MODE),
        unexpected: u64_at(head, header::UNEXPECTED),
        unexpected_total: u64_at(head, header::UNEXPECTED_TOTAL),
        requests: u64_at(head, header::REQUESTS),
        waits: waits::decode(&head[header::WAITS..]),
        peers: entries
            .enumerate()
            .filter_map(|(index, entry)| decode_peer(index, entry))
            .collect(),
    })
}

fn decode_peer(index: usize, bytes: &[u8]) -> Option<PeerStats> {
    let state = u32_at(bytes, entry::STATE);
    let lane = |n: usize| {
        let at = entry::LANES + n * LANE_LEN;
        text_at(bytes, at..at + LANE_LEN)
    };
    matches!(state, CONNECTED | FAILED).then(|| PeerStats {
        is_rest: index == 0,
        failed: state == FAILED,
        pid: u32_at(bytes, entry::PID),
        uid: u64_at(bytes, entry::UID),
        endpoints: u32_at(bytes, entry::ENDPOINTS),
        pending: u32_at(bytes, entry::PENDING),
        lanes: [lane(0), lane(1)],
        received: tally_at(bytes, entry::RECEIVED),
        sent: std::array::from_fn(|i| tally_at(bytes, entry::TALLIES + i * 16)),
    })
}

/// The word at an offset; 0 beyond the end, which callers rule out.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
    word.map_or(0, |word| u64::from_le_bytes(*word))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
    word.map_or(0, |word| u32::from_le_bytes(*word))
}

fn tally_at(bytes: &[u8], at: usize) -> MsgBytes {
    MsgBytes {
        messages: u64_at(bytes, at),
        bytes: u64_at(bytes, at + 8),
    }
}

/// Text up to the first zero. Control characters of terminals are replaced.
pub(super) fn text_at(bytes: &[u8], range: Range<usize>) -> String {
    let bytes = bytes.get(range).unwrap_or_default();
    let text = bytes.split(|&b| b == 0).next().unwrap_or_default();
    let shown = |c: char| if c.is_control() { '?' } else { c };
    String::from_utf8_lossy(text).chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(page: &mut [u8], at: usize, bytes: &[u8]) {
        page[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn page(entries: usize) -> Vec<u8> {
        let mut page = vec![0; HEADER_LEN + entries * ENTRY_LEN];
        put(&mut page, header::MAGIC, &MAGIC.to_le_bytes());
        put(&mut page, header::VERSION, &VERSION.to_le_bytes());
        put(&mut page, header::NAME, b"one\x1b[2Jtwo\0three");
        put(&mut page, header::ENTRIES_USED, &u32::MAX.to_le_bytes());
        page
    }

    #[test]
    fn text_cannot_steer_a_terminal() {
        assert_eq!(decode(&page(0)).unwrap().name, "one?[2Jtwo");
    }

    #[test]
    fn more_entries_than_there_are() {
        let mut page = page(2);
        let second = HEADER_LEN + ENTRY_LEN;
        put(&mut page, second + entry::STATE, &FAILED.to_le_bytes());
        put(
            &mut page,
            second + entry::TALLIES + 9 * 16 + 8,
            &7u64.to_le_bytes(),
        );
        let stats = decode(&page).unwrap();
        assert_eq!(stats.peers.len(), 1, "an unused one is none");
        let peer = &stats.peers[0];
        assert!(peer.failed && !peer.is_rest);
        assert_eq!(peer.sent[StatProtocol::AmoMapped as usize].bytes, 7);
        assert_eq!(
            decode(&page[..page.len() - 1]).unwrap().peers.len(),
            0,
            "half an entry"
        );
    }

    #[test]
    fn invalid_pages_are_refused() {
        assert_eq!(decode(&[]), Err(Unreadable::Short));
        assert_eq!(decode(&vec![0; PAGE_LEN]), Err(Unreadable::Foreign));
        let mut newer = page(0);
        newer[header::VERSION] = 9;
        assert_eq!(decode(&newer), Err(Unreadable::Version(9)));
    }

    #[test]
    fn places() {
        for (place, protocol) in StatProtocol::ALL.iter().enumerate() {
            assert_eq!(*protocol as usize, place);
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_after_the_magic(tail in proptest::collection::vec(proptest::num::u8::ANY, 0..2000)) {
            let mut page = page(6);
            let at = page.len() - tail.len().min(6 * ENTRY_LEN);
            let n = page.len() - at;
            page[at..].copy_from_slice(&tail[..n]);
            assert!(decode(&page).unwrap().peers.len() <= 6);
        }
    }
}
