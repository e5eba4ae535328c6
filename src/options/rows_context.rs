//! Rows of the options that a context reads: devices, memory, workers; those of protocols are in `rows_protocol`.
#![forbid(unsafe_code)]

use super::choice::{AddressVersion, FenceMode, MEMORY_TYPES, OpFlag};
use super::kind::OptionKind::*;
use super::rows_protocol::PROTOCOLS;
use super::section::{OptionBlock, Row, Section, Strictness, row};

/// Devices, transports and memory.
const RESOURCES: &[Row] = &[
    row(
        "NET_DEVICES",
        Devices,
        "all",
        "Network devices to use, such as mlx5_0:1 or eth0.",
    ),
    row(
        "SHM_DEVICES",
        Devices,
        "all",
        "Devices to use within a node.",
    ),
    row("ACC_DEVICES", Devices, "all", "Accelerators to use."),
    row("SELF_DEVICES", Devices, "all", "Loopback devices to use."),
    row(
        "TLS",
        Names,
        "all",
        "Transports to use, by name or alias (sm, ib, rc, ...); \\name is no alias, name:aux only for \
                 connecting. Without ud in any form (rc_verbs, ^ud; rc has ud:aux) queue pairs are connected by TCP.",
    ),
    row("PROTOS", Names, "all", "Protocols to use, by pattern."),
    row(
        "ALLOC_PRIO",
        Texts,
        "md:sysv,md:posix,thp,md:*,mmap,heap",
        "Ways to allocate memory, best first.",
    ),
    row(
        "RNDV_FRAG_SIZE",
        Texts,
        "host:512K,cuda:4M",
        "Fragment of a pipelined rendezvous, per memory type.",
    ),
    row(
        "RNDV_FRAG_ALLOC_COUNT",
        Texts,
        "host:128,cuda:128",
        "Fragments to allocate at once, per memory type.",
    ),
    row(
        "SOCKADDR_TLS_PRIORITY",
        Texts,
        "rdmacm,tcp,sockcm",
        "Ways to connect to a socket address, best first: rdmacm (over RDMA devices, where one has the \
                 address), tcp, * for all. A listener takes all of them.",
    ),
    row(
        "SOCKADDR_AUX_TLS",
        Retired,
        "",
        "No effect; retired in UCX.",
    ),
    row(
        "WARN_INVALID_CONFIG",
        Bool,
        "y",
        "Warn of devices and transports that do not exist.",
    ),
    row(
        "RX_MPOOL_SIZES",
        ListOf(&Size),
        "64,1K",
        "Sizes of the pools of receive buffers.",
    ),
    row(
        "RCACHE_ENABLE",
        Ternary,
        "try",
        "Keep memory registered after its use.",
    ),
    row(
        "RCACHE_MEM_PRIO",
        Uint,
        "500",
        "Priority of the cache's memory events.",
    ),
    row(
        "RCACHE_OVERHEAD",
        Interval,
        "auto",
        "Cost of a look-up in the registration cache.",
    ),
    row(
        "RCACHE_MAX_REGIONS",
        Count,
        "inf",
        "Most registrations kept.",
    ),
    row(
        "RCACHE_MAX_SIZE",
        Size,
        "inf",
        "Most bytes kept registered.",
    ),
    row(
        "RCACHE_MAX_UNRELEASED",
        Size,
        "inf",
        "Most bytes waiting for their release.",
    ),
    row(
        "RCACHE_PURGE_ON_FORK",
        Bool,
        "y",
        "Forget registrations when the process forks.",
    ),
    row(
        "SELECT_DISTANCE_MD",
        Text,
        "cuda_cpy",
        "Memory domain that distances are measured from.",
    ),
    row(
        "MEMTYPE_REG_WHOLE_ALLOC_TYPES",
        Choices(MEMORY_TYPES),
        "cuda",
        "Memory types that are registered a whole allocation at a time.",
    ),
    row(
        "RNDV_MEMTYPE_DIRECT_SIZE",
        Size,
        "inf",
        "Largest rendezvous straight from accelerator memory.",
    ),
];

