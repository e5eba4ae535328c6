//! Connections that were dropped before a record that they had sent was acknowledged. They are kept until the remote
//! device acknowledges it, which takes a round trip and no action of the remote process.

use super::rdmacm_conn::RdmaCmInner;
use crate::sys::clock;
use crate::sys::fork::{Lock, Mutex, Origin};
use std::mem;

/// How long a dropped connection is kept at most, milliseconds.
const LINGER_MS: u64 = 5000;

/// The connections, each with its deadline, coarse milliseconds, and its process.
static LINGERING: Mutex<Vec<(u64, Origin, Box<RdmaCmInner>)>> = Mutex::new(Vec::new());

/// The lock of the connections, which a fork waits for.
pub fn lock_to_watch() -> &'static Lock {
    LINGERING.lock_to_watch()
}

/// Keeps a connection until its records are acknowledged.
pub fn defer(mut inner: Box<RdmaCmInner>) {
    if inner.defer_close() {
        let until = clock::coarse_ms() + LINGER_MS;
        LINGERING.lock().push((until, Origin::here(), inner));
    }
}

/// Drops the connections without unacknowledged records, or whose deadline has passed. True if none is left.
pub fn drop_finished() -> bool {
    let mut lingering = LINGERING.lock();
    // A forked child must not drop its parent's connections: it forgets them.
    if lingering.iter().any(|(_, origin, _)| origin.is_inherited()) {
        let is_inherited = |(_, origin, _): &(u64, Origin, Box<RdmaCmInner>)| origin.is_inherited();
        let (inherited, own): (Vec<_>, Vec<_>) = mem::take(&mut *lingering)
            .into_iter()
            .partition(is_inherited);
        mem::forget(inherited);
        *lingering = own;
    }
    let now = clock::coarse_ms();
    lingering.retain_mut(|(until, _, inner)| *until > now && inner.defer_close());
    lingering.is_empty()
}

/// Waits until all connections are closed, `timeout_ms` milliseconds at most.
pub fn settle(timeout_ms: u64) {
    let until = clock::coarse_ms() + timeout_ms;
    while !drop_finished() && clock::coarse_ms() < until {
        std::thread::yield_now();
    }
}
