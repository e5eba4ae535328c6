//! Wakes a sleeping worker when a peer dies: descriptors of the peers' processes, and a timer for deaths that these do
//! not show. The timer also expires at the keepalive interval, as long as there is a peer.

use crate::sys::descriptor::OwnedDescriptor;
use crate::sys::process_monitor::MonitoredProcess as Process;
use crate::sys::timer::Timer;
use parking_lot::Mutex;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Interval of the checks while one of the peers cannot be watched: its death is noticed within a second.
const BLIND_INTERVAL: Duration = Duration::from_millis(500);
/// Token of the timer in the epoll set.
const TIMER: u64 = 0;

/// Token of a process in the epoll set, made of its descriptor.
fn name_of(process: &Process) -> u64 {
    process.as_fd().as_raw_fd() as u64 + 1
}

/// An epoll set that is readable when the peers are to be checked.
pub struct PeerMonitor {
    set: OwnedDescriptor<OwnedFd>,
    timer: Timer,
    watched: Mutex<MonitoredPeer>,
    keepalive: Option<Duration>,
}

#[derive(Default)]
struct MonitoredPeer {
    /// By the peers' numbers; several peers can be in one process, which is in the set once.
    processes: HashMap<u64, Arc<Process>>,
    /// Peers whose processes cannot be watched.
    blind: Vec<u64>,
    /// Peers whose transports notice their death: only the keepalive interval counts.
    timed: Vec<u64>,
    /// The interval at which the timer runs out now; `None`: it does not run.
    interval: Option<Duration>,
}

impl MonitoredPeer {
    fn contains(&self, uid: u64) -> bool {
        self.processes.contains_key(&uid) || self.blind.contains(&uid) || self.timed.contains(&uid)
    }

    /// Whether a peer's process is this one.
    fn has_process(&self, process: &Arc<Process>) -> bool {
        self.processes.values().any(|p| Arc::ptr_eq(p, process))
    }

    /// The interval at which these peers are to be checked. `keepalive`: that of the context.
    fn wanted_interval(&self, keepalive: Option<Duration>) -> Option<Duration> {
        if !self.blind.is_empty() {
            return Some(keepalive.map_or(BLIND_INTERVAL, |k| k.min(BLIND_INTERVAL)));
        }
        keepalive.filter(|_| !self.processes.is_empty() || !self.timed.is_empty())
    }
}

impl PeerMonitor {
    /// Watches no peer. `keepalive`: how often the worker wakes up while there is one.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn new(keepalive: Option<Duration>) -> io::Result<Self> {
        let set = OwnedDescriptor::new(epoll::create(CreateFlags::CLOEXEC)?);
        let timer = Timer::new()?;
        let watch = Self {
            set,
            timer,
            watched: Mutex::default(),
            keepalive,
        };
        watch.watch(&watch.timer, TIMER)?;
        Ok(watch)
    }

    /// Watches a peer whose process this is, if that can be seen.
    pub fn add(&self, uid: u64, process: Option<Arc<Process>>) {
        let mut watched = self.watched.lock();
        if watched.contains(uid) {
            return;
        }
        let seen =
            process.filter(|p| watched.has_process(p) || self.watch(&**p, name_of(p)).is_ok());
        match seen {
            Some(process) => {
                watched.processes.insert(uid, process);
            }
            None => watched.blind.push(uid),
        }
        self.set_timer(&mut watched);
    }

    /// Wakes the worker at the keepalive interval for a peer whose death its transport notices.
    pub fn add_timed(&self, uid: u64) {
        let mut watched = self.watched.lock();
        if !watched.contains(uid) {
            watched.timed.push(uid);
            self.set_timer(&mut watched);
        }
    }

    /// The opposite of [`add`](Self::add) and [`add_timed`](Self::add_timed).
    pub fn remove(&self, uid: u64) {
        let mut watched = self.watched.lock();
        let process = watched.processes.remove(&uid);
        if let Some(process) = process.filter(|p| !watched.has_process(p)) {
            // Others of this process may watch it still, by the same descriptor.
            let _ = epoll::delete(&self.set, &*process);
        }
        watched.blind.retain(|&other| other != uid);
        watched.timed.retain(|&other| other != uid);
        self.set_timer(&mut watched);
    }

    /// Has the timer run at the interval that the peers need; one that does already is not started anew.
    fn set_timer(&self, watched: &mut MonitoredPeer) {
        let wanted = watched.wanted_interval(self.keepalive);
        if wanted != watched.interval {
            watched.interval = wanted;
            self.timer.set(wanted, wanted);
        }
    }

    /// Whether the peers are to be checked. True once for each process.
    pub fn take(&self) -> bool {
        let mut any = false;
        loop {
            let mut events = [MaybeUninit::<Event>::uninit(); 16];
            match epoll::wait(&self.set, &mut events, Some(&Timespec::default())) {
                Ok(([], _)) | Err(_) => return any,
                Ok((events, _)) => events
                    .iter()
                    .for_each(|event| self.drain({ event.data }.u64())),
            }
            any = true;
        }
    }

    /// Removes the event from the epoll set: the timer is drained, the descriptor of an exited process, which stays
    /// readable, is deleted.
    fn drain(&self, what: u64) {
        if what == TIMER {
            self.timer.drain();
        } else {
            let watched = self.watched.lock();
            // A process that is not watched any more is not in the set either.
            if let Some(process) = watched.processes.values().find(|p| name_of(p) == what) {
                let _ = epoll::delete(&self.set, &**process);
            }
        }
    }

    /// Adds a descriptor to the epoll set.
    fn watch(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        epoll::add(&self.set, fd, EventData::new_u64(token), EventFlags::IN)?;
        Ok(())
    }
}

