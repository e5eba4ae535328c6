//! Rails: additional queue pairs to a peer, through other ports, which carry parts of long transfers.
//!
//! A rail is for one direction. The worker that has requested it writes and reads by it, the peer only holds its end.
//! No message is sent by a rail, so it needs no receives, no window and no order: the worker waits for the completions
//! of all parts, and only then notifies the peer, or executes what must follow, by the connection itself.

use super::queues::IbvQp;
use super::rc::{RcEp, ZcopyDesc};
use std::sync::Arc;

/// Maximum number of ends that are held for a peer; a request for more comes from a hostile peer.
const MAX_HELD: usize = 8;
/// Time for which no rail is requested by a port whose rail has failed, milliseconds: after the first failure, and at
/// most after repeated failures.
const FIRST_BACKOFF_MS: u64 = 100;
const MAX_BACKOFF_MS: u64 = 10_000;
/// The maximum where rails are the only path of long transfers.
const MAX_UNSTRIPED: u64 = 1000;

/// State of a rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RailState {
    /// A probe was posted, whose completion shows whether the rail works.
    Tried,
    /// Transfers use it.
    Open,
    /// Its device has refused a work request: nothing more is posted there.
    Refused,
    /// It was closed, and the own end reset. Its incomplete transfers wait until the peer has dropped its end, too:
    /// until then a late packet may access the memory.
    Left,
}

/// A rail at the worker that has requested it.
pub struct IbRail {
    pub rc_ep: RcEp,
    /// Index of the peer's port in its address.
    pub remote_port: usize,
    /// The peer's name of the rail.
    pub name: u64,
    pub state: RailState,
    /// When the rail was set up, coarse milliseconds.
    pub since: u64,
}

/// The own end of a rail that was requested from the peer.
pub struct PendingRail {
    pub qp: Arc<IbvQp>,
    /// Index of the own interface.
    pub iface: usize,
    /// Packet sequence number of the first packet of this end.
    pub psn: u32,
}

/// An interface whose rail failed, or could not be created.
struct RailBackoff {
    iface: usize,
    /// No rail is requested before `until`; `wait` is the length of that pause; coarse milliseconds.
    until: u64,
    wait: u64,
}

/// The rails of a peer, used by the thread that holds the peer's lock.
#[derive(Default)]
pub struct IbRails {
    pub lines: Vec<IbRail>,
    pub asked: Vec<PendingRail>,
    /// The own ends of rails by which the peer accesses this worker's memory.
    held: Vec<Arc<IbvQp>>,
    /// `begun`: rails were requested; `asking`: they are about to be.
    begun: bool,
    asking: bool,
    backoffs: Vec<RailBackoff>,
    /// Only rails carry long transfers.
    pub alone: bool,
    /// The position of the connection at the last fence, if puts and gets by rails have to wait for what was posted
    /// before.
    pub behind: Option<u64>,
    /// Rails to close: the index of their interface and the number of their queue pair.
    pub refused: Vec<(usize, u32)>,
}

impl IbRails {
    /// Holds an end for the peer. False: the peer already has the maximum.
    pub fn hold(&mut self, qp: Arc<IbvQp>) -> bool {
        let few = self.held.len() < MAX_HELD;
        if few {
            self.held.push(qp);
        }
        few
    }

    /// Resets and drops the end of a rail that the peer has closed: no write of the peer by it takes effect afterwards.
    /// False: the device fails to reset it.
    pub fn drop_held(&mut self, qpn: u32) -> bool {
        self.held
            .retain(|qp| qp.number != qpn || qp.reset().is_err());
        self.held.iter().all(|qp| qp.number != qpn)
    }

    /// Number of ends held for the peer.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether rails are to be requested, now that there is a transfer for them; true once per request. `now`: coarse
    /// milliseconds.
    pub fn are_due(&mut self, now: u64) -> bool {
        let due = !self.begun || self.backoffs.iter().any(|backoff| backoff.until <= now);
        due && !std::mem::replace(&mut self.asking, true)
    }

    /// The interfaces among `ifaces` by which a rail is to be requested now.
    pub fn request_by(&mut self, ifaces: impl Iterator<Item = usize>, now: u64) -> Vec<usize> {
        (self.begun, self.asking) = (true, false);
        let wanted: Vec<usize> = ifaces.filter(|&i| self.may_request(i, now)).collect();
        for backoff in &mut self.backoffs {
            if wanted.contains(&backoff.iface) {
                backoff.until = u64::MAX;
            }
        }
        wanted
    }

