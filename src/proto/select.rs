//! Choice of the protocol of a message: a pure function of its size, the lane to the peer and the user's hints.
#![forbid(unsafe_code)]

pub mod amo;
pub mod rma;

use crate::engine::datatype::Data;
use crate::engine::peer::Peer;
use crate::engine::policy::{MAX_SEG, Policy};
use crate::engine::worker::{MAX_AM_HEADER, Worker};
use crate::wire::frame::MAX_RECORD;

/// Longest message that is sent in one record of a ring, without the user header, bytes.
pub const MAX_EAGER: usize = 24 << 10;
/// Longest part of a longer message in one record of a ring, bytes. From the second part on both sides copy at once, so
/// that shorter parts overlap more of a message; parts of half this length were not faster.
pub const FRAGMENT: usize = 8 << 10;

/// How the payload gets to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// With the message, in one record.
    Eager,
    /// With the message, in several records: the user requires eager, and it is too long for one.
    Fragments,
    /// After the receiver's answer to an RTS.
    Rendezvous,
}

/// The user's choice of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// The threshold of an option decides.
    None,
    /// None (`UCX_RNDV_THRESH=auto`): eager below the threshold where one record holds the message.
    Whole,
    /// For an active message: eager.
    Eager,
    /// For an active message: rendezvous.
    Rendezvous,
}

/// Maximum length of the library's header of a message, bytes.
const MAX_HEAD: usize = 64;
const _: () = assert!(MAX_SEG + MAX_AM_HEADER + MAX_HEAD <= MAX_RECORD);
const _: () = assert!(MAX_EAGER + MAX_AM_HEADER + MAX_HEAD <= crate::wire::ib_packet::MAX_RECORD);

/// Longest message that is sent in one record of a socket, bytes: the segment size of the options, but at least
/// [`MAX_EAGER`]. `in_place`: it is sent from user memory.
pub fn longest_by_socket(policy: &Policy, in_place: bool) -> usize {
    let tcp = &policy.connecting;
    MAX_EAGER.max(if in_place {
        tcp.rx_seg_size
    } else {
        tcp.tx_seg_size
    })
}

/// Longest record that is sent through a socket, bytes.
pub fn longest_record(policy: &Policy) -> usize {
    let message = longest_by_socket(policy, true).max(longest_by_socket(policy, false));
    message + MAX_AM_HEADER + MAX_HEAD
}

/// Longest message that is sent to a peer in one record, bytes. `contig`: its data are contiguous.
pub fn longest(worker: &Worker, peer: &Peer, len: usize, contig: bool) -> usize {
    let policy = &worker.ctx.policy;
    // The lane of the peer that will replace a stub peer is unknown. Other lanes than TCP copy all data of a message.
    if peer.is_stub() || !peer.has_socket() {
        MAX_EAGER
    } else {
        longest_by_socket(policy, contig && len >= policy.zcopy_thresh)
    }
}

/// The protocol for `data` to a peer. `extra`: bytes of the user's header.
pub fn to_peer(worker: &Worker, peer: &Peer, data: &Data, extra: usize, wish: Hint) -> Protocol {
    let (len, thresh) = (data.len(), peer.rndv_thresh(worker));
    let max = longest(worker, peer, len, data.as_contig().is_some());
    let wish = match wish {
        Hint::None => by_threshold(worker, peer),
        forced => forced,
    };
    protocol(len, extra, thresh, max, wish)
}

/// How the options choose the protocol of messages to a peer where the user leaves it open.
pub fn by_threshold(worker: &Worker, peer: &Peer) -> Hint {
    let auto = worker.ctx.policy.rndv_auto;
    match if peer.inbox.is_some() { auto.0 } else { auto.1 } {
        true => Hint::Whole,
        false => Hint::None,
    }
}

