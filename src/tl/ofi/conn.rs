//! A connection of an interface with a peer.

use super::choice::IfaceRole;
use super::failover_session::{ConnFailover, OfiSession};
use super::hello::{FailedHello, HelloAge, PendingHello};
use super::loss_check::LossCheck;
use super::packet::Grant;
use super::refusal::RefusalCheck;
use super::reorder::OfiReorder;
use super::sender::OfiSender;
use super::tx_link::OfiTxLink;
use crate::ctypes::{UCS_ERR_CONNECTION_RESET, UCS_ERR_INVALID_ADDR, ucs_status_t};
use crate::sys::{advice, clock};
use crate::tl::Lane;
use crate::tl::sink::Sink;
use std::sync::Arc;

/// A connection with a peer, in both directions.
pub struct OfiConn<P> {
    /// `None`: the peer has failed or closed; the connection waits for the end of what it has sent.
    pub peer: Option<P>,
    /// The peer, failed or not, as long as operations on its memory are outstanding.
    pub of: P,
    pub uid: u64,
    /// What it is for: after a failure the interface of a rail may have a lane.
    pub role: IfaceRole,
    /// Whether it goes on by another interface if it fails.
    pub failover: ConnFailover,
    pub link: Arc<OfiTxLink>,
    /// The peer's address, which is inserted as long as the connection exists.
    pub name: Arc<[u8]>,
    /// Key that packets to this end have to carry.
    pub key: u64,
    /// The peer's end; `None` until the peer has answered.
    pub remote: Option<Grant>,
    /// When it was begun, coarse milliseconds.
    pub begun: u64,
    pub order: OfiReorder,
    /// It is listed in [`OfiIface::broken`](super::iface::OfiIface::broken), or was.
    pub is_broken: bool,
    /// The peer has ended the connection, or has acknowledged its end.
    pub has_ended: bool,
    /// The peer's lock was found released while sends to it waited. The connection ends when everything that had
    /// arrived was handled.
    pub lost_lock: bool,
    /// Whether the peer's host refuses connections, where sends wait and the peer is on another host.
    pub refusals: Option<Box<RefusalCheck>>,
    /// The request to connect, until the peer has answered.
    pub request: Option<Box<PendingHello>>,
    /// The check whether packets were lost, if one may have been.
    pub loss: Option<Box<LossCheck>>,
    /// How many packets the interface had dropped when the last check began that has found none lost.
    pub checked: u64,
}

impl<P> OfiConn<P> {
    /// This end, as the peer may use it.
    pub fn grant(&self) -> Grant {
        Grant {
            conn: self.link.conn,
            key: self.key,
        }
    }

    /// The connection was opened with failover: the peer has granted `peer_key` first, and has moved it so often.
    pub fn set_failover(&mut self, peer_key: u64, generation: u32) {
        let own_key = match self.failover {
            ConnFailover::Wanted(key) => key,
            ConnFailover::Off | ConnFailover::On(_) | ConnFailover::Moved(_) => self.key,
        };
        let session = OfiSession::new((own_key, peer_key), self.key, generation);
        self.failover = ConnFailover::On(Box::new(session));
    }

    /// The request to connect has failed. Returns what the next one takes over of it, if it is one with failover; what
    /// the peer sends by this connection it sends again by the next one.
    pub fn fail_hello(&mut self) -> Option<FailedHello> {
        let ConnFailover::Wanted(key) = self.failover else {
            return None;
        };
        self.failover = ConnFailover::Moved(clock::coarse_ms());
        let next = self.order.next();
        Some(FailedHello { key, next })
    }

    /// Whether the peer has not answered the request to connect in time.
    pub fn has_expired(&self) -> bool {
        let request = self.request.as_ref();
        request.is_some_and(|request| request.age == HelloAge::Expired)
    }

    /// Whether the peer's process has ended, as far as its lock shows it.
    pub fn is_dead(&self) -> bool {
        self.link.is_peer_dead()
    }

    /// Whether sends wait: for room, or for their completions.
    pub fn awaits_sends(&self) -> bool {
        !self.is_broken && self.peer.is_some() && !(self.link.is_idle() && self.link.has_room())
    }

