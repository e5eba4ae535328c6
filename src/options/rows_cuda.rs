//! Rows of the options of the transports of CUDA devices.
#![forbid(unsafe_code)]

use super::choice::MEMORY_TYPES;
use super::kind::OptionKind::*;
use super::rows_iface::IFACE;
use super::section::{OptionBlock, Section, Strictness, row};

/// Copies between host and CUDA device.
pub static CUDA_COPY: Section = Section {
    title: "CUDA copies",
    prefix: "CUDA_COPY_",
    blocks: &[
        OptionBlock {
            aliases: &[],
            rows: &[
                row(
                    "REG_WHOLE_ALLOC",
                    OnOffAuto,
                    "auto",
                    "Register whole allocations.",
                ),
                row(
                    "MAX_REG_RATIO",
                    Float,
                    "0.100",
                    "Share of device memory that may be registered at once.",
                ),
                row("DMABUF", Ternary, "try", "Export memory as a dma-buf."),
                row(
                    "PREF_LOC",
                    Choice(&["cpu", "gpu"]),
                    "cpu",
                    "Where managed memory lives.",
                ),
                row(
                    "ENABLE_FABRIC",
                    Ternary,
                    "try",
                    "Allocate memory that other nodes can map.",
                ),
                row(
                    "ASYNC_MEM_TYPE",
                    Choice(MEMORY_TYPES),
                    "cuda-managed",
                    "How asynchronously allocated memory is treated.",
                ),
                row(
                    "RETAIN_PRIMARY_CTX",
                    Bool,
                    "n",
                    "Keep a device's first context alive.",
                ),
                row("MAX_POLL", Uint, "16", "Most events checked per poll."),
                row("MAX_EVENTS", Uint, "inf", "Most events."),
                row(
                    "BW",
                    Keyed(&["h2d", "d2h", "d2d", "default"], &Bandwidth),
                    "h2d:8300.00MBps,d2h:11660.00MBps,d2d:320.00GBps,default:10000.00MBps",
                    "Bandwidth of copies by direction.",
                ),
            ],
        },
        OptionBlock {
            rows: IFACE,
            aliases: &[""],
        },
    ],
    defaults: &[],
    strictness: Strictness::Report,
};

/// CUDA memory of another process.
pub static CUDA_IPC: Section = Section {
    title: "CUDA between processes",
    prefix: "CUDA_IPC_",
    blocks: &[
        OptionBlock {
            aliases: &[],
            rows: &[
                row(
                    "ENABLE_MNNVL",
                    Ternary,
                    "try",
                    "Reach devices of other nodes.",
                ),
                row("CACHE_MAX_REGIONS", Count, "inf", "Most mappings kept."),
                row("CACHE_MAX_SIZE", Size, "inf", "Most bytes kept mapped."),
                row("MAX_POLL", Uint, "16", "Most events checked per poll."),
                row("MAX_STREAMS", Uint, "128", "Most streams."),
                row("CACHE", Bool, "y", "Keep mappings after their use."),
                row("ENABLE_GET_ZCOPY", OnOffAuto, "auto", "Offer get."),
                row("MAX_EVENTS", Uint, "inf", "Most events."),
                row("BW", Bandwidth, "auto", "Bandwidth of a copy."),
                row("LAT", Time, "1.80us", "Latency of a copy."),
                row("OVERHEAD", Time, "4.00us", "Cost of starting a copy."),
                row(
                    "ENABLE_SAME_PROCESS",
                    Bool,
                    "n",
                    "Use it within one process too.",
                ),
            ],
        },
        OptionBlock {
            rows: IFACE,
            aliases: &[""],
        },
    ],
    defaults: &[],
    strictness: Strictness::Report,
};

/// Communication that an accelerator starts.
pub static GDP: Section = Section {
    title: "Device-driven progress",
    prefix: "GDP_",
    blocks: &[OptionBlock {
        aliases: &[],
        rows: &[row(
            "ENABLE",
            Bool,
            "n",
            "Let accelerators drive the network.",
        )],
    }],
    defaults: &[],
    strictness: Strictness::Report,
};
