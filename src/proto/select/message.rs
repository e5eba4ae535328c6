//! Protocol of a message: one of the eager ones, or rendezvous. It follows from the size, the lane to the peer and the
//! user's hints, and for memory of devices from what copies cost ([`device`]). The only place that decides it: the
//! posts, the hot path and the printed protocols call these functions.

use super::device;
use crate::engine::datatype::Data;
use crate::engine::peer::Peer;
use crate::engine::policy::Policy;
use crate::engine::worker::{MAX_AM_HEADER, Worker};
use crate::tl::contract::{AmLimits, FRAGMENT, MAX_BCOPY, MAX_SEG, MAX_SHORT};
use crate::wire::frame::MAX_RECORD;
use crate::wire::stats::StatProtocol;

/// Longest message that is sent in one record of a ring, without the user header, bytes.
pub const MAX_EAGER: usize = 24 << 10;

/// How the payload gets to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// With the message.
    Eager(Eager),
    /// After the receiver's answer to an RTS: [`super::rndv`] selects the scheme.
    Rendezvous,
}

/// How an eager message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eager {
    /// In one record that fits into a slot of a ring.
    Short,
    /// In one record, into which the payload is copied.
    Bcopy,
    /// In one record, which a socket reads from user memory.
    Zcopy,
    /// In several records: the user requires eager, and one cannot hold the message.
    Fragments,
}

impl Protocol {
    /// Whether the message is sent completely in one record.
    pub fn is_one_record(self) -> bool {
        matches!(
            self,
            Protocol::Eager(Eager::Short | Eager::Bcopy | Eager::Zcopy)
        )
    }
}

impl Eager {
    /// How one record is sent. `bytes`: its payload and headers; `zcopy`: the lane sends the payload from user memory.
    #[inline(always)]
    fn one_record(bytes: usize, zcopy: bool) -> Eager {
        match bytes {
            _ if zcopy => Eager::Zcopy,
            ..=MAX_SHORT => Eager::Short,
            _ => Eager::Bcopy,
        }
    }
}

/// The statistics entry of an eager message. `bytes`: its payload and headers.
#[inline(always)]
pub fn counted(bytes: usize) -> StatProtocol {
    match bytes {
        ..=MAX_SHORT => StatProtocol::Short,
        _ => StatProtocol::Eager,
    }
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
const _: () = assert!(MAX_EAGER + MAX_AM_HEADER + MAX_HEAD <= crate::wire::packet_hdr::MAX_RECORD);

/// Longest message that is sent in one record of a socket, bytes: the segment size of the options, but at least
/// [`MAX_EAGER`]. `in_place`: it is sent from user memory.
pub fn longest_by_socket(limits: &AmLimits, in_place: bool) -> usize {
    MAX_EAGER.max(if in_place {
        limits.max_zcopy
    } else {
        limits.max_bcopy
    })
}

/// Longest record that is sent through a socket, bytes.
pub fn longest_record(limits: &AmLimits) -> usize {
    let message = longest_by_socket(limits, true).max(longest_by_socket(limits, false));
    message + MAX_AM_HEADER + MAX_HEAD
}

/// Whether a socket sends contiguous data of `len` bytes from user memory.
pub fn is_zcopy(policy: &Policy, len: usize) -> bool {
    len >= policy.zcopy_thresh
}

/// What one record of a lane does for a message of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLimit {
    /// Longest message that it holds, bytes.
    pub max: usize,
    /// The payload is sent from user memory.
    pub zcopy: bool,
}

/// What one record to a peer does for a message of `len` bytes. `contig`: its data are contiguous.
pub fn record_limit(worker: &Worker, peer: &Peer, len: usize, contig: bool) -> RecordLimit {
    // The lane of the peer that will replace a stub peer is unknown. Other lanes than TCP copy all data of a message.
    if peer.is_stub() || !peer.has_socket() {
        return RecordLimit {
            max: MAX_EAGER,
            zcopy: false,
        };
    }
    let zcopy = contig && is_zcopy(&worker.ctx.policy, len);
    RecordLimit {
        max: longest_by_socket(&worker.ctx.tl.tcp.policy.am_limits, zcopy),
        zcopy,
    }
}

/// The protocol for `data` to a peer. `extra`: bytes of the user's header.
#[inline(always)] // a call takes 50 instructions more over TCP
pub fn to_peer(worker: &Worker, peer: &Peer, data: &Data, extra: usize, wish: Hint) -> Protocol {
    if let Data::Device { .. } = data {
        return device::to_peer(worker, peer, data, extra, wish);
    }
    let len = data.len();
    let limit = record_limit(worker, peer, len, data.as_contig().is_some());
    let thresh = peer.rndv_thresh(&worker.ctx.policy);
    protocol(len, extra, thresh, limit, by_user(worker, peer, wish))
}

/// The user's choice, or that of the options where the user leaves it open.
#[inline(always)]
pub fn by_user(worker: &Worker, peer: &Peer, wish: Hint) -> Hint {
    match wish {
        Hint::None => by_threshold(worker, peer),
        forced => forced,
    }
}

/// How the options choose the protocol of messages to a peer where the user leaves it open.
pub fn by_threshold(worker: &Worker, peer: &Peer) -> Hint {
    let policy = &worker.ctx.policy;
    let is_auto = match peer.inbox {
        Some(_) => policy.rndv_auto_intra,
        None => policy.rndv_auto_inter,
    };
    if is_auto { Hint::Whole } else { Hint::None }
}

/// Whether a message without a header is eager on any lane, in one record, without the call of [`protocol`].
#[inline(always)]
pub fn is_eager(len: usize, thresh: usize) -> bool {
    len <= MAX_EAGER && len < thresh
}

