//! Rails: further queue pairs to a peer, through other ports, that long transfers are shared out to.
//!
//! A rail is for one direction. Who has asked for it writes and reads by it, the peer only holds its end; nothing is
//! ever sent as a message there, so that it needs no receives, no window and no order: who has moved something by rails
//! waits for the ends of that, and only then tells the peer, or does what has to come behind it, by the connection
//! itself.

use super::queues::IbvQp;
use super::rc::{RcEp, ZcopyDesc};
use std::sync::Arc;

/// Ends that a peer may have us hold; more are an attack.
const MOST_HELD: usize = 8;
/// How long no rail is asked for by a port whose rail has failed, at first, and after it has failed again and again,
/// milliseconds.
const FIRST_REST: u64 = 100;
const LONGEST_REST: u64 = 10_000;
/// The longest where everything waits for a rail.
const LONGEST_ALONE: u64 = 1000;

/// How far a rail is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RailState {
    /// Something was written that tells whether anything comes through.
    Tried,
    /// Transfers are shared out to it.
    Open,
    /// Its device has refused something: nothing more is posted there.
    Refused,
    /// It was given up, and our end reset. What was not moved by it waits until the peer has dropped its end, too: a
    /// packet that comes late must not find the memory any more.
    Left,
}

/// One that transfers can be shared out to.
pub struct IbRail {
    pub line: RcEp,
    /// Number of the peer's port, among those of its address.
    pub remote_port: usize,
    /// What the peer calls it.
    pub name: u64,
    pub state: RailState,
    /// Since when, coarse milliseconds.
    pub since: u64,
}

/// Our end of one that the peer was asked to hold the other end of.
pub struct PendingRail {
    pub qp: Arc<IbvQp>,
    /// Number of our interface.
    pub iface: usize,
    /// Of our first packet.
    pub psn: u32,
}

/// An interface by which there was a rail, or none could be had.
struct RailBackoff {
    iface: usize,
    /// It is left alone until then, and for how long, coarse milliseconds.
    until: u64,
    wait: u64,
}

/// Those of a peer. Whoever holds the peer's lock.
#[derive(Default)]
pub struct IbRails {
    pub lines: Vec<IbRail>,
    pub asked: Vec<PendingRail>,
    /// The peer moves what is in our memory by these.
    held: Vec<Arc<IbvQp>>,
    /// They were asked for; they are about to be.
    begun: bool,
    asking: bool,
    rests: Vec<RailBackoff>,
    /// Nothing but rails moves what is long.
    pub alone: bool,
    /// What the connection had got before the last fence, if puts and gets by rails have to wait for that.
    pub behind: Option<u64>,
    /// Those that are to be given up: numbers of their interfaces and queue pairs.
    pub refused: Vec<(usize, u32)>,
}

impl IbRails {
    /// Holds an end for the peer. False: it has had enough.
    pub fn hold(&mut self, qp: Arc<IbvQp>) -> bool {
        let few = self.held.len() < MOST_HELD;
        if few {
            self.held.push(qp);
        }
        few
    }

    /// The peer has given up the rail with this end: nothing that it wrote by it takes effect any more. False: the
    /// device does not let go of it.
    pub fn drop_held(&mut self, qpn: u32) -> bool {
        self.held
            .retain(|qp| qp.number != qpn || qp.reset().is_err());
        self.held.iter().all(|qp| qp.number != qpn)
    }

    /// How many ends are held for the peer.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether somebody should see to rails, now that there is something for them; says so once. `now`: coarse
    /// milliseconds.
    pub fn are_due(&mut self, now: u64) -> bool {
        let due = !self.begun || self.rests.iter().any(|rest| rest.until <= now);
        due && !std::mem::replace(&mut self.asking, true)
    }

    /// The interfaces of these by which one is to be asked for.
    pub fn request_by(&mut self, ifaces: impl Iterator<Item = usize>, now: u64) -> Vec<usize> {
        (self.begun, self.asking) = (true, false);
        let wanted: Vec<usize> = ifaces.filter(|&i| self.may_request(i, now)).collect();
        for rest in &mut self.rests {
            if wanted.contains(&rest.iface) {
                rest.until = u64::MAX;
            }
        }
        wanted
    }

    fn may_request(&self, iface: usize, now: u64) -> bool {
        let there = self.lines.iter().any(|r| r.line.local_port() == iface);
        let asked = self.asked.iter().any(|end| end.iface == iface);
        let rest = self.rests.iter().find(|rest| rest.iface == iface);
        !there && !asked && rest.is_none_or(|rest| rest.until <= now)
    }

    /// There is no rail by this interface, which there was for so long: it is asked for again after a while.
    pub fn back_off(&mut self, iface: usize, now: u64, lasted: u64) {
        let place = self.rests.iter().position(|rest| rest.iface == iface);
        let before = place.map(|i| self.rests.swap_remove(i).wait);
        let longest = if self.alone {
            LONGEST_ALONE
        } else {
            LONGEST_REST
        };
        let wait = match before {
            Some(wait) if lasted < longest => (2 * wait).min(longest),
            _ => FIRST_REST,
        };
        let until = now + wait;
        self.rests.push(RailBackoff { iface, until, wait });
    }

    /// The one with this queue pair.
    pub fn of_queue(&mut self, iface: usize, qpn: u32) -> Option<&mut IbRail> {
        self.lines.iter_mut().find(|rail| rail.line.is(iface, qpn))
    }

    /// Whether any can be used.
    pub fn any_open(&self) -> bool {
        self.lines.iter().any(|rail| rail.state == RailState::Open)
    }

    /// Gives one up: what the peer calls it. No device of ours works on what it was to move any more.
    pub fn detach(&mut self, iface: usize, qpn: u32) -> Option<u64> {
        let rail = self.of_queue(iface, qpn);
        let rail = rail.filter(|rail| rail.state != RailState::Left)?;
        // A device that does not even do that moves nothing any more, either: the queue pair is in error.
        let _ = rail.line.qp.reset();
        rail.state = RailState::Left;
        Some(rail.name)
    }

    /// The peer has dropped its end of one that was given up, too.
    pub fn take_detached(&mut self, name: u64) -> Option<IbRail> {
        let is_it = |rail: &IbRail| rail.name == name && rail.state == RailState::Left;
        let place = self.lines.iter().position(is_it)?;
        Some(self.lines.swap_remove(place))
    }

    /// Whether all that was shared out has been moved.
    pub fn is_drained(&self) -> bool {
        self.lines.iter().all(|rail| !rail.line.zcopy_in_flight())
    }
}

impl IbRail {
    /// A work request has ended well.
    pub fn works(&mut self) {
        if self.state == RailState::Tried {
            self.state = RailState::Open;
        }
    }

    /// What it has not moved.
    pub fn lost(&self) -> Vec<ZcopyDesc> {
        self.line.zcopy_descs().collect()
    }
}

impl Drop for IbRails {
    fn drop(&mut self) {
        // Who gets his memory back now must not see the peer write it.
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
        assert_eq!(waits[7..], [LONGEST_REST, LONGEST_REST]);
        rails.back_off(2, now, LONGEST_REST);
        assert_eq!(rails.request_by(2..3, now + 99), []);
        assert_eq!(rails.request_by(2..3, now + 100), [2]);
    }
}
