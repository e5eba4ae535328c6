//! What a worker waits for, on its statistics page: the layout of this block, and how a copy of it is read.
//!
//! The block is in the first page, behind the names. It is written a few times a second by the worker's progress, and
//! when the worker arms its wakeup. The writer is `engine::waits`; readers (`rucp_top --stuck`) check everything.
#![forbid(unsafe_code)]

use super::stats::{header, text_at, u32_at, u64_at};

/// Rows of the block: the oldest operations that wait.
pub const ROWS: usize = 32;
/// Bytes of a row.
pub const ROW_LEN: usize = 96;
/// Bytes of a peer's address in a row.
pub const PLACE_LEN: usize = 56;
/// Bytes in front of the rows.
pub const ROWS_AT: usize = 128;
/// Bytes of the block.
pub const BLOCK_LEN: usize = ROWS_AT + ROWS * ROW_LEN;

/// Offsets in the block. Times are milliseconds of `CLOCK_MONOTONIC_COARSE`; 0: never.
pub mod block {
    /// Odd while the block is written.
    pub const SEQUENCE: usize = 0;
    pub const PROGRESSED: usize = 8;
    pub const QUIET: usize = 16;
    pub const ARMED: usize = 24;
    pub const ROWS_USED: usize = 32;
    pub const FOUND: usize = 40;
    pub const UNEXPECTED_TAG: usize = 48;
    pub const UNEXPECTED_SINCE: usize = 56;
    pub const WALKED: usize = 64;
}

/// Offsets in a row.
pub mod row {
    pub const SINCE: usize = 0;
    pub const TAG: usize = 8;
    pub const BYTES: usize = 16;
    pub const PEER: usize = 24;
    pub const PID: usize = 32;
    pub const OPERATION: usize = 36;
    pub const CAUSE: usize = 37;
    pub const PLACE: usize = 40;
}

macro_rules! named {
    ($(#[$outer:meta])* $Enum:ident { $($(#[$doc:meta])* $Name:ident = $value:literal, $text:literal;)* }) => {
        $(#[$outer])*
        #[repr(u8)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $Enum {
            $($(#[$doc])* $Name = $value,)*
        }

        impl $Enum {
            /// The value with this number, if there is one.
            fn from_u8(number: u8) -> Option<Self> {
                match number {
                    $($value => Some($Enum::$Name),)*
                    _ => None,
                }
            }

            /// The name for users.
            pub fn name(self) -> &'static str {
                match self {
                    $($Enum::$Name => $text,)*
                }
            }
        }
    };
}

named! {
    /// Kind of an operation that waits.
    WaitOp {
        TagRecv = 1, "tag receive";
        StreamRecv = 2, "stream receive";
        TagSend = 3, "tag send";
        AmSend = 4, "active message";
        StreamSend = 5, "stream send";
        Put = 6, "put";
        Get = 7, "get";
        Atomic = 8, "atomic";
        Flush = 9, "flush";
        Close = 10, "close";
        Connect = 11, "connect";
        /// The receive of an active message whose data are fetched.
        AmRecv = 12, "active message receive";
        /// A message of the library.
        Control = 13, "control message";
        /// The data of a rendezvous, which the receiver has asked for.
        RndvSend = 14, "rendezvous send";
    }
}

named! {
    /// What an operation waits for, as far as its worker knows.
    WaitCause {
        /// No message has come that it matches.
        Unmatched = 1, "unmatched";
        /// There is no room in the peer's ring, or in the socket.
        NoRoom = 2, "no room";
        /// The peer has not answered a connect request.
        Unconnected = 3, "unconnected";
        /// The receiver has not received it: no receive matches, or the data of an active message are not fetched.
        NotReceived = 4, "not received";
        /// The peer has not replied.
        Unanswered = 5, "unanswered";
        /// The sender's data have not come.
        NoData = 6, "no data";
        /// The peer has not closed its end.
        Closing = 7, "closing";
    }
}

/// An operation that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitRow {
    /// Since when nothing has moved it.
    pub since: u64,
    pub op: WaitOp,
    pub cause: WaitCause,
    /// Of tagged messages.
    pub tag: u64,
    pub bytes: u64,
    /// Uid of the worker that is waited for; 0: not known.
    pub peer: u64,
    /// Its process in the namespace of this one; 0: not known, or on another host.
    pub pid: u32,
    /// Its network address; empty: not known, or not used.
    pub place: String,
}

/// The block of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitSnapshot {
    /// When the worker progressed last, to within a quarter of a second.
    pub progressed: u64,
    /// When the rows were true.
    pub walked: u64,
    /// Since when it has neither sent nor received a message.
    pub quiet: u64,
    /// When it was armed, if it has not progressed since then.
    pub armed: Option<u64>,
    /// Operations that were found to wait, of which the oldest have rows.
    pub found: u64,
    /// Tag of the oldest message that no receive matches, and since when it was seen.
    pub unexpected: Option<(u64, u64)>,
    pub rows: Vec<WaitRow>,
}