    /// Whether operations on the memory of its former peer are outstanding.
    pub fn has_ops_without_peer(&self) -> bool {
        self.peer.is_none() && self.link.rma.outstanding() > 0
    }

    /// Whether it has moved to another interface, and operations that were posted before are outstanding.
    pub fn has_moved_ops(&self) -> bool {
        self.failover.has_moved() && self.link.rma.outstanding() > 0
    }
}

/// The connection with a peer has ended, of which this is the sending half. `role`: what its interface is for. The peer
/// of a lane fails, unless its lane goes another way; that of a rail does not.
#[cold]
pub fn conn_down<S: Sink>(
    role: IfaceRole,
    sink: S,
    peer: S::Peer,
    link: &Arc<OfiTxLink>,
    status: ucs_status_t,
) {
    if role == IfaceRole::Rail {
        with_sender(sink, peer, |sender| sender.rail_down(Some(link)));
        return;
    }
    if is_lane(sink, peer, link) {
        match reason(link, status) {
            Some(reason) => sink.lane_lost(peer, format_args!("{reason}"), status),
            None => sink.lane_down(peer, status),
        }
    }
}

/// Why a connection has ended, where that is more than the end of the peer, and what to do.
fn reason(link: &OfiTxLink, status: ucs_status_t) -> Option<String> {
    let refused = || format!("an access is refused: {}", advice::ON_REFUSED_ACCESS);
    match (status, link.is_peer_alive()) {
        (UCS_ERR_INVALID_ADDR, _) => Some(refused()),
        // The provider does not say more than that the connection has ended.
        (UCS_ERR_CONNECTION_RESET, Some(true)) if link.rma.is_cut_short() => Some(refused()),
        (UCS_ERR_CONNECTION_RESET, None) if link.rma.is_cut_short() => {
            Some(advice::ON_END_AMID_ACCESS.into())
        }
        _ => None,
    }
}

/// Whether a connection of a peer, by its sending half, is the peer's lane. True where there is no lane.
pub fn is_lane<S: Sink>(sink: S, peer: S::Peer, link: &Arc<OfiTxLink>) -> bool {
    let is_own = |lane: &mut Lane| match lane {
        Lane::Ofi(sender) => Arc::ptr_eq(&sender.link, link),
        _ => false,
    };
    sink.with_lane(peer, is_own) != Some(false)
}

/// Calls `act` with the sender to a peer, under the peer's lock. `None`: there is none.
pub fn with_sender<S: Sink, R>(
    sink: S,
    peer: S::Peer,
    act: impl FnOnce(&mut OfiSender) -> R,
) -> Option<R> {
    let called = sink.with_lane(peer, |lane| match lane {
        Lane::Ofi(sender) => Some(act(sender)),
        _ => None,
    });
    called.flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ctypes::UCS_ERR_ENDPOINT_TIMEOUT;
    use crate::sys::liveness_lock::LivenessLock;

    #[test]
    fn an_access_that_ends_with_its_connection_names_all_that_may_have_ended_it() {
        let (key, dead) = (0x7c0_5eed, 0x7c0_5eee);
        let _alive = LivenessLock::hold(key).unwrap();
        let links = [None, Some(key), Some(dead)].map(|lock| OfiTxLink::new(1, 2, 3, lock));
        let reset = |link| reason(link, UCS_ERR_CONNECTION_RESET);
        assert!(links.iter().all(|link| reset(link).is_none()));
        links.iter().for_each(|link| link.rma.cut_short());
        let [unknown, refused, ended] = links.each_ref().map(reset);
        let unknown = unknown.unwrap();
        for cause in ["process", "worker", "host", "network", "ucp_mem_map"] {
            assert!(unknown.contains(cause), "{cause}");
        }
        assert!(refused.unwrap().contains(advice::ON_REFUSED_ACCESS));
        assert!(ended.is_none());
        assert!(reason(&links[0], UCS_ERR_ENDPOINT_TIMEOUT).is_none());
        assert!(reason(&links[0], UCS_ERR_INVALID_ADDR).is_some());
    }
}
