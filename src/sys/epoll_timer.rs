//! Timer that wakes a sleeper on an epoll set when a timeout expires.

use super::clock;
use super::epoll::Epoll;
use super::timer::Timer;
use std::io;
use std::time::Duration;

/// The timer of an epoll set, made when it is needed first: most processes never sleep.
pub struct EpollTimer {
    /// Token of the timer in the epoll set.
    token: u64,
    timer: Option<Timer>,
}

impl EpollTimer {
    pub fn new(token: u64) -> EpollTimer {
        EpollTimer { token, timer: None }
    }

    /// Sets the timer for `at`, coarse milliseconds; `None`: no timeout. False if that has passed, or the timer cannot
    /// be set: the caller must not sleep.
    pub fn wake(&mut self, epoll: &Epoll, at: Option<u64>) -> bool {
        let Some(at) = at else {
            return true;
        };
        let left = at.saturating_sub(clock::coarse_ms());
        left > 0 && self.set(epoll, left).is_ok()
    }

    fn set(&mut self, epoll: &Epoll, milliseconds: u64) -> io::Result<()> {
        if self.timer.is_none() {
            let timer = Timer::new()?;
            epoll.add(&timer, self.token, false)?;
            self.timer = Some(timer);
        }
        let timer = self.timer.as_ref().ok_or(io::ErrorKind::NotFound)?;
        timer.set(Some(Duration::from_millis(milliseconds)), None);
        Ok(())
    }

    /// Clears the expired timer: the set is not readable because of it any more.
    pub fn drain(&self) {
        if let Some(timer) = &self.timer {
            timer.drain();
        }
    }
}
