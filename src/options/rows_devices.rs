//! Rows of the options of the transports within a node, of TCP and of CUDA.
#![forbid(unsafe_code)]

use super::choice::{ALLOC_METHODS, LogLevel, MEMORY_TYPES};
use super::kind::Kind::*;
use super::table::{Block, Row, Section, Strictness, row};

/// What every transport has.
pub const IFACE: &[Row] = &[
    row(
        "ALLOC",
        Ranking(ALLOC_METHODS),
        "huge,thp,md,mmap,heap",
        "Ways to allocate buffers, best first.",
    ),
    row(
        "FAILURE",
        Choice(LogLevel::NAMES),
        "DIAG",
        "Level of messages about failed operations.",
    ),
    row("MAX_NUM_EPS", Count, "inf", "Most endpoints."),
    row("MAX_SHORT", Retired, "", "No effect; retired in UCX."),
    row("MAX_BCOPY", Retired, "", "No effect; retired in UCX."),
];

/// What every transport within a node has.
const SM: &[Row] = &[row("BW", Bandwidth, "15360.00MBps", "Bandwidth of memory.")];

/// Growing pools of send buffers.
const TX_POOL: &[Row] = &[
    row(
        "TX_MAX_BUFS",
        Int,
        "-1",
        "Most send buffers; -1 for no limit.",
    ),
    row("TX_BUFS_GROW", Uint, "8", "Send buffers added at a time."),
    row(
        "TX_MAX_CHUNK_SIZE",
        Size,
        "128M",
        "Most memory added at a time for sending.",
    ),
    row(
        "TX_GROW_FACTOR",
        Float,
        "1.000",
        "Growth of each addition of send buffers.",
    ),
];

/// Growing pools of receive buffers.
const RX_POOL: &[Row] = &[
    row(
        "RX_MAX_BUFS",
        Int,
        "-1",
        "Most receive buffers; -1 for no limit.",
    ),
    row(
        "RX_BUFS_GROW",
        Uint,
        "8",
        "Receive buffers added at a time.",
    ),
    row(
        "RX_MAX_CHUNK_SIZE",
        Size,
        "128M",
        "Most memory added at a time for receiving.",
    ),
    row(
        "RX_GROW_FACTOR",
        Float,
        "1.000",
        "Growth of each addition of receive buffers.",
    ),
];

/// Transports that map each other's memory.
const MM: &[Row] = &[
    row(
        "HUGETLB_MODE",
        Ternary,
        "try",
        "Back shared segments with huge pages.",
    ),
    row("FIFO_SIZE", Uint, "256", "Entries of the receive ring."),
    row(
        "SEG_SIZE",
        Size,
        "8256",
        "Size of a buffer for copied messages.",
    ),
    row(
        "FIFO_RELEASE_FACTOR",
        Float,
        "0.500",
        "Share of the ring that is read before its space is given back.",
    ),
    row(
        "FIFO_HUGETLB",
        Ternary,
        "n",
        "Back the ring with huge pages.",
    ),
    row(
        "FIFO_ELEM_SIZE",
        Uint,
        "128",
        "Size of a ring entry, header included.",
    ),
    row(
        "FIFO_MAX_POLL",
        Count,
        "16",
        "Most messages taken per poll.",
    ),
    row(
        "ERROR_HANDLING",
        Bool,
        "n",
        "Offer error handling over shared memory.",
    ),
    row(
        "SEND_OVERHEAD",
        Keyed(&["am_short", "am_bcopy"], &Time),
        "am_short:0.01us,am_bcopy:0.01us",
        "Cost of sending a message.",
    ),
    row(
        "RECV_OVERHEAD",
        Keyed(&["am_short", "am_bcopy"], &Time),
        "am_short:0.01us,am_bcopy:0.01us",
        "Cost of receiving a message.",
    ),
];

const MM_BLOCKS: &[Block] = &[
    Block {
        rows: IFACE,
        aliases: &["MM_", "SM_", ""],
    },
    Block {
        rows: SM,
        aliases: &["MM_", "SM_"],
    },
    Block {
        rows: MM,
        aliases: &["MM_"],
    },
    Block {
        rows: RX_POOL,
        aliases: &["MM_"],
    },
];

