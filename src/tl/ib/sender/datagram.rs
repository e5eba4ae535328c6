//! What only a sender over datagrams (UD) does: acknowledgments, retransmission, failover.

use super::{IbSender, RcOrUd};
use crate::tl::ib::ud::AltPath;
use crate::wire::ib_port::PortLocator;

impl IbSender {
    /// Sets the paths of failover for datagrams; long transfers then go by rails only.
    pub fn set_alt_paths(&mut self, paths: Vec<AltPath>) {
        if let RcOrUd::Ud(ud_tx) = &mut self.transport {
            ud_tx.set_alt_paths(paths);
            self.rails.alone = true;
        }
    }

    /// Follows the peer to this port; its message about that has arrived by interface `iface`.
    pub fn follow_peer_port(&mut self, iface: usize, port: &PortLocator) {
        if let RcOrUd::Ud(ud_tx) = &mut self.transport {
            ud_tx.follow_peer_port(iface, port);
        }
    }

    /// Requests the datagrams from the next one that is expected to the one in front of `end`.
    pub fn report_gap(&mut self, end: u32) {
        if let RcOrUd::Ud(ud_tx) = &mut self.transport {
            ud_tx.report_gap(&self.flow, end);
        }
    }

    /// Handles the peer's acknowledgment of all datagrams before `ack`; `gap`: it comes with a report of missing ones.
    /// False: the number is invalid.
    pub fn acknowledged(&mut self, ack: u32, gap: bool) -> bool {
        match &mut self.transport {
            RcOrUd::Ud(ud_tx) => ud_tx.acknowledged(ack, gap),
            RcOrUd::Rc { .. } => true,
        }
    }

    /// Handles a reply to a liveness probe: the peer's process lives, though it acknowledges nothing.
    pub fn on_pong(&mut self) {
        if let RcOrUd::Ud(ud_tx) = &mut self.transport {
            ud_tx.on_pong();
        }
    }

    /// Handles the peer's report that the packets from the first unacknowledged one to the one in front of `end` are
    /// missing.
    pub fn on_gap(&mut self, end: u32) {
        if let RcOrUd::Ud(ud_tx) = &mut self.transport {
            ud_tx.on_gap(end);
        }
    }

    /// When [`tick`](Self::tick) has something to do, coarse milliseconds; `None`: never, the device retransmits by
    /// itself.
    pub fn next_due(&self) -> Option<u64> {
        match &self.transport {
            RcOrUd::Ud(ud_tx) => ud_tx.next_due(),
            RcOrUd::Rc { .. } => None,
        }
    }

    /// Does what is due at this time, coarse milliseconds. False: the peer has been silent for longer than the timeout.
    pub fn tick(&mut self, now: u64) -> bool {
        match &mut self.transport {
            RcOrUd::Ud(ud_tx) => ud_tx.tick(&self.flow, now),
            RcOrUd::Rc { .. } => true,
        }
    }
}
