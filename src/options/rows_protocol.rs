//! Rows of the options of protocols: thresholds, rails, rendezvous, offloaded matching.
#![forbid(unsafe_code)]

use super::choice::{AtomicMode, MEMORY_TYPES, RndvScheme};
use super::kind::OptionKind::*;
use super::section::{Row, row};

/// Rows of the section of the context.
pub const PROTOCOLS: &[Row] = &[
            row(
                "BCOPY_THRESH",
                Size,
                "auto",
                "From this size on messages go through a buffer, not inline.",
            ),
            row(
                "RNDV_THRESH",
                Keyed(&["intra", "inter"], &Size),
                "intra:auto,inter:auto",
                "From this size on messages are fetched by rendezvous: within a node, between nodes.",
            ),
            row(
                "RNDV_SEND_NBR_THRESH",
                Size,
                "256K",
                "That threshold for ucp_tag_send_nbr, when it is automatic.",
            ),
            row(
                "RNDV_THRESH_FALLBACK",
                Size,
                "inf",
                "That threshold when none can be computed.",
            ),
            row(
                "RNDV_PERF_DIFF",
                Float,
                "1.000",
                "Percent by which rendezvous must be faster than eager.",
            ),
            row(
                "MULTI_LANE_MAX_RATIO",
                Float,
                "4.000",
                "Lanes slower than the fastest by more than this ratio are not used with it.",
            ),
            row(
                "MULTI_PATH_RATIO",
                Ratio,
                "auto",
                "Share of a device's bandwidth that a further path gains.",
            ),
            row(
                "MAX_EAGER_RAILS",
                Uint,
                "1",
                "Most devices that share an eager message.",
            )
            .formerly("MAX_EAGER_LANES"),
            row(
                "MAX_RNDV_RAILS",
                Uint,
                "2",
                "Most ports that share a rendezvous of 256 KiB or more; of 64 KiB or more over Tofu, for workers with \
                 several queues (UCX_TOFU_VCQS_PER_WORKER).",
            )
            .formerly("MAX_RNDV_LANES"),
            row(
                "MAX_RMA_RAILS",
                Uint,
                "1",
                "Most ports that share a put or get of 256 KiB or more; of 64 KiB or more over Tofu, for workers with \
                 several queues (UCX_TOFU_VCQS_PER_WORKER).",
            )
            .formerly("MAX_RMA_LANES"),
            row(
                "MIN_RNDV_CHUNK_SIZE",
                Size,
                "16K",
                "Smallest part of a shared rendezvous.",
            ),
            row(
                "MIN_RMA_CHUNK_SIZE",
                Size,
                "8K",
                "Smallest part of a shared put or get.",
            ),
            row(
                "RMA_ZCOPY_MAX_SEG_SIZE",
                Size,
                "auto",
                "Largest piece of a zero-copy put or get.",
            ),
            row(
                "RNDV_SCHEME",
                Choice(RndvScheme::NAMES),
                "auto",
                "How a rendezvous moves its data: am by messages, auto as fits its length, all others by copying from \
                 memory to memory if that is allowed; between devices get_zcopy and get_ppln by reading, all others by \
                 writing.",
            ),
            row(
                "RKEY_PTR_SEG_SIZE",
                Size,
                "512K",
                "Piece that a copy through a mapped pointer does at a time.",
            ),
            row(
                "ZCOPY_THRESH",
                Size,
                "auto",
                "From this size on messages are sent without a copy.",
            ),
            row(
                "BCOPY_BW",
                Bandwidth,
                "auto",
                "Bandwidth of copying memory.",
            ),
            row(
                "ATOMIC_MODE",
                Choice(AtomicMode::NAMES),
                "guess",
                "What executes atomic operations: cpu, a device, or guess: processors in a job that is known to run on \
                 one host, else a device.",
            ),
            row(
                "ADDRESS_DEBUG_INFO",
                Bool,
                "n",
                "Put names into worker addresses, for debugging.",
            ),
            row(
                "MAX_WORKER_ADDRESS_NAME",
                Uint,
                "32",
                "Longest name in a worker address.",
            )
            .formerly("MAX_WORKER_NAME"),
            row(
                "USE_MT_MUTEX",
                Bool,
                "n",
                "Lock with mutexes, not by spinning.",
            ),
            row(
                "ADAPTIVE_PROGRESS",
                Bool,
                "y",
                "Poll only interfaces that are in use.",
            ),
            row(
                "SEG_SIZE",
                Size,
                "8K",
                "Segment of a worker's registered pool.",
            ),
            row(
                "TM_THRESH",
                Size,
                "1K",
                "Receives from this size on are matched by the network card.",
            ),
            row(
                "TM_MAX_BB_SIZE",
                Size,
                "1K",
                "Largest receive that is matched into a bounce buffer.",
            ),
            row(
                "TM_FORCE_THRESH",
                Size,
                "8K",
                "Receives from this size on force matching by the network card.",
            ),
            row(
                "TM_SW_RNDV",
                Ternary,
                "n",
                "Rendezvous in software although the network card matches.",
            ),
            row("NUM_EPS", Count, "auto", "How many endpoints to expect."),
            row(
                "NUM_PPN",
                Count,
                "auto",
                "How many processes per node to expect.",
            ),
            row(
                "RNDV_FRAG_MEM_TYPES",
                Choices(MEMORY_TYPES),
                "host,cuda",
                "Memory of rendezvous fragments.",
            )
            .formerly("RNDV_FRAG_MEM_TYPE"),
            row(
                "MEMTYPE_COPY_ENABLE",
                Bool,
                "y",
                "Copy between memory types on the device.",
            ),
            row(
                "RNDV_PIPELINE_SEND_THRESH",
                Size,
                "inf",
                "From this size on the sender of a rendezvous pipelines.",
            ),
            row(
                "RNDV_PIPELINE_SHM_ENABLE",
                Bool,
                "y",
                "Pipeline accelerator rendezvous within a node.",
            ),
            row(
                "RNDV_PIPELINE_SHM_CUDA_STAGING_FORCE",
                Bool,
                "n",
                "Stage that pipeline through host memory.",
            ),
            row(
                "RNDV_PIPELINE_ERROR_HANDLING",
                Bool,
                "n",
                "Pipeline although errors are handled.",
            ),
            row(
                "RMA_PPLN_ENABLE",
                Bool,
                "n",
                "Move puts and gets by rendezvous.",
            ),

];
