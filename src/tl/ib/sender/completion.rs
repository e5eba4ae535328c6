//! Completion of what was accepted: flush markers, fences, owners of operations.

use super::{IbSender, RcOrUd};
use crate::tl::Token;

impl IbSender {
    /// Handles a fence at the head of the pending queue: transfers by rails in front of it have to complete first.
    /// True: they have; transfers by rails behind the fence then wait for the connection's sends in front of it, until
    /// [`is_behind_fence`](Self::is_behind_fence).
    pub fn pass_fence(&mut self) -> bool {
        let drained = self.rails.is_drained();
        if drained {
            self.rails.behind = match &self.transport {
                RcOrUd::Rc { rc_ep, .. } => Some(rc_ep.position()),
                RcOrUd::Ud(_) => self.rails.alone.then_some(0),
            };
        }
        drained
    }

    /// Whether everything in front of the last fence has completed.
    pub fn is_behind_fence(&mut self) -> bool {
        let Some(behind) = self.rails.behind else {
            return true;
        };
        let past = match &mut self.transport {
            RcOrUd::Rc { rc_ep, .. } => rc_ep.is_past(behind),
            // The peer has executed what it has acknowledged.
            RcOrUd::Ud(ud_tx) => {
                ud_tx.request_ack(&self.flow);
                ud_tx.is_drained()
            }
        };
        if past {
            self.rails.behind = None;
        }
        past
    }

    /// Makes all later sends and writes take effect after the reads before them.
    pub fn fence(&mut self) {
        if let RcOrUd::Rc { rc_ep, .. } = &mut self.transport {
            rc_ep.fence();
        }
    }

    /// Whether [`flush_marker`](Self::flush_marker) can be used: a send has not completed, and an RC queue pair will
    /// report when it has.
    #[inline(always)]
    pub fn can_flush_marker(&self) -> bool {
        match &self.transport {
            RcOrUd::Rc { rc_ep, .. } => {
                !self.broken && !rc_ep.is_drained() && self.rails.is_drained()
            }
            RcOrUd::Ud(_) => false,
        }
    }

    /// Makes [`on_send_completion`](Self::on_send_completion) report `owner` when all that was accepted has arrived.
    /// Requires [`can_flush_marker`](Self::can_flush_marker).
    #[inline(always)]
    pub fn flush_marker(&mut self, owner: Token) {
        if let RcOrUd::Rc { rc_ep, .. } = &mut self.transport {
            rc_ep.flush_marker(owner);
        }
    }

    /// Detaches the owners of reads and flush markers for which `wanted` is true; returns them.
    pub fn detach_owner(&mut self, wanted: impl Fn(Token) -> bool) -> Vec<Token> {
        let mut owners = Vec::new();
        if let RcOrUd::Rc { rc_ep, .. } = &mut self.transport {
            rc_ep.detach_owner(wanted, |owner| owners.push(owner));
        }
        owners.dedup();
        owners
    }

    /// The owners of operations, once for each read, flush marker or zero-copy work request.
    pub fn owners(&self) -> impl Iterator<Item = Token> {
        self.rcs().flat_map(|rc_ep| rc_ep.owners())
    }

    /// Whether all that was accepted has arrived.
    pub fn is_drained(&self) -> bool {
        self.broken
            || match &self.transport {
                RcOrUd::Rc { rc_ep, .. } => rc_ep.is_drained() && self.rails.is_drained(),
                RcOrUd::Ud(ud_tx) => ud_tx.is_drained() && self.rails.is_drained(),
            }
    }

    /// [`is_drained`](Self::is_drained) for a caller that waits for it: also requests the completion or acknowledgment.
    pub fn drain(&mut self) -> bool {
        if self.is_drained() {
            return true;
        }
        match &mut self.transport {
            RcOrUd::Rc { rc_ep, .. } => rc_ep.post_signaled(),
            RcOrUd::Ud(ud_tx) => ud_tx.request_ack(&self.flow),
        }
        false
    }

    /// Handles the completion of the send with this number. `done` gets each owner, once for each read, flush marker or
    /// zero-copy work request.
    #[inline(always)]
    pub fn on_send_completion(&mut self, number: u64, done: impl FnMut(Token)) {
        if let RcOrUd::Rc { rc_ep, .. } = &mut self.transport {
            rc_ep.on_send_completion(number, done);
        }
    }
}
