//! Rows of the options of connections by socket address.
#![forbid(unsafe_code)]

use crate::options::choice::LogLevel;
use crate::options::kind::OptionKind::*;
use crate::options::section::{OptionBlock, Section, Strictness, row};

/// What every way to connect by socket address has.
const CM: OptionBlock = OptionBlock {
    aliases: &["CM_"],
    rows: &[
        row(
            "FAILURE",
            Choice(LogLevel::NAMES),
            "DIAG",
            "Level of messages about failed connections.",
        ),
        row(
            "REUSEADDR",
            Bool,
            "n",
            "Listen on an address that is in use.",
        ),
    ],
};

/// Connections by socket address over TCP.
pub static TCP_CM: Section = Section {
    title: "Connections over TCP",
    prefix: "TCP_CM_",
    blocks: &[
        CM,
        OptionBlock {
            aliases: &[],
            rows: &[
                row(
                    "PRIV_DATA_LEN",
                    Size,
                    "2K",
                    "Room for data in a connection request.",
                ),
                row("SNDBUF", Size, "auto", "Send buffer of a socket."),
                row("RCVBUF", Size, "auto", "Receive buffer of a socket."),
                row(
                    "SYN_CNT",
                    Count,
                    "auto",
                    "Repetitions of the first segment of a connection.",
                ),
                row(
                    "USER_TIMEOUT",
                    Interval,
                    "auto",
                    "A connection whose data is unacknowledged for so long is broken.",
                ),
            ],
        },
    ],
    defaults: &[],
    strictness: Strictness::Worker(None),
};

/// Connections by socket address over librdmacm.
pub static RDMA_CM: Section = Section {
    title: "Connections over RDMA-CM",
    prefix: "RDMA_CM_",
    blocks: &[
        CM,
        OptionBlock {
            aliases: &[],
            rows: &[
                row(
                    "TIMEOUT",
                    Time,
                    "10000000.00us",
                    "Longest resolution of an address or route.",
                ),
                row(
                    "RESERVED_QPN",
                    Ternary,
                    "try",
                    "Take queue pair numbers from a reserved range.",
                ),
                row(
                    "SOURCE_ADDRESS",
                    Text,
                    "",
                    "Local address of outgoing connections.",
                ),
            ],
        },
    ],
    defaults: &[],
    strictness: Strictness::Report,
};
