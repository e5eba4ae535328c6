//! Rows of the options that several transports over InfiniBand, RoCE and EFA devices share.
#![forbid(unsafe_code)]

use crate::options::kind::OptionKind::*;
use crate::options::rows_iface::{
    RX_GROW_FACTOR, RX_MAX_BUFS, RX_MAX_CHUNK_SIZE, TX_GROW_FACTOR, TX_MAX_BUFS, TX_MAX_CHUNK_SIZE,
};
use crate::options::section::{Row, row};

/// What every transport over these devices has.
pub const PORT: &[Row] = &[
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
    TX_MAX_BUFS,
    row(
        "TX_BUFS_GROW",
        Uint,
        "1024",
        "Send buffers added at a time.",
    ),
    TX_MAX_CHUNK_SIZE,
    TX_GROW_FACTOR,
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
    RX_MAX_BUFS,
    row(
        "RX_BUFS_GROW",
        Uint,
        "0",
        "Receive buffers added at a time; 0 for automatic.",
    ),
    RX_MAX_CHUNK_SIZE,
    RX_GROW_FACTOR,
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
pub const RC_SHARED: &[Row] = &[
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
pub const RC_QP: &[Row] = &[
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
pub const MLX5: &[Row] = &[
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
pub const RC_MLX5_SHARED: &[Row] = &[
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
pub const UD_SHARED: &[Row] = &[
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

/// Receives at the start, of transports that add some with the number of peers.
pub const FIRST_RECEIVES: &[Row] = &[row(
    "RX_QUEUE_LEN_INIT",
    Uint,
    "128",
    "Receives posted at the start.",
)];
/// The form of peers' addresses at mlx5 devices.
pub const SHORT_ADDRESSES: &[Row] = &[row(
    "COMPACT_AV",
    Bool,
    "y",
    "Use the short form of addresses.",
)];
