//! Sections and values of the options of InfiniBand, RoCE and EFA transports.
#![forbid(unsafe_code)]

use crate::options::choice::Ternary;
use crate::options::fields::option_fields;
use crate::options::kind::OptionKind::*;
use crate::options::number;
use crate::options::rows_iface::IFACE;
use crate::options::section::{OptionBlock, Row, Section, Strictness, row};
use crate::options::table::rows_ib_device::{DEVICE, DEVICE_RCACHE};
use crate::options::table::rows_ib_iface::{
    FIRST_RECEIVES, MLX5, PORT, RC_MLX5_SHARED, RC_QP, RC_SHARED, SHORT_ADDRESSES, UD_SHARED,
};

option_fields! {
    /// The options of InfiniBand and RoCE that the library reads.
    IbOptions {
        gid_index: number::Count = "IB_GID_INDEX",
        rc_seg_size: number::Size = "RC_VERBS_SEG_SIZE",
        rc_tx_queue_len: u32 = "RC_VERBS_TX_QUEUE_LEN",
        rc_rx_queue_len: u32 = "RC_VERBS_RX_QUEUE_LEN",
        rc_max_num_eps: number::Count = "RC_VERBS_MAX_NUM_EPS",
        rc_is_global: bool = "RC_VERBS_IS_GLOBAL",
        rc_sl: number::Count = "RC_VERBS_SL",
        rc_traffic_class: number::Count = "RC_VERBS_TRAFFIC_CLASS",
        rc_hop_limit: u32 = "RC_VERBS_HOP_LIMIT",
        rc_roce_reachability_mode: String = "RC_VERBS_ROCE_REACHABILITY_MODE",
        rc_roce_local_subnet: bool = "RC_VERBS_ROCE_LOCAL_SUBNET",
        rc_roce_subnet_prefix_len: number::Count = "RC_VERBS_ROCE_SUBNET_PREFIX_LEN",
        rc_pkey: String = "RC_VERBS_PKEY",
        rc_path_mtu: String = "RC_VERBS_PATH_MTU",
        rc_timeout: number::Interval = "RC_VERBS_TIMEOUT",
        rc_retry_count: u32 = "RC_VERBS_RETRY_COUNT",
        rc_rnr_timeout: number::Interval = "RC_VERBS_RNR_TIMEOUT",
        rc_rnr_retry_count: u32 = "RC_VERBS_RNR_RETRY_COUNT",
        rc_fc_enable: bool = "RC_VERBS_FC_ENABLE",
        rc_fc_wnd_size: u32 = "RC_VERBS_FC_WND_SIZE",
        ud_tx_queue_len: u32 = "UD_VERBS_TX_QUEUE_LEN",
        ud_rx_queue_len_init: u32 = "UD_VERBS_RX_QUEUE_LEN_INIT",
        ud_rx_queue_len: u32 = "UD_VERBS_RX_QUEUE_LEN",
        ud_timeout: number::Interval = "UD_VERBS_TIMEOUT",
        ud_timer_tick: number::Interval = "UD_VERBS_TIMER_TICK",
        ud_timer_backoff: f64 = "UD_VERBS_TIMER_BACKOFF",
        ud_max_window: u32 = "UD_VERBS_MAX_WINDOW",
        gpu_direct: Ternary = "IB_GPU_DIRECT_RDMA",
        reg_methods: Vec<String> = "IB_REG_METHODS",
        odp_max_size: number::Size = "IB_ODP_MAX_SIZE",
        odp_mem_types: Vec<String> = "IB_ODP_MEM_TYPES",
        rcache_max_regions: number::Count = "IB_RCACHE_MAX_REGIONS",
        rcache_max_size: number::Size = "IB_RCACHE_MAX_SIZE",
        rcache_purge_on_fork: bool = "IB_RCACHE_PURGE_ON_FORK",
    }
}

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
    blocks: &'static [OptionBlock],
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
const fn shared(rows: &'static [Row], aliases: &'static [&'static str]) -> OptionBlock {
    OptionBlock { rows, aliases }
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
