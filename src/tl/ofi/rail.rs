//! Rails: a further interface to the fabric of the lane, which reads parts of long messages.
//!
//! Both workers have to have one. The receiver of the first long message connects it, as an interface connects the
//! lane, but no record is sent by it, so that it orders nothing: the receiver waits for the completions of all parts.
//! What a rail that fails has not read is read by the lane.

use super::endpoint_rma::{OfiLocalMem, OfiRemoteMem};
use super::shared_ep::OfiSharedEp;
use super::tx_link::OfiTxLink;
use crate::tl::Token;
use crate::tl::rma::MrKey;
use std::sync::Arc;

/// Messages of at least this length are read by several interfaces, bytes.
pub const MIN_SHARED: usize = 256 << 10;
/// Bytes of a part, at least and at most.
const MIN_PART: usize = 128 << 10;
const MAX_PART: usize = 1 << 20;

/// A connection by a further interface.
#[derive(Clone)]
pub struct OfiRail {
    pub ep: Arc<OfiSharedEp>,
    pub link: Arc<OfiTxLink>,
}

/// The rail of a sender.
#[derive(Default)]
pub enum OfiRailState {
    /// No long message has come.
    #[default]
    Unwanted,
    /// It is to be connected, or is.
    Asked,
    Open(OfiRail),
    /// It has failed, or cannot be connected. It is connected again at `until`, coarse milliseconds.
    Lost {
        rail: Option<OfiRail>,
        until: u64,
    },
}

impl OfiRail {
    /// Posts a read of the next part of a message of `len` bytes, whose rest begins at `addr`, by this key. Returns its
    /// bytes; 0: there is no room now.
    ///
    /// # Safety
    /// The memory is writable, and stays registered with its descriptor, until the request of the token is complete.
    pub unsafe fn read(
        &self,
        key: MrKey,
        addr: u64,
        here: OfiLocalMem,
        len: usize,
        token: Token,
    ) -> usize {
        let there = OfiRemoteMem {
            peer: self.link.addr,
            offset: key.offset(addr),
            key: key.key(),
        };
        let here = OfiLocalMem {
            len: part(len, here.len),
            ..here
        };
        // SAFETY: the caller's memory.
        unsafe { (self.ep).zcopy(&self.link, there, here, false, token) }
    }
}

impl OfiSharedEp {
    /// The sender of a connection wants a rail: [`take_wanted_rails`](Self::take_wanted_rails) returns the connection.
    pub fn want_rail(&self, link: &Arc<OfiTxLink>) {
        self.queues.lock().wanted_rails.push(link.clone());
    }

    /// Takes the connections whose senders want a rail.
    pub fn take_wanted_rails(&self) -> Vec<Arc<OfiTxLink>> {
        std::mem::take(&mut self.queues.lock().wanted_rails)
    }
}

/// The length of the next part of a message of `len` bytes of which `left` are not posted.
pub fn part(len: usize, left: usize) -> usize {
    left.min((len / 8).clamp(MIN_PART, MAX_PART))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_long_enough_and_not_too_long() {
        assert_eq!(part(MIN_SHARED, MIN_SHARED), MIN_PART);
        assert_eq!(part(MIN_SHARED, 1), 1);
        assert_eq!(part(4 << 20, 4 << 20), 512 << 10);
        assert_eq!(part(1 << 30, 1 << 30), MAX_PART);
    }
}