/// `len`: bytes of the message; `extra`: of the user's header; `thresh`: minimum of both together for a rendezvous,
/// `usize::MAX` for none.
pub fn protocol(
    len: usize,
    extra: usize,
    thresh: usize,
    limit: RecordLimit,
    wish: Hint,
) -> Protocol {
    let fits = len <= limit.max && len + extra <= limit.max + MAX_AM_HEADER;
    let short = thresh == usize::MAX || len.saturating_add(extra) < thresh;
    match wish {
        Hint::Eager | Hint::None | Hint::Whole if fits && (short || wish == Hint::Eager) => {
            Protocol::Eager(Eager::one_record(len + extra, limit.zcopy))
        }
        Hint::Eager => Protocol::Eager(Eager::Fragments),
        Hint::None if short => Protocol::Eager(Eager::Fragments),
        Hint::None | Hint::Whole | Hint::Rendezvous => Protocol::Rendezvous,
    }
}

/// How stream data of `len` bytes are sent. A stream has no rendezvous. `zcopy`: the lane sends them from user memory
/// where one record holds them.
#[inline(always)]
pub fn stream(len: usize, zcopy: bool) -> Eager {
    match len {
        ..=MAX_EAGER => Eager::one_record(len, zcopy),
        _ => Eager::Fragments,
    }
}

const _: () = assert!(
    MAX_EAGER + MAX_AM_HEADER <= MAX_BCOPY && FRAGMENT + MAX_HEAD + MAX_AM_HEADER <= MAX_BCOPY
);

#[cfg(test)]
mod tests {
    use super::*;
    use Eager::{Bcopy, Fragments, Short, Zcopy};
    use Protocol::{Eager as Sent, Rendezvous};

    const THRESH: usize = 16 << 10;

    fn limit(max: usize) -> RecordLimit {
        RecordLimit { max, zcopy: false }
    }

    #[test]
    fn thresholds_and_hints() {
        let copied = limit(MAX_EAGER);
        let by = |len, extra, thresh| protocol(len, extra, thresh, copied, Hint::None);
        assert_eq!(by(0, 0, 0), Rendezvous);
        assert_eq!([by(0, 0, 1), by(1, 0, 1)], [Sent(Short), Rendezvous]);
        assert_eq!([by(0, 0, 1), by(0, 1, 1)], [Sent(Short), Rendezvous]);
        let both = [by(127, 0, 128), by(127, 1, 128), by(128, 0, 128)];
        assert_eq!(
            both,
            [Sent(Bcopy), Rendezvous, Rendezvous],
            "the header counts"
        );
        assert_eq!(by(THRESH - 1, 0, THRESH), Sent(Bcopy));
        assert_eq!(by(THRESH, 0, THRESH), Rendezvous);
        assert_eq!(by(MAX_EAGER + 1, 0, 1 << 20), Sent(Fragments), "below it");
        assert_eq!(by(1 << 20, 0, 1 << 20), Rendezvous);
        assert_eq!(by(1 << 40, 8192, usize::MAX), Sent(Fragments), "inf");
        assert_eq!(by(usize::MAX, 0, usize::MAX), Sent(Fragments));
        for (len, thresh) in [(0, 0), (0, 1), (1, 1), (8, 9), (MAX_EAGER, usize::MAX)] {
            assert_eq!(is_eager(len, thresh), by(len, 0, thresh).is_one_record());
        }
        assert!(!is_eager(MAX_EAGER + 1, usize::MAX));
        let auto = |len| protocol(len, 0, 64 << 10, copied, Hint::Whole);
        let longer_than_a_record = [auto(MAX_EAGER), auto(MAX_EAGER + 1)];
        assert_eq!(longer_than_a_record, [Sent(Bcopy), Rendezvous]);
        let eager = |len| protocol(len, 8192, 0, copied, Hint::Eager);
        assert_eq!(eager(MAX_EAGER), Sent(Bcopy));
        assert_eq!([eager(MAX_EAGER + 1), eager(1 << 40)], [Sent(Fragments); 2]);
        let long_records = protocol(1 << 20, 0, (1 << 20) + 1, limit(1 << 20), Hint::None);
        assert_eq!(long_records, Sent(Bcopy));
        assert_eq!(
            protocol(8, 0, usize::MAX, copied, Hint::Rendezvous),
            Rendezvous
        );
    }

    #[test]
    fn one_record_is_short_copied_or_sent_from_user_memory() {
        let by = |len, extra, zcopy| {
            let limit = RecordLimit {
                max: MAX_EAGER,
                zcopy,
            };
            protocol(len, extra, usize::MAX, limit, Hint::None)
        };
        assert_eq!(
            [by(MAX_SHORT, 0, false), by(MAX_SHORT, 1, false)],
            [Sent(Short), Sent(Bcopy)]
        );
        assert_eq!([by(8, 0, true), by(MAX_EAGER, 0, true)], [Sent(Zcopy); 2]);
        assert_eq!(
            [counted(MAX_SHORT), counted(MAX_SHORT + 1)],
            [StatProtocol::Short, StatProtocol::Eager]
        );
        let lens = [0, MAX_SHORT, MAX_SHORT + 1, MAX_EAGER, MAX_EAGER + 1];
        let copied = lens.map(|len| stream(len, false));
        assert_eq!(copied, [Short, Short, Bcopy, Bcopy, Fragments]);
        assert_eq!(
            [stream(8, true), stream(MAX_EAGER + 1, true)],
            [Zcopy, Fragments]
        );
    }
}
