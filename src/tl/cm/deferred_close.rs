//! Connections whose owners have let go of them while something that they had said was on its way: they stay until the
//! other end's device has it, which takes a round trip and nothing of the other end's program.

use super::rdmacm_conn::RdmaCmInner;
use crate::sys::clock;
use crate::sys::fork::{Lock, Mutex, Origin};
use std::mem;

/// How long a connection that was let go waits, milliseconds.
const LINGER_MS: u64 = 5000;

/// Each until when, coarse milliseconds, and in which process.
static LINGERING: Mutex<Vec<(u64, Origin, Box<RdmaCmInner>)>> = Mutex::new(Vec::new());

/// What a fork waits for.
pub fn lock_to_watch() -> &'static Lock {
    LINGERING.lock_to_watch()
}

/// Takes a connection over until what was said has arrived.
pub fn defer(mut line: Box<RdmaCmInner>) {
    if line.defer_close() {
        let until = clock::coarse_ms() + LINGER_MS;
        LINGERING.lock().push((until, Origin::here(), line));
    }
}

/// Ends those that have nothing to wait for any more. False if some have.
pub fn reap() -> bool {
    let mut lingering = LINGERING.lock();
    // A forked child leaves its parent's connections alone, which includes that they are not dropped.
    if lingering.iter().any(|(_, origin, _)| origin.is_inherited()) {
        let is_inherited = |(_, origin, _): &(u64, Origin, Box<RdmaCmInner>)| origin.is_inherited();
        let (inherited, own): (Vec<_>, Vec<_>) = mem::take(&mut *lingering)
            .into_iter()
            .partition(is_inherited);
        mem::forget(inherited);
        *lingering = own;
    }
    let now = clock::coarse_ms();
    lingering.retain_mut(|(until, _, line)| *until > now && line.defer_close());
    lingering.is_empty()
}

/// Waits until all have arrived, so many milliseconds at most.
pub fn settle(patience_ms: u64) {
    let until = clock::coarse_ms() + patience_ms;
    while !reap() && clock::coarse_ms() < until {
        std::thread::yield_now();
    }
}
