//! Rows and values of the options of the Tofu interconnect, which UCX has not.
#![forbid(unsafe_code)]

use crate::options::fields::option_fields;
use crate::options::kind::OptionKind::*;
use crate::options::number;
use crate::options::rows_iface::IFACE;
use crate::options::section::{OptionBlock, Section, Strictness, row};

option_fields! {
    /// The options of the Tofu interconnect that the library reads.
    TofuOptions {
        seg_size: number::Size = "TOFU_SEG_SIZE",
        ring_size: number::Size = "TOFU_RING_SIZE",
        ring_memory: number::Size = "TOFU_RING_MEMORY",
        window: u32 = "TOFU_WINDOW",
        rx_queue_len: u32 = "TOFU_RX_QUEUE_LEN",
        max_vcqs: number::Count = "TOFU_MAX_VCQS",
        vcqs_per_worker: u32 = "TOFU_VCQS_PER_WORKER",
        zcopy_thresh: number::Size = "TOFU_ZCOPY_THRESH",
    }
}

/// uTofu.
pub static TOFU: Section = Section {
    title: "Tofu transport (beyond UCX)",
    prefix: "TOFU_",
    blocks: &[
        OptionBlock {
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
                    "Memory for the frames of each of the first peers that send to a worker. At least 1K. A ring of \
                     64K or more takes one of the some thousand steering addresses of its control queue; shorter rings \
                     share one for each 1M. A region of ucp_mem_map with keys takes one for every worker. A program \
                     that uses them up leaves none for the rings of new peers.",
                ),
                row(
                    "RING_MEMORY",
                    Size,
                    "1G",
                    "Approximate limit of the memory of all rings of a worker: beyond a 64th of it new rings have a \
                     quarter of RING_SIZE, beyond an eighth a 16th, beyond three quarters a 64th, at least 1K. A \
                     sender waits for a round trip for each length of its ring, so long eager messages through short \
                     rings are slow; rendezvous is not.",
                ),
                row(
                    "WINDOW",
                    Uint,
                    "32",
                    "Frames that a peer may send before it needs a credit.",
                ),
                row(
                    "RX_QUEUE_LEN",
                    Uint,
                    "1024",
                    "Notices of frames that a message receive queue has room for; later peers send without notices. As \
                     many gets may be outstanding.",
                ),
                row(
                    "ZCOPY_THRESH",
                    Size,
                    "32K",
                    "From this size on user memory is registered for puts and gets, which are then zero-copy. Memory \
                     that is registered already is used by gets of more than 32 bytes and by puts longer than \
                     SEG_SIZE.",
                ),
                row(
                    "MAX_VCQS",
                    Count,
                    "auto",
                    "Most queues of a process that are alone on a control queue; further ones share control queues. \
                     auto: as many as there are, or the process's part of those of Tofu D if the number of processes \
                     of a node is known.",
                ),
                row(
                    "VCQS_PER_WORKER",
                    Uint,
                    "1",
                    "Queues of a worker: one for messages, and up to five rails, each on a network interface of its \
                     own, for parts of messages, puts and gets of 64 KiB or more, within UCX_MAX_RNDV_RAILS and \
                     UCX_MAX_RMA_RAILS. A worker gets fewer rails where they would take queues that other workers of \
                     the node need.",
                ),
            ],
        },
        OptionBlock {
            rows: IFACE,
            aliases: &[""],
        },
    ],
    defaults: &[],
    strictness: Strictness::Worker(Some("tofu")),
};
