//! Rows of the options of InfiniBand, RoCE and EFA devices and their memory.
#![forbid(unsafe_code)]

use crate::options::choice::MEMORY_TYPES;
use crate::options::kind::OptionKind::*;
use crate::options::section::{Row, row};

/// A device and its memory.
pub const DEVICE: &[Row] = &[
    row(
        "MEM_REG_OVERHEAD",
        Time,
        "16.00us",
        "Fixed cost of registering memory.",
    ),
    row(
        "MEM_REG_GROWTH",
        Time,
        "0.00us",
        "Cost of registering a further byte.",
    ),
    row(
        "FORK_INIT",
        Ternary,
        "try",
        "Make registered memory safe to fork.",
    ),
    row(
        "ASYNC_EVENTS",
        Bool,
        "y",
        "Listen for events of the device.",
    ),
    row("ETH_PAUSE_ON", Bool, "y", "The Ethernet has flow control."),
    row(
        "ODP_NUMA_POLICY",
        Choice(&["default", "bind", "preferred"]),
        "preferred",
        "Where pages fetched on demand live.",
    ),
    row(
        "ODP_PREFETCH",
        Bool,
        "n",
        "Fetch pages when memory is registered on demand.",
    ),
    row(
        "ODP_MAX_SIZE",
        Size,
        "auto",
        "Largest region registered on demand.",
    ),
    row(
        "ODP_MEM_TYPES",
        Choices(MEMORY_TYPES),
        "host",
        "Memory types registered on demand.",
    ),
    row(
        "DEVICE_SPECS",
        Texts,
        "",
        "Properties of devices this library does not know.",
    ),
    row(
        "PREFER_NEAREST_DEVICE",
        Bool,
        "y",
        "Prefer the device nearest to the process.",
    ),
    row(
        "INDIRECT_ATOMIC",
        Bool,
        "y",
        "Register memory for atomics separately.",
    ),
    row("GID_INDEX", Count, "auto", "Index of the port's address."),
    row(
        "SUBNET_PREFIX",
        Text,
        "",
        "Use only ports with this subnet prefix.",
    ),
    row(
        "GPU_DIRECT_RDMA",
        Ternary,
        "try",
        "Register accelerator memory with the network card.",
    ),
    row(
        "GDA_MAX_SYS_LATENCY",
        Time,
        "0.30us",
        "Farthest accelerator that drives this device.",
    ),
    row(
        "GDA_MAX_HCA_PER_GPU",
        Count,
        "auto",
        "Most devices that one accelerator drives.",
    ),
    row(
        "GDA_DMABUF_ENABLE",
        Ternary,
        "try",
        "Export queues to the accelerator as a dma-buf.",
    ),
    row(
        "GDA_RETAIN_INACTIVE_CTX",
        Bool,
        "n",
        "Keep contexts of idle accelerators.",
    ),
    row(
        "PCI_BW",
        Texts,
        "",
        "Bandwidth of a device's slot, device:bandwidth.",
    ),
    row("MLX5_DV", Ternary, "try", "Use direct verbs of mlx5."),
    row("MLX5_DEVX", Ternary, "try", "Use DEVX of mlx5."),
    row(
        "MLX5_DEVX_OBJECTS",
        Choices(&["rcqp", "rcsrq", "dct", "dcsrq", "dci", "cq", "auto"]),
        "rcqp,rcsrq,dct,dcsrq,dci,cq",
        "Objects made by DEVX.",
    ),
    row(
        "REG_METHODS",
        Texts,
        "rcache,odp,direct",
        "Ways to register memory, best first: rcache keeps it registered, odp lets devices fetch pages that are not \
         pinned, if they can, direct registers it each time.",
    ),
    row(
        "REG_MT_THRESH",
        Size,
        "4G",
        "Regions from this size on are registered by several threads.",
    ),
    row(
        "REG_MT_CHUNK",
        Size,
        "2G",
        "Part of such a region that a thread registers.",
    ),
    row("REG_MT_BIND", Bool, "n", "Pin those threads."),
    row(
        "REG_RETRY_CNT",
        Count,
        "inf",
        "How often a failed registration is repeated.",
    ),
    row(
        "PCI_RELAXED_ORDERING",
        TernaryAuto,
        "auto",
        "Let the bus reorder writes.",
    ),
    row(
        "MAX_IDLE_RKEY_COUNT",
        Uint,
        "16",
        "Invalidated keys kept for reuse.",
    ),
    row("SMKEY_BLOCK_SIZE", Uint, "8", "Keys that share a block."),
    row(
        "XGVMI_UMR_ENABLE",
        Bool,
        "y",
        "Map memory across virtual machines by UMR.",
    ),
    row(
        "DIRECT_NIC",
        Bool,
        "y",
        "Use the direct path between accelerator and device.",
    ),
    row(
        "AH_CACHE_TTL",
        Interval,
        "inf",
        "How long an address handle is kept.",
    ),
];

/// The registration cache that 1.13.1 had for these devices alone.
pub const DEVICE_RCACHE: &[Row] = &[
    row(
        "MEM_PRIO",
        Uint,
        "1000",
        "Priority of the cache's memory events.",
    ),
    row("OVERHEAD", Interval, "auto", "Cost of a look-up."),
    row("ADDR_ALIGN", Uint, "16", "Alignment of cached regions."),
    row("MAX_REGIONS", Count, "inf", "Most registrations kept."),
    row("MAX_SIZE", Size, "inf", "Most bytes kept registered."),
    row(
        "MAX_UNRELEASED",
        Size,
        "512M",
        "Most bytes waiting for their release.",
    ),
    row(
        "PURGE_ON_FORK",
        Bool,
        "y",
        "Forget registrations when the process forks.",
    ),
];