/// Transports that copy from another process in one system call.
const SCOPY: &[Row] = &[
    row("MAX_IOV", Ulong, "16", "Most pieces of one copy."),
    row("SEG_SIZE", Size, "512K", "Piece copied at a time."),
    row("TX_QUOTA", Uint, "1", "Pieces copied per poll."),
];

/// Messages to oneself.
pub static SELF: Section = Section {
    title: "Loopback transport",
    prefix: "SELF_",
    blocks: &[
        Block {
            aliases: &[],
            rows: &[
                row(
                    "NUM_DEVICES",
                    Int,
                    "1",
                    "How many loopback devices there are.",
                ),
                row(
                    "SEG_SIZE",
                    Size,
                    "8K",
                    "Size of a buffer for copied messages.",
                ),
            ],
        },
        Block {
            rows: IFACE,
            aliases: &[""],
        },
    ],
    defaults: &[],
    strictness: Strictness::Worker(Some("self")),
};

/// TCP sockets.
pub static TCP: Section = Section {
    title: "TCP transport",
    prefix: "TCP_",
    blocks: &[
        Block {
            aliases: &[],
            rows: &[
                row(
                    "AF_PRIO",
                    Texts,
                    "inet,inet6",
                    "Address families, best first.",
                ),
                row("BRIDGE_ENABLE", Bool, "n", "Use bridge devices."),
                row(
                    "TX_SEG_SIZE",
                    Size,
                    "8K",
                    "Most bytes of an eager message that is copied before it is sent; at least 24K, at most 1M.",
                ),
                row(
                    "RX_SEG_SIZE",
                    Size,
                    "64K",
                    "Size of a receive buffer, and most bytes of an eager message that is sent from where it lies; \
                     at least 24K, at most 1M.",
                ),
                row("MAX_IOV", Ulong, "6", "Most pieces of one send."),
                row(
                    "SENDV_THRESH",
                    Size,
                    "2K",
                    "From this size on payload is sent in place, not copied behind its header.",
                ),
                row(
                    "PREFER_DEFAULT",
                    Bool,
                    "y",
                    "Prefer the device of the default route.",
                ),
                row("PUT_ENABLE", Bool, "y", "Offer put."),
                row("CONN_NB", Bool, "n", "Connect without waiting."),
                row(
                    "MAX_POLL",
                    Uint,
                    "16",
                    "Most reads of a ready socket per poll, one at least; inf: no limit but that of 128 messages for \
                     all sockets together.",
                ),
                row(
                    "MAX_CONN_RETRIES",
                    Uint,
                    "25",
                    "How often a dropped connection attempt is repeated.",
                ),
                row("NODELAY", Bool, "y", "Send small segments at once."),
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
                row(
                    "PORT_RANGE",
                    Range,
                    "0",
                    "Ports to listen on; 0 lets the system choose.",
                ),
                row(
                    "MAX_BW",
                    Bandwidth,
                    "2200.00MBps",
                    "Upper bound of a device's bandwidth.",
                ),
                row(
                    "KEEPIDLE",
                    Interval,
                    "10000000.00us",
                    "Idle time before the first keepalive probe.",
                ),
                row(
                    "KEEPCNT",
                    Count,
                    "auto",
                    "Lost probes that break a connection.",
                ),
                row(
                    "KEEPINTVL",
                    Interval,
                    "2000000.00us",
                    "Time between probes.",
                ),
                row(
                    "EP_BIND_SRC_ADDR",
                    Ternary,
                    "try",
                    "Bind connecting sockets to their device.",
                ),
            ],
        },
        Block {
            rows: IFACE,
            aliases: &[""],
        },
        Block {
            rows: TX_POOL,
            aliases: &[],
        },
        Block {
            rows: RX_POOL,
            aliases: &[],
        },
    ],
    defaults: &[("MAX_NUM_EPS", "256")],
    strictness: Strictness::Worker(Some("tcp")),
};

