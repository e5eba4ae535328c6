//! A connection of an interface with a peer.

use super::choice::IfaceRole;
use super::hello::{HelloAge, PendingHello};
use super::loss_check::LossCheck;
use super::packet::Grant;
use super::reorder::OfiReorder;
use super::sender::OfiSender;
use super::tx_link::OfiTxLink;
use crate::ctypes::ucs_status_t;
use crate::sys::liveness_lock;
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
    pub link: Arc<OfiTxLink>,
    /// The peer's address, which is inserted as long as the connection exists.
    pub name: Arc<[u8]>,
    /// Key that packets to this end have to carry.
    pub key: u64,
    /// The peer's end; `None` until the peer has answered.
    pub remote: Option<Grant>,
    /// When it was begun, coarse milliseconds.
    pub begun: u64,
    /// Key of the lock that the peer holds as long as it lives, if this process sees it.
    pub lock: Option<u64>,
    pub order: OfiReorder,
    /// It is listed in [`OfiWorker::broken`](super::worker::OfiWorker::broken), or was.
    pub is_broken: bool,
    /// The peer has ended the connection, or has acknowledged its end.
    pub has_ended: bool,
    /// The peer's lock was found released while sends to it waited. The connection ends when everything that had
    /// arrived was handled.
    pub lost_lock: bool,
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

    /// Whether the peer has not answered the request to connect in time.
    pub fn has_expired(&self) -> bool {
        let request = self.request.as_ref();
        request.is_some_and(|request| request.age == HelloAge::Expired)
    }

    /// Whether sends wait: for room, or for their completions.
    pub fn awaits_sends(&self) -> bool {
        !self.is_broken && self.peer.is_some() && !(self.link.is_idle() && self.link.has_room())
    }

    /// Whether the peer's process has ended, as far as its lock shows it.
    pub fn is_dead(&self) -> bool {
        self.lock.is_some_and(|key| !liveness_lock::is_held(key))
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
    let is_other = |lane: &mut Lane| match lane {
        Lane::Ofi(sender) => !Arc::ptr_eq(&sender.link, link),
        _ => true,
    };
    if sink.with_lane(peer, is_other) != Some(true) {
        sink.lane_down(peer, status);
    }
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
