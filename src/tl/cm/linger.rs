//! Connections whose owners have let go of them while something that they had said was on its way: they stay until the
//! other end's device has it, which takes a round trip and nothing of the other end's program.

use super::link::Line;
use crate::sys::clock;
use parking_lot::Mutex;

/// How long a connection that was let go waits, milliseconds.
const LINGER_MS: u64 = 5000;

/// Each until when, coarse milliseconds.
static LINGERING: Mutex<Vec<(u64, Box<Line>)>> = Mutex::new(Vec::new());

/// Takes a connection over until what was said has arrived.
pub fn leave(mut line: Box<Line>) {
    if line.lingers() {
        let until = clock::coarse_ms() + LINGER_MS;
        LINGERING.lock().push((until, line));
    }
}

/// Ends those that have nothing to wait for any more. False if some have.
pub fn tidy() -> bool {
    let mut lingering = LINGERING.lock();
    let now = clock::coarse_ms();
    lingering.retain_mut(|(until, line)| *until > now && line.lingers());
    lingering.is_empty()
}

/// Waits until all have arrived, so many milliseconds at most.
pub fn settle(patience_ms: u64) {
    let until = clock::coarse_ms() + patience_ms;
    while !tidy() && clock::coarse_ms() < until {
        std::thread::yield_now();
    }
}