/// What every way to connect by socket address has.
const CM: Block = Block {
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
        Block {
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
        Block {
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

/// System V shared memory.
pub static SYSV: Section = Section {
    title: "Shared memory, System V",
    prefix: "SYSV_",
    blocks: MM_BLOCKS,
    defaults: &[
        ("ALLOC", "md,mmap,heap"),
        ("RX_BUFS_GROW", "512"),
        ("RX_GROW_FACTOR", "2.000"),
    ],
    strictness: Strictness::Worker(Some("sysv")),
};

/// POSIX shared memory.
pub static POSIX: Section = Section {
    title: "Shared memory, POSIX",
    prefix: "POSIX_",
    blocks: &[
        Block {
            aliases: &[],
            rows: &[
                row("DIR", Text, "/dev/shm", "Directory of the segments."),
                row(
                    "SHM_MIN_SIZE",
                    Size,
                    "16M",
                    "A smaller file system for segments is not used.",
                ),
                row(
                    "USE_PROC_LINK",
                    Bool,
                    "y",
                    "Reach a peer's segment through /proc; needs one pid namespace.",
                ),
            ],
        },
        Block {
            rows: IFACE,
            aliases: &["MM_", "SM_", ""],
        },
        Block {
            rows: SM,
            aliases: &["MM_", "SM_"],
        },
        Block {
            rows: MM,
            aliases: &["MM_"],
        },
        Block {
            rows: RX_POOL,
            aliases: &["MM_"],
        },
    ],
    defaults: &[("ALLOC", "md,mmap,heap"), ("RX_BUFS_GROW", "512")],
    strictness: Strictness::Worker(Some("posix")),
};

/// XPMEM, a kernel module that maps another process.
pub static XPMEM: Section = Section {
    title: "Shared memory, XPMEM",
    prefix: "XPMEM_",
    blocks: MM_BLOCKS,
    defaults: &[("ALLOC", "md,mmap,heap"), ("RX_BUFS_GROW", "512")],
    strictness: Strictness::Report,
};

const SCOPY_BLOCKS: &[Block] = &[
    Block {
        rows: IFACE,
        aliases: &["SCOPY_", "SM_", ""],
    },
    Block {
        rows: SM,
        aliases: &["SCOPY_", "SM_"],
    },
    Block {
        rows: SCOPY,
        aliases: &["SCOPY_"],
    },
    Block {
        rows: TX_POOL,
        aliases: &["SCOPY_"],
    },
];

/// Cross-memory attach.
pub static CMA: Section = Section {
    title: "Copies by cross-memory attach",
    prefix: "CMA_",
    blocks: &[
        Block {
            aliases: &[],
            rows: &[row(
                "MEMORY_INVALIDATE",
                Bool,
                "n",
                "Offer invalidation of memory.",
            )],
        },
        Block {
            rows: IFACE,
            aliases: &["SCOPY_", "SM_", ""],
        },
        Block {
            rows: SM,
            aliases: &["SCOPY_", "SM_"],
        },
        Block {
            rows: SCOPY,
            aliases: &["SCOPY_"],
        },
        Block {
            rows: TX_POOL,
            aliases: &["SCOPY_"],
        },
    ],
    defaults: &[("ALLOC", "huge,thp,mmap,heap"), ("BW", "11145.00MBps")],
    strictness: Strictness::Worker(Some("cma")),
};

/// KNEM, a kernel module that copies between processes.
pub static KNEM: Section = Section {
    title: "Copies by KNEM",
    prefix: "KNEM_",
    blocks: SCOPY_BLOCKS,
    defaults: &[("ALLOC", "huge,thp,mmap,heap"), ("BW", "13862.00MBps")],
    strictness: Strictness::Report,
};

/// Copies between host and CUDA device.
pub static CUDA_COPY: Section = Section {
    title: "CUDA copies",
    prefix: "CUDA_COPY_",
    blocks: &[
        Block {
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
        Block {
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
        Block {
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
        Block {
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
    blocks: &[Block {
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