/// Whether the block was written while `copy` of a page was made; `again` is a copy of the first page made after it.
pub fn was_written(copy: &[u8], again: &[u8]) -> bool {
    let sequence = |page: &[u8]| u64_at(page, header::WAITS + block::SEQUENCE);
    sequence(copy) % 2 == 1 || sequence(copy) != sequence(again)
}

/// Decodes a copy of the block. `None`: the worker's library writes none. No value is trusted.
pub fn decode(block: &[u8]) -> Option<WaitSnapshot> {
    let progressed = u64_at(block, block::PROGRESSED);
    let set = |at: usize| Some(u64_at(block, at)).filter(|&time| time != 0);
    let used = (u64_at(block, block::ROWS_USED) as usize).min(ROWS);
    let rows = block.get(ROWS_AT..).unwrap_or_default();
    (progressed != 0).then(|| WaitSnapshot {
        progressed,
        walked: u64_at(block, block::WALKED),
        quiet: u64_at(block, block::QUIET),
        armed: set(block::ARMED),
        found: u64_at(block, block::FOUND),
        unexpected: set(block::UNEXPECTED_SINCE)
            .map(|since| (u64_at(block, block::UNEXPECTED_TAG), since)),
        rows: rows
            .chunks_exact(ROW_LEN)
            .take(used)
            .filter_map(decode_row)
            .collect(),
    })
}

fn decode_row(bytes: &[u8]) -> Option<WaitRow> {
    Some(WaitRow {
        since: u64_at(bytes, row::SINCE),
        op: WaitOp::from_u8(*bytes.get(row::OPERATION)?)?,
        cause: WaitCause::from_u8(*bytes.get(row::CAUSE)?)?,
        tag: u64_at(bytes, row::TAG),
        bytes: u64_at(bytes, row::BYTES),
        peer: u64_at(bytes, row::PEER),
        pid: u32_at(bytes, row::PID),
        place: text_at(bytes, row::PLACE..row::PLACE + PLACE_LEN),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_a_library_without_one_is_none() {
        assert_eq!(decode(&[0; BLOCK_LEN]), None);
        assert_eq!(decode(&[]), None);
    }

    #[test]
    fn rows_with_unknown_numbers_are_left_out() {
        let mut bytes = vec![0; BLOCK_LEN];
        bytes[block::PROGRESSED] = 1;
        bytes[block::ROWS_USED..block::ROWS_USED + 8].fill(0xff);
        let first = ROWS_AT;
        bytes[first + row::OPERATION] = WaitOp::Get as u8;
        bytes[first + row::CAUSE] = WaitCause::Unanswered as u8;
        bytes[first + ROW_LEN + row::OPERATION] = 200;
        let waits = decode(&bytes).unwrap();
        assert_eq!(waits.rows.len(), 1);
        assert_eq!(
            (waits.rows[0].op, waits.rows[0].cause),
            (WaitOp::Get, WaitCause::Unanswered)
        );
    }

    proptest::proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..BLOCK_LEN + 9)) {
            let rows = decode(&bytes).map_or(0, |waits| waits.rows.len());
            assert!(rows <= ROWS);
        }
    }
}
