//! Rows of the options of InfiniBand, RoCE and EFA transports.
#![forbid(unsafe_code)]

use super::choice::MEMORY_TYPES;
use super::kind::Kind::*;
use super::rows_devices::IFACE;
use super::table::{Block, Row, Section, Strictness, row};

/// A device and its memory.
const DEVICE: &[Row] = &[
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
const DEVICE_RCACHE: &[Row] = &[
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

/// What every transport over these devices has.
const PORT: &[Row] = &[
    row("SEG_SIZE", Size, "8256", "Size of a bounce buffer."),
    row("TX_QUEUE_LEN", Uint, "256", "Length of a send queue."),
    row("TX_MAX_BATCH", Uint, "16", "Most sends posted at a time."),
    row(
        "TX_MAX_POLL",
        Uint,
        "16",
        "Most send completions taken per poll.",
    ),
    row("TX_MIN_INLINE", Size, "64", "Least bytes that fit inline."),
    row(
        "TX_INLINE_RESP",
        Size,
        "64",
        "Bytes of a response that fit inline.",
    ),
    row("TX_MIN_SGE", Uint, "5", "Least pieces of one send."),
    row(
        "TX_MAX_BUFS",
        Int,
        "-1",
        "Most send buffers; -1 for no limit.",
    ),
    row(
        "TX_BUFS_GROW",
        Uint,
        "1024",
        "Send buffers added at a time.",
    ),
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
    row("RX_QUEUE_LEN", Uint, "4095", "Length of a receive queue."),
    row(
        "RX_MAX_BATCH",
        Uint,
        "16",
        "Most receives posted at a time.",
    ),
    row(
        "RX_MAX_POLL",
        Uint,
        "16",
        "Most receive completions taken per poll.",
    ),
    row(
        "RX_INLINE",
        Size,
        "64",
        "Bytes of a message received inline.",
    ),
    row(
        "RX_MAX_BUFS",
        Int,
        "-1",
        "Most receive buffers; -1 for no limit.",
    ),
    row(
        "RX_BUFS_GROW",
        Uint,
        "0",
        "Receive buffers added at a time; 0 for automatic.",
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
    row(
        "ADDR_TYPE",
        Choice(&["ib_local", "ib_site_local", "ib_global", "eth", "auto"]),
        "auto",
        "Form of a port's address.",
    ),
    row("IS_GLOBAL", Bool, "n", "Always send a global header."),
    row(
        "FLID_ROUTE",
        Bool,
        "y",
        "Route between subnets by floating addresses.",
    ),
    row("SL", Count, "auto", "Service level."),
    row(
        "TRAFFIC_CLASS",
        Count,
        "auto",
        "Traffic class of packets with a global header.",
    ),
    row(
        "HOP_LIMIT",
        Uint,
        "255",
        "Hop limit of packets with a global header.",
    ),
    row("NUM_PATHS", Count, "auto", "Paths between two ports."),
    row(
        "ROCE_LOCAL_SUBNET",
        Bool,
        "n",
        "Only peers in the own RoCE subnet are reachable.",
    ),
    row(
        "ROCE_SUBNET_PREFIX_LEN",
        Count,
        "auto",
        "Bits of an address that make the RoCE subnet.",
    ),
    row("ROCE_SUBNETS", Names, "all", "RoCE subnets to use."),
    row(
        "ROCE_REACHABILITY_MODE",
        Choice(&["route", "local_subnet", "all"]),
        "route",
        "How it is decided whether a RoCE peer is reachable.",
    ),
    row(
        "ROCE_PATH_FACTOR",
        Uint,
        "1",
        "Multiplier of the source port, to spread paths.",
    ),
    row(
        "LID_PATH_BITS",
        ListOf(&Range),
        "0",
        "Path bits of a port's address.",
    ),
    row("PKEY", Hex, "auto", "Partition key."),
    row(
        "PATH_MTU",
        Choice(&["default", "512", "1024", "2048", "4096"]),
        "default",
        "Largest packet.",
    ),
    row(
        "COUNTER_SET_ID",
        Count,
        "auto",
        "Counters that traffic is added to.",
    ),
    row(
        "REVERSE_SL",
        Count,
        "auto",
        "Service level of the way back.",
    ),
    row(
        "SEND_OVERHEAD",
        Keyed(&["bcopy", "cqe", "db", "wqe_fetch", "wqe_post"], &Time),
        "bcopy:0.01us,cqe:0.02us,db:0.04us,wqe_fetch:0.35us,wqe_post:0.00us",
        "Cost of the steps of a send.",
    ),
];

/// Reliable connections.
const RC_SHARED: &[Row] = &[
    row(
        "MAX_RD_ATOMIC",
        Count,
        "auto",
        "Most reads and atomics in flight.",
    ),
    row(
        "TIMEOUT",
        Time,
        "1000000.00us",
        "Time before a packet is sent again.",
    ),
    row(
        "RETRY_COUNT",
        Uint,
        "7",
        "How often a packet is sent again; by rc at most 6 times, because rdma_rxe takes 7 for without an end.",
    ),
    row(
        "RNR_TIMEOUT",
        Time,
        "1000.00us",
        "Wait when the receiver has no buffer.",
    ),
    row(
        "RNR_RETRY_COUNT",
        Uint,
        "7",
        "How often that wait is repeated.",
    ),
    row("FC_ENABLE", Bool, "y", "Control the flow by credits."),
    row("FC_WND_SIZE", Uint, "512", "Credits of a connection."),
    row(
        "FC_HARD_THRESH",
        Float,
        "0.250",
        "Share of credits left when more are demanded.",
    ),
    row(
        "FENCE",
        Choice(&["none", "weak", "auto"]),
        "auto",
        "How operations are ordered by a fence.",
    ),
    row("MAX_GET_ZCOPY", Size, "auto", "Largest get without a copy."),
    row(
        "TX_NUM_GET_BYTES",
        Size,
        "inf",
        "Most bytes of gets in flight.",
    ),
    row("TX_NUM_GET_OPS", Retired, "", "No effect; retired in UCX."),
    row(
        "TX_POLL_ALWAYS",
        Bool,
        "n",
        "Poll send completions even when something was received.",
    ),
    row(
        "ECE",
        Count,
        "auto",
        "Enhanced connection establishment options.",
    ),
];

/// Reliable connections with a queue pair per peer.
const RC_QP: &[Row] = &[
    row(
        "FC_SOFT_THRESH",
        Float,
        "0.500",
        "Share of credits left when more are asked for.",
    ),
    row(
        "TX_CQ_MODERATION",
        Uint,
        "64",
        "Sends per signalled completion.",
    ),
    row(
        "TX_CQ_LEN",
        Uint,
        "4096",
        "Length of the send completion queue.",
    ),
];

/// Devices of mlx5.
const MLX5: &[Row] = &[
    row(
        "DM_SIZE",
        Size,
        "2K",
        "Memory on the device for short messages.",
    ),
    row("DM_COUNT", Uint, "1", "Segments of memory on the device."),
    row(
        "MMIO_MODE",
        Choice(&["bf_post", "bf_post_mt", "db", "db_lock", "auto"]),
        "auto",
        "How sends are submitted to the device.",
    ),
    row("AR_ENABLE", TernaryAuto, "auto", "Use adaptive routing."),
    row("CQE_ZIPPING_ENABLE", Ternary, "n", "Compress completions."),
    row("TX_CQE_ZIP_ENABLE", Bool, "n", "Compress send completions."),
    row(
        "RX_CQE_ZIP_ENABLE",
        Bool,
        "n",
        "Compress receive completions.",
    ),
];

/// Reliable connections of mlx5.
const RC_MLX5_SHARED: &[Row] = &[
    row(
        "TX_MAX_BB",
        Uint,
        "inf",
        "Most building blocks of a send queue.",
    ),
    row("TM_ENABLE", Bool, "n", "Match tags on the device."),
    row(
        "TM_LIST_SIZE",
        Uint,
        "1024",
        "Receives matched on the device.",
    ),
    row(
        "TM_SEG_SIZE",
        Size,
        "48K",
        "Largest eager message matched on the device.",
    )
    .formerly("TM_MAX_BCOPY"),
    row(
        "TM_MP_SRQ_ENABLE",
        Ternary,
        "try",
        "Receive several messages into one buffer.",
    ),
    row("TM_MP_NUM_STRIDES", Count, "8", "Messages per such buffer."),
    row(
        "EXP_BACKOFF",
        Uint,
        "0",
        "Growth of the wait between repetitions.",
    ),
    row(
        "SRQ_TOPO",
        Texts,
        "cyclic,cyclic_emulated,list",
        "Shapes of the shared receive queue, best first.",
    ),
    row(
        "LOG_ACK_REQ_FREQ",
        Uint,
        "8",
        "Logarithm of the packets per acknowledgement.",
    ),
    row("DDP_ENABLE", Ternary, "try", "Place data out of order."),
];

/// Unreliable datagrams made reliable by software.
const UD_SHARED: &[Row] = &[
    row(
        "TIMEOUT",
        Time,
        "30000000.00us",
        "A peer that is silent for so long is unreachable.",
    ),
    row(
        "LINGER_TIMEOUT",
        Time,
        "300000000.00us",
        "How long a closed endpoint is kept.",
    ),
    row(
        "TIMER_TICK",
        Time,
        "10000.00us",
        "First wait before a packet is sent again.",
    ),
    row("TIMER_BACKOFF", Float, "2.000", "Growth of that wait."),
    row(
        "ASYNC_TIMER_TICK",
        Time,
        "100000.00us",
        "Period of progress in the background.",
    ),
    row(
        "MIN_POKE_TIME",
        Time,
        "250000.00us",
        "Least wait before the peer is asked for an acknowledgement.",
    ),
    row(
        "ETH_DGID_CHECK",
        Bool,
        "y",
        "Drop RoCE packets that are for others.",
    ),
    row(
        "MAX_WINDOW",
        Uint,
        "1025",
        "Most packets without acknowledgement.",
    ),
    row(
        "RX_ASYNC_MAX_POLL",
        Uint,
        "64",
        "Most packets taken per poll in the background.",
    ),
];

const FIRST_RECEIVES: &[Row] = &[row(
    "RX_QUEUE_LEN_INIT",
    Uint,
    "128",
    "Receives posted at the start.",
)];
const SHORT_ADDRESSES: &[Row] = &[row(
    "COMPACT_AV",
    Bool,
    "y",
    "Use the short form of addresses.",
)];

/// The defaults that datagram transports change.
const DATAGRAM: [(&str, &str); 5] = [
    ("ALLOC", "thp,mmap,heap"),
    ("SEG_SIZE", "8K"),
    ("TX_INLINE_RESP", "0"),
    ("RX_QUEUE_LEN", "4096"),
    ("RX_INLINE", "0"),
];
const ALLOC: (&str, &str) = DATAGRAM[0];
const UD_VERBS_COST: (&str, &str) = (
    "SEND_OVERHEAD",
    "bcopy:0.01us,cqe:0.02us,db:0.04us,wqe_fetch:0.35us,wqe_post:0.10us",
);
const UD_MLX5_COST: (&str, &str) = (
    "SEND_OVERHEAD",
    "bcopy:0.01us,cqe:0.02us,db:0.04us,wqe_fetch:0.35us,wqe_post:0.08us",
);
const RC_VERBS_COST: (&str, &str) = (
    "SEND_OVERHEAD",
    "bcopy:0.01us,cqe:0.02us,db:0.04us,wqe_fetch:0.35us,wqe_post:0.07us",
);
const MLX5_COST: (&str, &str) = (
    "SEND_OVERHEAD",
    "bcopy:0.01us,cqe:0.02us,db:0.04us,wqe_fetch:0.35us,wqe_post:0.04us",
);

/// A section whose wrong values are reported only: UCX reads them where such a device is.
const fn section(
    title: &'static str,
    prefix: &'static str,
    blocks: &'static [Block],
    defaults: &'static [(&'static str, &'static str)],
) -> Section {
    Section {
        title,
        prefix,
        blocks,
        defaults,
        strictness: Strictness::Report,
    }
}

/// Rows under shared prefixes.
const fn shared(rows: &'static [Row], aliases: &'static [&'static str]) -> Block {
    Block { rows, aliases }
}

/// A verbs device.
pub static IB: Section = section("InfiniBand devices", "IB_", &[shared(DEVICE, &[])], &[]);

/// The cache of a verbs device.
pub static IB_RCACHE: Section = section(
    "InfiniBand registration cache",
    "IB_RCACHE_",
    &[shared(DEVICE_RCACHE, &["RCACHE_"])],
    &[],
);

/// The engine for copies across virtual machines.
pub static GGA: Section = section("GGA devices", "GGA_", &[shared(DEVICE, &[])], &[]);

/// Reliable connections by verbs.
pub static RC_VERBS: Section = section(
    "Reliable connections, verbs",
    "RC_VERBS_",
    &[
        shared(IFACE, &["RC_", "IB_", ""]),
        shared(PORT, &["RC_", "IB_"]),
        shared(RC_SHARED, &["RC_"]),
        shared(RC_QP, &["RC_"]),
        shared(
            &[
                row(
                    "MAX_AM_HDR",
                    Size,
                    "128",
                    "Longest header of an active message.",
                ),
                row(
                    "TX_MAX_WR",
                    Uint,
                    "inf",
                    "Most work requests of a send queue.",
                ),
                row(
                    "FLUSH_MODE",
                    Choice(&["write0", "fc", "auto"]),
                    "auto",
                    "How a flush is made.",
                ),
            ],
            &[],
        ),
    ],
    &[ALLOC, ("MAX_NUM_EPS", "256"), RC_VERBS_COST],
);

/// Reliable connections by mlx5.
pub static RC_MLX5: Section = section(
    "Reliable connections, mlx5",
    "RC_MLX5_",
    &[
        shared(IFACE, &["RC_", "IB_", ""]),
        shared(PORT, &["RC_", "IB_"]),
        shared(MLX5, &["RC_", "IB_"]),
        shared(RC_SHARED, &["RC_"]),
        shared(RC_QP, &["RC_"]),
        shared(RC_MLX5_SHARED, &["RC_"]),
    ],
    &[ALLOC, ("MAX_NUM_EPS", "256"), MLX5_COST],
);

/// Reliable connections driven by an accelerator.
pub static RC_GDA: Section = section(
    "Reliable connections, accelerator-driven",
    "RC_GDA_",
    &[
        shared(IFACE, &["IB_", ""]),
        shared(PORT, &["IB_"]),
        shared(MLX5, &["IB_"]),
        shared(RC_SHARED, &["IB_"]),
        shared(RC_MLX5_SHARED, &["IB_"]),
        shared(
            &[
                row("NUM_CHANNELS", Uint, "1", "Channels per endpoint."),
                row(
                    "EP_ALLOC_MODE",
                    Choice(&["pool", "direct"]),
                    "pool",
                    "Where endpoints come from.",
                ),
                row(
                    "NUM_PRE_ALLOC_EPS",
                    Uint,
                    "32",
                    "Endpoints made in advance.",
                ),
            ],
            &[],
        ),
    ],
    &[ALLOC],
);

/// Reliable connections over the copy engine.
pub static GGA_MLX5: Section = section(
    "GGA connections",
    "GGA_MLX5_",
    &[
        shared(IFACE, &["GGA_", "RC_", "IB_", ""]),
        shared(PORT, &["GGA_", "RC_", "IB_"]),
        shared(MLX5, &["GGA_", "IB_"]),
        shared(RC_SHARED, &["GGA_", "RC_"]),
        shared(RC_QP, &["GGA_"]),
        shared(RC_MLX5_SHARED, &["GGA_"]),
    ],
    &[ALLOC, ("MAX_NUM_EPS", "256"), ("ECE", "0")],
);

/// Dynamically connected transport of mlx5.
pub static DC_MLX5: Section = section(
    "Dynamic connections, mlx5",
    "DC_MLX5_",
    &[
        shared(IFACE, &["DC_", "RC_", "IB_", ""]),
        shared(PORT, &["DC_", "RC_", "IB_"]),
        shared(MLX5, &["DC_", "RC_", "IB_"]),
        shared(RC_SHARED, &["DC_", "RC_"]),
        shared(RC_MLX5_SHARED, &["DC_", "RC_"]),
        shared(FIRST_RECEIVES, &["DC_", "UD_"]),
        shared(SHORT_ADDRESSES, &["UD_"]),
        shared(
            &[
                row("NUM_DCI", Uint, "32", "Senders shared by all peers."),
                row(
                    "TX_POLICY",
                    Choice(&["dcs", "dcs_quota", "dcs_hybrid", "rand", "hw_dcs"]),
                    "dcs_quota",
                    "How a peer gets a sender.",
                ),
                row(
                    "LAG_PORT_AFFINITY",
                    OnOffAuto,
                    "auto",
                    "Spread senders over bonded ports.",
                ),
                row(
                    "DCI_FULL_HANDSHAKE",
                    Ternary,
                    "n",
                    "Confirm connections made by senders.",
                ),
                row(
                    "DCI_KA_FULL_HANDSHAKE",
                    Ternary,
                    "n",
                    "Confirm connections made for keepalive.",
                ),
                row(
                    "DCT_FULL_HANDSHAKE",
                    Ternary,
                    "n",
                    "Confirm connections at the receiver.",
                ),
                row(
                    "DCT_PORT_AFFINITY",
                    NumberOr(&["default", "random"]),
                    "default",
                    "Bonded port of the receiver.",
                ),
                row(
                    "RAND_DCI_SEED",
                    Uint,
                    "0",
                    "Seed of a random choice of senders.",
                ),
                row(
                    "QUOTA",
                    Uint,
                    "32",
                    "Sends before a peer gives its sender back.",
                ),
                row(
                    "FC_HARD_REQ_TIMEOUT",
                    Interval,
                    "5000000.00us",
                    "Time before a demand for credits is repeated.",
                ),
                row("NUM_DCI_CHANNELS", Uint, "32", "Streams per sender."),
                row(
                    "DCIS_INITIAL_CAPACITY",
                    Count,
                    "auto",
                    "Senders made at the start.",
                ),
            ],
            &["DC_"],
        ),
    ],
    &[
        ALLOC,
        ("TX_QUEUE_LEN", "128"),
        ("ECE", "0"),
        ("SRQ_TOPO", "list"),
        MLX5_COST,
    ],
);

/// Datagrams by verbs.
pub static UD_VERBS: Section = section(
    "Datagrams, verbs",
    "UD_VERBS_",
    &[
        shared(IFACE, &["UD_", "IB_", ""]),
        shared(PORT, &["UD_", "IB_"]),
        shared(UD_SHARED, &["UD_"]),
        shared(FIRST_RECEIVES, &["UD_"]),
    ],
    &[
        ALLOC,
        DATAGRAM[1],
        DATAGRAM[2],
        DATAGRAM[3],
        DATAGRAM[4],
        UD_VERBS_COST,
    ],
);

/// Datagrams by mlx5.
pub static UD_MLX5: Section = section(
    "Datagrams, mlx5",
    "UD_MLX5_",
    &[
        shared(IFACE, &["UD_", "IB_", ""]),
        shared(PORT, &["UD_", "IB_"]),
        shared(UD_SHARED, &["UD_"]),
        shared(FIRST_RECEIVES, &["UD_"]),
        shared(SHORT_ADDRESSES, &["UD_"]),
        shared(MLX5, &["IB_"]),
    ],
    &[
        ALLOC,
        DATAGRAM[1],
        DATAGRAM[2],
        DATAGRAM[3],
        DATAGRAM[4],
        UD_MLX5_COST,
    ],
);

/// Scalable reliable datagrams of EFA.
pub static SRD: Section = section(
    "EFA datagrams",
    "SRD_",
    &[
        shared(IFACE, &["IB_", ""]),
        shared(PORT, &["IB_"]),
        shared(FIRST_RECEIVES, &[]),
    ],
    &[ALLOC, DATAGRAM[1], DATAGRAM[2], DATAGRAM[3], DATAGRAM[4]],
);