/// Whether a message without a header is eager on any lane, without the call of [`protocol`].
#[inline(always)]
pub fn is_eager(len: usize, thresh: usize) -> bool {
    len <= MAX_EAGER && len < thresh
}

/// `len`: bytes of the message; `extra`: of the user's header; `thresh`: minimum of both together for a rendezvous,
/// `usize::MAX` for none; `max`: longest message in one record of the lane.
#[inline(always)]
pub fn protocol(len: usize, extra: usize, thresh: usize, max: usize, wish: Hint) -> Protocol {
    let fits = len <= max && len + extra <= max + MAX_AM_HEADER;
    let short = thresh == usize::MAX || len.saturating_add(extra) < thresh;
    match wish {
        Hint::Eager | Hint::None | Hint::Whole if fits && (short || wish == Hint::Eager) => {
            Protocol::Eager
        }
        Hint::Eager => Protocol::Fragments,
        Hint::None if short => Protocol::Fragments,
        Hint::None | Hint::Whole | Hint::Rendezvous => Protocol::Rendezvous,
    }
}

const _: () = assert!(
    cfg!(loom)
        || MAX_EAGER + MAX_AM_HEADER <= crate::tl::shm::ring::MAX_RECORD
            && FRAGMENT + MAX_HEAD + MAX_AM_HEADER <= crate::tl::shm::ring::MAX_RECORD
);

#[cfg(test)]
mod tests {
    use super::*;

    const THRESH: usize = 16 << 10;

    #[test]
    fn thresholds_and_wishes() {
        use Protocol::{Eager, Fragments, Rendezvous};
        let by = |len, extra, thresh| protocol(len, extra, thresh, MAX_EAGER, Hint::None);
        assert_eq!(by(0, 0, 0), Rendezvous);
        assert_eq!([by(0, 0, 1), by(1, 0, 1)], [Eager, Rendezvous]);
        assert_eq!([by(0, 0, 1), by(0, 1, 1)], [Eager, Rendezvous], "a header");
        let both = [by(127, 0, 128), by(127, 1, 128), by(128, 0, 128)];
        assert_eq!(both, [Eager, Rendezvous, Rendezvous]);
        assert_eq!(by(THRESH - 1, 0, THRESH), Eager);
        assert_eq!(by(THRESH, 0, THRESH), Rendezvous);
        assert_eq!(by(MAX_EAGER + 1, 0, 1 << 20), Fragments, "below it");
        assert_eq!(by(1 << 20, 0, 1 << 20), Rendezvous);
        assert_eq!(by(1 << 40, 8192, usize::MAX), Fragments, "inf");
        assert_eq!(by(usize::MAX, 0, usize::MAX), Fragments);
        for (len, thresh) in [(0, 0), (0, 1), (1, 1), (8, 9), (MAX_EAGER, usize::MAX)] {
            assert_eq!(is_eager(len, thresh), by(len, 0, thresh) == Eager);
        }
        assert!(!is_eager(MAX_EAGER + 1, usize::MAX));
        let auto = |len| protocol(len, 0, 64 << 10, MAX_EAGER, Hint::Whole);
        assert_eq!(
            [auto(MAX_EAGER), auto(MAX_EAGER + 1)],
            [Eager, Rendezvous],
            "longer than any ring"
        );
        assert_eq!(protocol(MAX_EAGER, 8192, 0, MAX_EAGER, Hint::Eager), Eager);
        assert_eq!(
            protocol(MAX_EAGER + 1, 0, 0, MAX_EAGER, Hint::Eager),
            Fragments
        );
        assert_eq!(
            protocol(1 << 40, 8192, 0, MAX_EAGER, Hint::Eager),
            Fragments
        );
        assert_eq!(
            protocol(1 << 20, 0, (1 << 20) + 1, 1 << 20, Hint::None),
            Eager
        );
        assert_eq!(
            protocol(8, 0, usize::MAX, MAX_EAGER, Hint::Rendezvous),
            Rendezvous
        );
    }
}
