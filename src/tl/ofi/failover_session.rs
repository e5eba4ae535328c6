//! What goes on when a connection moves to another interface: the numbers of packets in both directions.
#![forbid(unsafe_code)]

use super::packet::Grant;
use super::tx_link::OfiTxLink;
use crate::ctypes::ucs_status_t;
use crate::sys::clock;
use std::sync::Arc;

/// Failover of a connection.
#[derive(Default)]
pub enum ConnFailover {
    /// It has none: a failure ends the connection.
    #[default]
    Off,
    /// The request to connect asks for it: of this request, or of the first one that has failed before, this is the key
    /// that this end has granted.
    Wanted(u64),
    On(Box<OfiSession>),
    /// Another connection carries the packets, since this time, coarse milliseconds: those that arrive late by this one
    /// are dropped, and sent again.
    Moved(u64),
}

/// The packets between two workers, whichever interfaces carry them. Each record is kept until the peer has
/// acknowledged it, and is sent again by the next interface.
pub struct OfiSession {
    /// The keys that both ends have granted first. Only the two workers know them.
    pub own_key: u64,
    pub peer_key: u64,
    /// The peer is known to have it: it has got the answer to its request to connect.
    pub is_known: bool,
    /// How often it has moved, attempts of this end included.
    pub generation: u32,
    /// Records that have arrived since the last acknowledgement.
    pub unacked: u32,
    /// The connection is listed in [`OfiIface::acks_due`](super::iface::OfiIface::acks_due).
    pub is_listed: bool,
    /// The first packet of this side that the peer had not acknowledged at the last look, and since when, coarse
    /// milliseconds.
    pub waits: Option<(u32, u64)>,
    /// When it moved last: the sender to the peer goes with it. That of another connection may carry what is sent.
    pub is_lane: bool,
    /// Key of the last connection of this end that the peer is known to use: a reset of it ends all.
    pub known_key: u64,
    /// Since when the peer, which has moved it, has sent nothing by the present connection, coarse milliseconds: the
    /// answer may be lost.
    pub silent_since: Option<u64>,
    /// The attempt to move, until the peer has answered.
    pub attempt: Option<MoveAttempt>,
}

/// An attempt to move a connection that has failed.
pub struct MoveAttempt {
    /// Why the connection has failed: the status of the peer if it cannot be moved.
    pub status: ucs_status_t,
    /// The device by which it has failed.
    pub device: String,
    /// Its interface and sending half, and the peer's end: a reset goes by it if the connection cannot be moved. As
    /// long as the link is held the connection is not removed, and the peer's address stays inserted.
    pub last: (usize, Arc<OfiTxLink>, Grant),
    /// When it is given up, and when the present way was tried first, coarse milliseconds.
    pub until: u64,
    pub tried: u64,
}

impl OfiSession {
    /// That of a connection that was just opened, whose own end has the key `known_key`: both ends have granted
    /// `own_key` and `peer_key` first, and it has moved so often.
    pub fn new((own_key, peer_key): (u64, u64), known_key: u64, generation: u32) -> OfiSession {
        OfiSession {
            own_key,
            peer_key,
            is_known: false,
            generation,
            unacked: 0,
            is_listed: false,
            waits: None,
            is_lane: false,
            known_key,
            silent_since: None,
            attempt: None,
        }
    }

    /// The peer uses the present connection of this end, which has this key.
    pub fn confirm(&mut self, key: u64) {
        (self.is_known, self.known_key, self.silent_since) = (true, key, None);
    }
}

impl ConnFailover {
    /// What goes on if the connection moves; `None`: it does not move.
    pub fn session(&self) -> Option<&OfiSession> {
        match self {
            ConnFailover::On(session) => Some(session),
            ConnFailover::Off | ConnFailover::Wanted(_) | ConnFailover::Moved(_) => None,
        }
    }

    /// [`session`](Self::session), to change it.
    pub fn session_mut(&mut self) -> Option<&mut OfiSession> {
        match self {
            ConnFailover::On(session) => Some(session),
            ConnFailover::Off | ConnFailover::Wanted(_) | ConnFailover::Moved(_) => None,
        }
    }

    /// Takes what goes on by another connection.
    pub fn take_session(&mut self) -> Option<Box<OfiSession>> {
        match std::mem::replace(self, ConnFailover::Moved(clock::coarse_ms())) {
            ConnFailover::On(session) => Some(session),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Whether this side has asked for failover.
    pub fn is_wanted(&self) -> bool {
        matches!(self, ConnFailover::Wanted(_))
    }

    /// Whether another connection carries the packets.
    pub fn has_moved(&self) -> bool {
        self.moved_at().is_some()
    }

    /// Since when another connection carries the packets, coarse milliseconds.
    pub fn moved_at(&self) -> Option<u64> {
        match self {
            ConnFailover::Moved(at) => Some(*at),
            ConnFailover::Off | ConnFailover::Wanted(_) | ConnFailover::On(_) => None,
        }
    }
}
