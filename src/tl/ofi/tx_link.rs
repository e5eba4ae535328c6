//! What the sender of a connection, the interface and sends in flight share.
#![forbid(unsafe_code)]

use super::rma_count::RmaCount;
use crate::sys::liveness_lock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Number of a way that belongs to no connection.
pub const NO_CONN: u32 = u32::MAX;

/// The way to a peer.
///
/// Relaxed everywhere: the counters are changed under the lock of the worker's queues, and read by the thread that
/// holds the peer's lock, which calls again if it finds them too large.
#[derive(Debug)]
pub struct OfiTxLink {
    /// Number of the connection, or [`NO_CONN`].
    pub conn: u32,
    /// Number of the peer's interface in remote keys; 0: it accesses no memory.
    pub number: u16,
    /// The peer, as libfabric's operations name it.
    pub addr: u64,
    /// Key of the lock that the peer's interface holds while its process works. `None`: it is on another host, or holds
    /// none.
    pub lock: Option<u64>,
    /// Sends that a completion will report.
    outstanding: AtomicU32,
    /// Packets were sent since the last one that a completion reports.
    has_unsignaled: AtomicBool,
    /// The sender has a packet for which there was no room.
    is_blocked: AtomicBool,
    /// The connection fails: what has not completed does not arrive.
    has_failed: AtomicBool,
    /// Number of the next packet.
    seq: AtomicU32,
    /// Operations on the peer's memory.
    pub rma: RmaCount,
}

impl OfiTxLink {
    /// The way to the peer that libfabric knows by `addr`, of connection `conn`. `number`: that of its interface in
    /// remote keys. `lock`: the key of its lock.
    pub fn new(conn: u32, addr: u64, number: u16, lock: Option<u64>) -> OfiTxLink {
        OfiTxLink {
            conn,
            number,
            addr,
            lock,
            outstanding: AtomicU32::new(0),
            has_unsignaled: AtomicBool::new(false),
            is_blocked: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            seq: AtomicU32::new(0),
            rma: RmaCount::default(),
        }
    }

    /// Whether the peer's process has ended, as far as its lock shows it.
    pub fn is_peer_dead(&self) -> bool {
        self.lock.is_some_and(|key| !liveness_lock::is_held(key))
    }

    /// Whether the peer's process works, as far as its lock shows it. `None`: it holds none that can be seen here.
    pub fn is_peer_alive(&self) -> Option<bool> {
        self.lock.map(liveness_lock::is_held)
    }

    /// The connection fails from now on.
    pub fn fail(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// Whether the connection fails. It is set before an operation that has failed counts as ended.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Sends that a completion will report.
    pub fn outstanding(&self) -> u32 {
        self.outstanding.load(Ordering::Relaxed)
    }

    /// Whether no completion is waited for.
    pub fn is_idle(&self) -> bool {
        self.outstanding() == 0 && self.rma.outstanding() == 0
    }

    /// A send was posted. `signaled`: a completion reports it, and all before it.
    pub fn posted(&self, signaled: bool) {
        if signaled {
            self.outstanding.fetch_add(1, Ordering::Relaxed);
        }
        self.has_unsignaled.store(!signaled, Ordering::Relaxed);
    }

    /// A packet was sent that has the number [`sent`](Self::sent), and that no completion reports.
    #[inline(always)]
    pub fn injected(&self) {
        let next = self.sent().wrapping_add(1);
        self.seq.store(next, Ordering::Relaxed);
        self.has_unsignaled.store(true, Ordering::Relaxed);
    }

    /// A completion has reported a send.
    pub fn completed(&self) {
        self.outstanding.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether packets were sent since the last one that a completion reports.
    pub fn has_unsignaled(&self) -> bool {
        self.has_unsignaled.load(Ordering::Relaxed)
    }

    /// Whether a completion has reported each packet that has a number. Under the lock of the peer, or without a lane.
    pub fn has_left(&self) -> bool {
        self.outstanding() == 0 && !self.has_unsignaled() && self.has_room()
    }

    /// Whether no packet of the sender waits for room.
    pub fn has_room(&self) -> bool {
        !self.is_blocked.load(Ordering::Relaxed)
    }

    /// Sets whether the sender has a packet for which there was no room. Returns whether it had one before.
    pub fn set_blocked(&self, is_blocked: bool) -> bool {
        self.is_blocked.swap(is_blocked, Ordering::Relaxed)
    }

    /// How many packets have a number, modulo 2^32: that of the next one.
    #[inline(always)]
    pub fn sent(&self) -> u32 {
        self.seq.load(Ordering::Relaxed)
    }

    /// The next packet has this number: packets before it went by another connection.
    pub fn continue_at(&self, seq: u32) {
        self.seq.store(seq, Ordering::Relaxed);
    }

    /// The number of the next packet, which the caller sends: the holder of the peer's lock, or the interface if there
    /// is no lane.
    pub fn next_seq(&self) -> u32 {
        self.seq.fetch_add(1, Ordering::Relaxed)
    }
}
