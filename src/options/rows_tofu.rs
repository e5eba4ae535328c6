//! Rows of the options of the Tofu interconnect, which UCX has not.
#![forbid(unsafe_code)]

use super::kind::Kind::*;
use super::rows_devices::IFACE;
use super::table::{Block, Section, Strictness, row};

/// uTofu.
pub static TOFU: Section = Section {
    title: "Tofu transport (beyond UCX)",
    prefix: "TOFU_",
    blocks: &[
        Block {
            aliases: &[],
            rows: &[
                row(
                    "SEG_SIZE",
                    Size,
                    "4K",
                    "Size of the longest frame; longer messages take several. At least 256, at most 1M.",
                ),
                row(
                    "RING_SIZE",
                    Size,
                    "64K",
                    "Memory for the frames of each peer that sends to a worker; at least what the longest message takes.",
                ),
                row(
                    "WINDOW",
                    Uint,
                    "32",
                    "Frames that a peer may send before it hears that some were read.",
                ),
                row(
                    "RX_QUEUE_LEN",
                    Uint,
                    "1024",
                    "Notices of frames that a message receive queue has room for; peers beyond that send without.",
                ),
            ],
        },
        Block {
            rows: IFACE,
            aliases: &[""],
        },
    ],
    defaults: &[],
    strictness: Strictness::Worker(Some("tofu")),
};