    fn may_request(&self, iface: usize, now: u64) -> bool {
        let there = self.lines.iter().any(|r| r.rc_ep.local_port() == iface);
        let asked = self.asked.iter().any(|end| end.iface == iface);
        let backoff = self.backoffs.iter().find(|backoff| backoff.iface == iface);
        !there && !asked && backoff.is_none_or(|backoff| backoff.until <= now)
    }

    /// Records that there is no rail by this interface, after one that existed for `lasted` milliseconds: it is
    /// requested again after a pause.
    pub fn back_off(&mut self, iface: usize, now: u64, lasted: u64) {
        let place = self
            .backoffs
            .iter()
            .position(|backoff| backoff.iface == iface);
        let before = place.map(|i| self.backoffs.swap_remove(i).wait);
        let longest = if self.alone {
            MAX_UNSTRIPED
        } else {
            MAX_BACKOFF_MS
        };
        let wait = match before {
            Some(wait) if lasted < longest => (2 * wait).min(longest),
            _ => FIRST_BACKOFF_MS,
        };
        let until = now + wait;
        self.backoffs.push(RailBackoff { iface, until, wait });
    }

    /// The rail with this queue pair.
    pub fn of_queue(&mut self, iface: usize, qpn: u32) -> Option<&mut IbRail> {
        self.lines.iter_mut().find(|rail| rail.rc_ep.is(iface, qpn))
    }

    /// Whether any rail is open.
    pub fn any_open(&self) -> bool {
        self.lines.iter().any(|rail| rail.state == RailState::Open)
    }

    /// Closes a rail; returns the peer's name of it. No device of this process works on its transfers afterwards.
    pub fn detach(&mut self, iface: usize, qpn: u32) -> Option<u64> {
        let rail = self.of_queue(iface, qpn);
        let rail = rail.filter(|rail| rail.state != RailState::Left)?;
        // A device that fails to reset has the queue pair in the error state, in which it moves nothing either.
        let _ = rail.rc_ep.qp.reset();
        rail.state = RailState::Left;
        Some(rail.name)
    }

    /// Removes a rail that was closed, after the peer has dropped its end.
    pub fn take_detached(&mut self, name: u64) -> Option<IbRail> {
        let is_it = |rail: &IbRail| rail.name == name && rail.state == RailState::Left;
        let place = self.lines.iter().position(is_it)?;
        Some(self.lines.swap_remove(place))
    }

    /// Whether all transfers by rails are complete.
    pub fn is_drained(&self) -> bool {
        self.lines.iter().all(|rail| !rail.rc_ep.zcopy_in_flight())
    }
}

impl IbRail {
    /// Opens the rail after the first work request has succeeded.
    pub fn works(&mut self) {
        if self.state == RailState::Tried {
            self.state = RailState::Open;
        }
    }

    /// The transfers that it has not completed.
    pub fn lost(&self) -> Vec<ZcopyDesc> {
        self.rc_ep.zcopy_descs().collect()
    }
}

impl Drop for IbRails {
    fn drop(&mut self) {
        // The user's memory is released after this: the peer must not write it any more.
        for qp in &self.held {
            let _ = qp.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backoff_of_a_port_grows() {
        let mut rails = IbRails::default();
        assert!(rails.are_due(0) && !rails.are_due(0), "once");
        assert_eq!(rails.request_by(1..3, 0), [1, 2]);
        assert!(!rails.are_due(1_000_000));
        let (mut now, mut waits) = (0, Vec::new());
        for _ in 0..9 {
            rails.back_off(2, now, 0);
            let wait = (0..).find(|ms| rails.are_due(now + ms)).unwrap_or(0);
            now += wait;
            assert_eq!(rails.request_by(2..3, now), [2]);
            waits.push(wait);
        }
        assert_eq!(waits[..3], [100, 200, 400]);
        assert_eq!(waits[7..], [MAX_BACKOFF_MS, MAX_BACKOFF_MS]);
        rails.back_off(2, now, MAX_BACKOFF_MS);
        assert_eq!(rails.request_by(2..3, now + 99), []);
        assert_eq!(rails.request_by(2..3, now + 100), [2]);
    }
}