/// Workers and endpoints.
const WORKERS: &[Row] = &[
    row(
        "FLUSH_WORKER_EPS",
        Bool,
        "y",
        "Flush a worker endpoint by endpoint.",
    ),
    row(
        "FENCE_MODE",
        Choice(FenceMode::NAMES),
        "auto",
        "How ucp_worker_fence orders operations.",
    ),
    row("UNIFIED_MODE", Bool, "n", "All nodes are alike."),
    row(
        "CM_USE_ALL_DEVICES",
        Bool,
        "y",
        "Endpoints by socket address use every device, shared memory too, not only the one they met through.",
    ),
    row(
        "LISTENER_BACKLOG",
        Count,
        "auto",
        "Connections a listener holds before they are accepted.",
    ),
    row(
        "PROTO_ENABLE",
        Bool,
        "y",
        "Choose protocols by estimated cost.",
    ),
    row(
        "PROTO_REQUEST_RESET",
        Bool,
        "n",
        "Restart requests, to test that they can be.",
    ),
    row(
        "PROTO_EMULATION_ENABLE",
        Bool,
        "y",
        "Emulate what no transport offers.",
    ),
    row(
        "KEEPALIVE_INTERVAL",
        Interval,
        "20000000.00us",
        "How often idle peers are checked.",
    ),
    row(
        "KEEPALIVE_NUM_EPS",
        Uint,
        "128",
        "Most peers checked at a time.",
    ),
    row(
        "SHM_IDLE_TIMEOUT",
        Interval,
        "10000000.00us",
        "A ring in a peer's shared memory by which nothing was sent for this time, or up to twice as long, is given \
         back if the peer has many senders; inf: never.",
    ),
    row(
        "RECOVERY_RETRIES",
        Uint,
        "inf",
        "How often a damaged endpoint is repaired before it fails.",
    ),
    row(
        "DYNAMIC_TL_SWITCH_INTERVAL",
        Interval,
        "inf",
        "How often the transport of an endpoint is reconsidered.",
    ),
    row(
        "DYNAMIC_TL_PROGRESS_FACTOR",
        Interval,
        "73791.62us",
        "Weight of recent use when it is.",
    ),
    row(
        "RESOLVE_REMOTE_EP_ID",
        OnOffAuto,
        "off",
        "Learn the peer's name of an endpoint when it is made.",
    ),
    row(
        "PROTO_INDIRECT_ID",
        OnOffAuto,
        "auto",
        "Name requests on the wire by number, not by address.",
    ),
    row(
        "RNDV_PUT_FORCE_FLUSH",
        Bool,
        "n",
        "Always flush after a rendezvous by put.",
    ),
    row(
        "SA_DATA_VERSION",
        Choice(&["v1", "v2"]),
        "v2",
        "Least version of the header of connections by socket address.",
    ),
    row(
        "RKEY_MPOOL_MAX_MD",
        Int,
        "2",
        "Remote keys with more memory domains are not pooled.",
    ),
    row(
        "ADDRESS_VERSION",
        Choice(AddressVersion::NAMES),
        "v1",
        "Format of worker addresses.",
    ),
    row(
        "PROTO_INFO",
        Text,
        "auto",
        "Print the protocols in use: y, n, auto, used, or a pattern.",
    ),
    row(
        "PROTO_INFO_DIR",
        Text,
        "",
        "Directory for files about protocol choice.",
    ),
    row(
        "RNDV_ALIGN_THRESH",
        Size,
        "64K",
        "Rendezvous from this size on are split to align memory.",
    ),
    row(
        "REG_NONBLOCK_MEM_TYPES",
        Choices(MEMORY_TYPES),
        "",
        "Memory types that are registered without touching their pages.",
    ),
    row(
        "REG_NONBLOCK_FALLBACK",
        Bool,
        "y",
        "Register in the usual way where that fails.",
    ),
    row(
        "PREFER_OFFLOAD",
        Bool,
        "y",
        "Prefer transports with remote memory access.",
    ),
    row(
        "PROTO_OVERHEAD",
        Keyed(
            &[
                "single",
                "multi",
                "rndv_offload",
                "rndv_rtr",
                "rndv_rts",
                "sw",
                "rkey_ptr",
            ],
            &Time,
        ),
        "single:0.01us,multi:0.01us,rndv_offload:0.04us,rndv_rtr:0.04us,rndv_rts:0.28us,sw:0.04us,\
                 rkey_ptr:0.00us",
        "Fixed cost of each protocol.",
    ),
    row(
        "GVA_ENABLE",
        OnOffAuto,
        "off",
        "One registration for the whole address space.",
    ),
    row("GVA_MLOCK", Bool, "y", "Lock memory for it."),
    row("GVA_PREFETCH", Bool, "y", "Fetch pages for it."),
    row(
        "EXTRA_OP_ATTR_FLAGS",
        Choices(OpFlag::NAMES),
        "",
        "Flags added to every send and receive.",
    ),
    row(
        "MAX_PRIORITY_EPS",
        Uint,
        "20",
        "Most endpoints that get the best resources.",
    ),
    row(
        "WIREUP_VIA_AM_LANE",
        Bool,
        "n",
        "Connect over the lane of active messages.",
    ),
    row(
        "CONNECT_ALL_TO_ALL",
        Bool,
        "n",
        "Connect every local device to every remote one.",
    ),
    row(
        "SINGLE_NET_DEVICE",
        Bool,
        "n",
        "Use one network device for everything.",
    ),
    row(
        "MAX_HCA_PER_GPU",
        Count,
        "inf",
        "Most network cards that accelerator memory is registered with.",
    ),
    row(
        "NODE_LOCAL_ID",
        Count,
        "auto",
        "Number of this process on its node.",
    ),
    row(
        "PRINT_TRANSPORT_TABLES",
        OnOffAuto,
        "auto",
        "Print tables of transports and lanes.",
    ),
    row(
        "MAX_COMPONENT_MDS",
        Count,
        "16",
        "Most memory domains of one component.",
    ),
];

/// What `ucp_config_read` reads and `ucp_config_print` prints.
pub static CONTEXT: Section = Section {
    title: "Context",
    prefix: "",
    blocks: &[
        unprefixed(RESOURCES),
        unprefixed(PROTOCOLS),
        unprefixed(WORKERS),
    ],
    defaults: &[],
    strictness: Strictness::Fail,
};

/// Rows without shared prefixes.
const fn unprefixed(rows: &'static [Row]) -> OptionBlock {
    OptionBlock { rows, aliases: &[] }
}
