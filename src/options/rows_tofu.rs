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
                    "Memory for the frames of each of the first peers that send to a worker. At least 1K. A ring of 64K or more takes a steering address of its control queue, which has some thousands; shorter ones share one for each 1M. Each memory of ucp_mem_map that there are keys of takes one, too, for every worker: a program that uses them up leaves none for the rings of new peers.",
                ),
                row(
                    "RING_MEMORY",
                    Size,
                    "1G",
                    "About how much the memory of all peers that send to a worker may become: behind a 64th of it their rings have a quarter of RING_SIZE, behind an eighth a 16th, behind three quarters a 64th, at least 1K. What a peer sends takes a round trip for each length of its ring, so that long eager messages through short rings are slow; rendezvous is not.",
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
                    "Notices of frames that a message receive queue has room for; peers beyond that send without. As many gets may be under way.",
                ),
                row(
                    "ZCOPY_THRESH",
                    Size,
                    "32K",
                    "Puts and gets of so many bytes go from memory to memory, which is registered for that. Registered memory is used as it is, by gets of more than 32 bytes and by puts longer than SEG_SIZE.",
                ),
                row(
                    "MAX_VCQS",
                    Count,
                    "auto",
                    "Queues of a process that are alone on a control queue, at most; further ones share control queues. auto: as many as there are, or the process's part of those of Tofu D if it is known how many processes a node has.",
                ),
                row(
                    "VCQS_PER_WORKER",
                    Uint,
                    "1",
                    "Queues of a worker: one for messages, and up to five rails, each on a network interface of its own, for parts of messages, puts and gets of 64 KiB or more, as far as UCX_MAX_RNDV_RAILS and UCX_MAX_RMA_RAILS let them. A worker gets fewer rails where they would take queues that other workers of the node need.",
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
