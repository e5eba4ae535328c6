//! Transfers between user memory and the peer's memory, without a copy; long ones go by several rails.

use super::{IbSender, RcOrUd};
use crate::tl::Token;
use crate::tl::ib::bindings::ibv_sge;
use crate::tl::ib::rails::RailState;
use crate::tl::ib::rc::{RcEp, RemoteMem, ZcopyDesc};

/// Bytes of a transfer that go by one rail at a time: long enough that a work request costs little, short enough that
/// the rails complete at about the same time.
const PIECE: usize = 128 << 10;

/// Limits of one work request.
#[derive(Clone, Copy, Debug)]
pub struct ZcopyLimits {
    /// Maximum number of memory ranges that it names.
    pub ranges: usize,
    /// Maximum bytes that it moves.
    pub bytes: usize,
}

impl IbSender {
    /// Whether devices can move long messages, provided that memory can be registered and, with datagrams, rails can be
    /// created.
    pub fn zcopy_capable(&self) -> bool {
        self.is_connected() || self.rails.alone
    }

    /// Moves up to one work request's bytes between user memory and the peer's memory, without a copy; returns how
    /// many. [`on_send_completion`](Self::on_send_completion) reports the owner, once for each work request; the peer
    /// gets `word` as an immediate after the last bytes of a write, which counts as a packet. 0: there is no room now,
    /// or no RC queue pair.
    pub fn post_zcopy(&mut self, here: ZcopyDesc, there: RemoteMem, word: Option<u32>) -> usize {
        let n = here.len.min(self.iface.port.longest);
        let last = n == here.len;
        let word = word.filter(|_| last);
        let Some(rc_ep) = self.rc_for_zcopy(word.is_some()) else {
            return 0;
        };
        if !rc_ep.post_zcopy(ZcopyDesc { len: n, ..here }, there, last, word) {
            self.fail();
        }
        n
    }

    /// [`post_zcopy`](Self::post_zcopy) for memory in several ranges, within [`zcopy_limits`](Self::zcopy_limits).
    /// `last`: they are the last ones of the transfer. False: there is no room now, or no RC queue pair.
    pub fn post_zcopy_iov(
        &mut self,
        here: ZcopyDesc,
        pieces: &mut [ibv_sge],
        there: RemoteMem,
        last: bool,
        word: Option<u32>,
    ) -> bool {
        let word = word.filter(|_| last);
        let Some(rc_ep) = self.rc_for_zcopy(word.is_some()) else {
            return false;
        };
        if !rc_ep.post_zcopy_iov(here, pieces, there, last, word) {
            self.fail();
        }
        true
    }

    /// The RC queue pair, if it has room for a work request, which counts as a packet if it carries an immediate.
    pub(super) fn rc_for_zcopy(&mut self, word: bool) -> Option<&mut RcEp> {
        if self.broken || word && !self.has_space(1) {
            return None;
        }
        let RcOrUd::Rc { rc_ep, sent, .. } = &mut self.transport else {
            return None;
        };
        if !rc_ep.has_room(1) {
            return None;
        }
        *sent = sent.wrapping_add(u32::from(word));
        Some(rc_ep)
    }

    /// Limits of one work request.
    pub fn zcopy_limits(&self) -> ZcopyLimits {
        let ranges = match &self.transport {
            RcOrUd::Rc { rc_ep, .. } => rc_ep.qp.max_pieces as usize,
            RcOrUd::Ud(_) => 0,
        };
        ZcopyLimits {
            ranges,
            bytes: self.iface.port.longest,
        }
    }

    /// Moves one piece of user memory by the one of at most `most` queue pairs, that of the connection, if it has one,
    /// and its rails, that will have completed its transfers first; returns the bytes. `keys`: the local and the remote
    /// key, for a port of this worker and one of the peer's; `None`: those ports cannot be used. 0: there is no room
    /// now.
    pub fn post_striped(
        &mut self,
        here: ZcopyDesc,
        addr: u64,
        most: usize,
        keys: impl Fn(usize, usize) -> Option<(u32, u32)>,
    ) -> usize {
        if self.broken {
            return 0;
        }
        let own = match &mut self.transport {
            RcOrUd::Rc { rc_ep, .. } => Some((rc_ep, self.remote_port, None)),
            RcOrUd::Ud(_) => None,
        };
        let rails = self.rails.lines.iter_mut();
        let rails = rails.filter(|rail| rail.state == RailState::Open);
        let rails = rails.map(|rail| (&mut rail.rc_ep, rail.remote_port, Some(&mut rail.state)));
        let best = (own.into_iter().chain(rails).take(most))
            .filter_map(|(rc_ep, port, state)| {
                let keys = keys(rc_ep.local_port(), port)?;
                rc_ep.has_room(1).then_some((rc_ep, state, keys))
            })
            .min_by_key(|(rc_ep, ..)| {
                let load = rc_ep.load();
                (load.bytes + PIECE as u64).saturating_mul(1000) / u64::from(load.mbps)
            });
        let Some((rc_ep, state, (key, remote))) = best else {
            return 0;
        };
        let len = here.len.min(PIECE).min(rc_ep.longest());
        // Each piece is signaled: no message behind it on the same queue pair has a completion that covers it.
        let there = RemoteMem { addr, key: remote };
        if !rc_ep.post_zcopy(ZcopyDesc { len, key, ..here }, there, true, None) {
            match state {
                // The piece counts as one of the rail; other queue pairs move all pieces of the rail when it is closed.
                Some(state) => {
                    *state = RailState::Refused;
                    let rail = (rc_ep.local_port(), rc_ep.qp.number);
                    self.rails.refused.push(rail);
                }
                None => self.fail(),
            }
        }
        len
    }

    /// The owners of user memory that the device accesses, once for each work request.
    pub fn zcopy_owners(&self) -> impl Iterator<Item = Token> {
        self.rcs().flat_map(|rc_ep| rc_ep.zcopy_owners())
    }
}
