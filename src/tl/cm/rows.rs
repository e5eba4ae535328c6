//! Rows and values of the options of connections by socket address.
#![forbid(unsafe_code)]

use crate::options::choice::LogLevel;
use crate::options::fields::option_fields;
use crate::options::kind::OptionKind::*;
use crate::options::section::{OptionBlock, Section, Strictness, row};
use crate::options::table::rows_tcp::SOCKET;
use std::time::Duration;

option_fields! {
    /// The options of connections by socket address that the library reads.
    CmOptions {
        tcp_reuseaddr: bool = "TCP_CM_REUSEADDR",
        rdma_reuseaddr: bool = "RDMA_CM_REUSEADDR",
        rdma_timeout: Duration = "RDMA_CM_TIMEOUT",
        rdma_source_address: String = "RDMA_CM_SOURCE_ADDRESS",
    }
}

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
            rows: &[row(
                "PRIV_DATA_LEN",
                Size,
                "2K",
                "Room for data in a connection request.",
            )],
        },
        OptionBlock {
            rows: SOCKET,
            aliases: &[],
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