impl AsFd for PeerMonitor {
    /// The descriptor to sleep on.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::poll::wait_readable;
    use crate::sys::process_monitor;
    use std::process::Command;

    fn readable(monitor: &PeerMonitor, milliseconds: u64) -> bool {
        let timeout = Some(Duration::from_millis(milliseconds));
        wait_readable([monitor.as_fd()], timeout).unwrap() > 0
    }

    #[test]
    fn a_death_is_reported_once() {
        let watch = PeerMonitor::new(None).unwrap();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        watch.add(7, process_monitor::watch(child.id()));
        assert!(!readable(&watch, 0) && !watch.take());
        child.kill().unwrap();
        assert!(readable(&watch, 10_000) && watch.take());
        assert!(!readable(&watch, 0) && !watch.take());
        watch.remove(7);
        child.wait().unwrap();
    }

    #[test]
    fn two_peers_of_one_process() {
        let watch = PeerMonitor::new(None).unwrap();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        watch.add(7, process_monitor::watch(child.id()));
        watch.add(8, process_monitor::watch(child.id()));
        assert!(watch.watched.lock().blind.is_empty());
        watch.remove(7);
        child.kill().unwrap();
        assert!(readable(&watch, 10_000) && watch.take());
        assert!(!readable(&watch, 0) && !watch.take());
        watch.remove(8);
        child.wait().unwrap();
    }

    #[test]
    fn the_timer_runs_while_there_is_a_peer() {
        let watch = PeerMonitor::new(Some(Duration::from_millis(20))).unwrap();
        assert!(!readable(&watch, 100), "there is no peer yet");
        watch.add_timed(7);
        watch.add_timed(8);
        for _ in 0..3 {
            assert!(readable(&watch, 10_000) && watch.take());
        }
        watch.remove(7);
        assert!(readable(&watch, 10_000) && watch.take());
        watch.remove(8);
        watch.take();
        assert!(!readable(&watch, 100), "there is no peer any more");
        let never = PeerMonitor::new(None).unwrap();
        never.add_timed(7);
        assert!(!readable(&never, 100), "there is no interval");
    }

    #[test]
    fn a_process_without_a_pidfd_is_polled() {
        let watch = PeerMonitor::new(None).unwrap();
        watch.add(7, None);
        assert!(readable(&watch, 10_000) && watch.take());
        watch.remove(7);
        watch.take();
        assert!(!readable(&watch, 700));
    }
}
