//! Rows of the options of the transports of CUDA devices.
#![forbid(unsafe_code)]

use crate::options::choice::{MEMORY_TYPES, OnOffAuto as GetSwitch, Ternary as DmaBufSwitch};
use crate::options::fields::option_fields;
use crate::options::kind::OptionKind::*;
use crate::options::number;
use crate::options::rows_iface::IFACE;
use crate::options::section::{OptionBlock, Section, Strictness, row};
use std::time::Duration;

option_fields! {
    /// The options of memory of CUDA devices that the library reads.
    CudaOptions {
        dmabuf: DmaBufSwitch = "CUDA_COPY_DMABUF",
        cache: bool = "CUDA_IPC_CACHE",
        cache_max_regions: number::Count = "CUDA_IPC_CACHE_MAX_REGIONS",
        cache_max_size: number::Size = "CUDA_IPC_CACHE_MAX_SIZE",
        get: GetSwitch = "CUDA_IPC_ENABLE_GET_ZCOPY",
        ipc_bandwidth: number::Bandwidth = "CUDA_IPC_BW",
        ipc_latency: Duration = "CUDA_IPC_LAT",
    }
}

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
                row(
                    "CACHE_MAX_REGIONS",
                    Count,
                    "inf",
                    "Most allocations of other processes that stay open without a copy. inf: 256.",
                ),
                row(
                    "CACHE_MAX_SIZE",
                    Size,
                    "inf",
                    "Most bytes of allocations of other processes that stay open without a copy.",
                ),
                row("MAX_POLL", Uint, "16", "Most events checked per poll."),
                row("MAX_STREAMS", Uint, "128", "Most streams."),
                row(
                    "CACHE",
                    Bool,
                    "y",
                    "Whether allocations of other processes stay open after a copy.",
                ),
                row(
                    "ENABLE_GET_ZCOPY",
                    OnOffAuto,
                    "auto",
                    "Whether memory of other processes is read by copies: gets, and messages by their receiver. \
                     off: by messages of its owner.",
                ),
                row("MAX_EVENTS", Uint, "inf", "Most events."),
                row(
                    "BW",
                    Bandwidth,
                    "auto",
                    "Bandwidth of a copy between devices; auto: measured.",
                ),
                row(
                    "LAT",
                    Time,
                    "1.80us",
                    "Latency of a copy between devices whose bandwidth is stated.",
                ),
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
