//! The options that the library itself reads, as typed fields, with the row and the type of each.
#![forbid(unsafe_code)]

use super::choice::{AtomicMode, LogLevel, OpFlag, RndvScheme, Ternary};
use super::filter::{DeviceFilter, TlsFilter};
use super::number::{self, Count, Interval, Size};
use std::time::Duration;

/// A type that an option can be read as. The text is in canonical spelling.
pub trait Value: Sized {
    /// The value, or `None` when the text is not one.
    fn from_text(text: &str) -> Option<Self>;
}

/// Defines `Settings`, its defaults and its update from one list of fields.
macro_rules! settings {
    ($($field:ident: $type:ty = $name:literal,)+) => {
        /// The values of the options that the library reads.
        #[derive(Clone, Debug)]
        pub struct Settings {
            $(#[doc = concat!("`UCX_", $name, "`.")] pub $field: $type,)+
        }

        impl Settings {
            /// The names of the options behind the fields.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            /// Builds every field from the text that `text_of` has for its option.
            pub(super) fn build(text_of: impl Fn(&str) -> &'static str) -> Option<Settings> {
                Some(Settings { $($field: <$type>::from_text(text_of($name))?,)+ })
            }

            /// Sets a field to the new value of the option `name`; an option without a field is ignored.
            pub(super) fn update(&mut self, name: &str, text: &str) {
                match name {
                    // A normalised text has a value: a test checks that kinds and types agree.
                    $($name => if let Some(value) = <$type>::from_text(text) { self.$field = value },)+
                    _ => (),
                }
            }
        }
    };
}

settings! {
    log_level: LogLevel = "LOG_LEVEL",
    log_file: String = "LOG_FILE",
    log_file_size: Size = "LOG_FILE_SIZE",
    log_file_rotate: u32 = "LOG_FILE_ROTATE",
    warn_unused_env_vars: bool = "WARN_UNUSED_ENV_VARS",
    warn_invalid_config: bool = "WARN_INVALID_CONFIG",
    vfs_enable: bool = "VFS_ENABLE",

    tls: TlsFilter = "TLS",
    net_devices: DeviceFilter = "NET_DEVICES",
    shm_devices: DeviceFilter = "SHM_DEVICES",
    self_devices: DeviceFilter = "SELF_DEVICES",
    sockaddr_tls_priority: Vec<String> = "SOCKADDR_TLS_PRIORITY",
    cm_use_all_devices: bool = "CM_USE_ALL_DEVICES",

    zcopy_thresh: Size = "ZCOPY_THRESH",
    rndv_thresh: RndvThresh = "RNDV_THRESH",
    rndv_scheme: RndvScheme = "RNDV_SCHEME",
    max_rndv_rails: Count = "MAX_RNDV_RAILS",
    max_rma_rails: Count = "MAX_RMA_RAILS",
    rma_zcopy_max_seg_size: Size = "RMA_ZCOPY_MAX_SEG_SIZE",
    extra_op_attr_flags: OpFlagSet = "EXTRA_OP_ATTR_FLAGS",
    proto_info: String = "PROTO_INFO",
    atomic_mode: AtomicMode = "ATOMIC_MODE",

    keepalive_interval: Interval = "KEEPALIVE_INTERVAL",
    keepalive_num_eps: u32 = "KEEPALIVE_NUM_EPS",
    listener_backlog: Count = "LISTENER_BACKLOG",

    posix_use_proc_link: bool = "POSIX_USE_PROC_LINK",

    num_eps: Count = "NUM_EPS",
    num_ppn: Count = "NUM_PPN",
    ib_gid_index: Count = "IB_GID_INDEX",
    rc_seg_size: Size = "RC_VERBS_SEG_SIZE",
    rc_tx_queue_len: u32 = "RC_VERBS_TX_QUEUE_LEN",
    rc_rx_queue_len: u32 = "RC_VERBS_RX_QUEUE_LEN",
    rc_max_num_eps: Count = "RC_VERBS_MAX_NUM_EPS",
    rc_is_global: bool = "RC_VERBS_IS_GLOBAL",
    rc_sl: Count = "RC_VERBS_SL",
    rc_traffic_class: Count = "RC_VERBS_TRAFFIC_CLASS",
    rc_hop_limit: u32 = "RC_VERBS_HOP_LIMIT",
    rc_roce_reachability_mode: String = "RC_VERBS_ROCE_REACHABILITY_MODE",
    rc_roce_local_subnet: bool = "RC_VERBS_ROCE_LOCAL_SUBNET",
    rc_roce_subnet_prefix_len: Count = "RC_VERBS_ROCE_SUBNET_PREFIX_LEN",
    rc_pkey: String = "RC_VERBS_PKEY",
    rc_path_mtu: String = "RC_VERBS_PATH_MTU",
    rc_timeout: Interval = "RC_VERBS_TIMEOUT",
    rc_retry_count: u32 = "RC_VERBS_RETRY_COUNT",
    rc_rnr_timeout: Interval = "RC_VERBS_RNR_TIMEOUT",
    rc_rnr_retry_count: u32 = "RC_VERBS_RNR_RETRY_COUNT",
    rc_fc_enable: bool = "RC_VERBS_FC_ENABLE",
    rc_fc_wnd_size: u32 = "RC_VERBS_FC_WND_SIZE",
    ud_tx_queue_len: u32 = "UD_VERBS_TX_QUEUE_LEN",
    ud_rx_queue_len_init: u32 = "UD_VERBS_RX_QUEUE_LEN_INIT",
    ud_rx_queue_len: u32 = "UD_VERBS_RX_QUEUE_LEN",
    ud_timeout: Interval = "UD_VERBS_TIMEOUT",
    ud_timer_tick: Interval = "UD_VERBS_TIMER_TICK",
    ud_timer_backoff: f64 = "UD_VERBS_TIMER_BACKOFF",
    ud_max_window: u32 = "UD_VERBS_MAX_WINDOW",

    tofu_seg_size: Size = "TOFU_SEG_SIZE",
    tofu_ring_size: Size = "TOFU_RING_SIZE",
    tofu_ring_memory: Size = "TOFU_RING_MEMORY",
    tofu_window: u32 = "TOFU_WINDOW",
    tofu_rx_queue_len: u32 = "TOFU_RX_QUEUE_LEN",
    tofu_max_vcqs: Count = "TOFU_MAX_VCQS",
    tofu_vcqs_per_worker: u32 = "TOFU_VCQS_PER_WORKER",
    tofu_zcopy_thresh: Size = "TOFU_ZCOPY_THRESH",

    tcp_tx_seg_size: Size = "TCP_TX_SEG_SIZE",
    tcp_rx_seg_size: Size = "TCP_RX_SEG_SIZE",
    tcp_max_poll: u32 = "TCP_MAX_POLL",
    tcp_ep_bind_src_addr: Ternary = "TCP_EP_BIND_SRC_ADDR",
    tcp_af_prio: Vec<String> = "TCP_AF_PRIO",
    tcp_bridge_enable: bool = "TCP_BRIDGE_ENABLE",
    tcp_prefer_default: bool = "TCP_PREFER_DEFAULT",
    tcp_nodelay: bool = "TCP_NODELAY",
    tcp_sndbuf: Size = "TCP_SNDBUF",
    tcp_rcvbuf: Size = "TCP_RCVBUF",
    tcp_syn_cnt: Count = "TCP_SYN_CNT",
    tcp_user_timeout: Interval = "TCP_USER_TIMEOUT",
    tcp_keepidle: Interval = "TCP_KEEPIDLE",
    tcp_keepcnt: Count = "TCP_KEEPCNT",
    tcp_keepintvl: Interval = "TCP_KEEPINTVL",
    tcp_port_range: PortRange = "TCP_PORT_RANGE",
    tcp_max_conn_retries: u32 = "TCP_MAX_CONN_RETRIES",
    tcp_cm_reuseaddr: bool = "TCP_CM_REUSEADDR",
    rdma_cm_reuseaddr: bool = "RDMA_CM_REUSEADDR",
    rdma_cm_timeout: Duration = "RDMA_CM_TIMEOUT",
    rdma_cm_source_address: String = "RDMA_CM_SOURCE_ADDRESS",
}

/// Message sizes from which on rendezvous is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RndvThresh {
    /// To a process on the same node.
    pub intra: Size,
    /// To a process on another node.
    pub inter: Size,
}

/// A set of flags for every operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct OpFlagSet(u8);

impl OpFlagSet {
    /// Whether the set holds `flag`.
    pub fn contains(self, flag: OpFlag) -> bool {
        self.0 & (1 << flag as u8) != 0
    }
}

/// The ports that a listener without a port of its own tries; 0 to 0 lets the system choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

macro_rules! value {
    ($($type:ty: $text:ident => $parse:expr;)+) => {
        $(impl Value for $type {
            fn from_text($text: &str) -> Option<Self> { $parse }
        })+
    };
}

value! {
    String: text => Some(text.to_owned());
    Vec<String>: text => {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        Some(parts.map(str::to_owned).collect())
    };
    bool: text => match text { "y" => Some(true), "n" => Some(false), _ => None };
    u32: text => number::uint(text);
    f64: text => number::float(text);
    Size: text => number::size(text);
    Count: text => number::count(text);
    Duration: text => number::time(text).map(|t| Duration::try_from_secs_f64(t.0).unwrap_or(Duration::MAX));
    Interval: text => number::interval(text);
    LogLevel: text => LogLevel::from_name(text);
    AtomicMode: text => AtomicMode::from_name(text);
    RndvScheme: text => RndvScheme::from_name(text);
    Ternary: text => Ternary::from_name(text);
    TlsFilter: text => Some(TlsFilter::parse(text));
    DeviceFilter: text => Some(DeviceFilter::parse(text));
}

impl Value for RndvThresh {
    fn from_text(text: &str) -> Option<Self> {
        let (intra, inter) = text.split_once(',')?;
        Some(RndvThresh {
            intra: number::size(intra.strip_prefix("intra:")?)?,
            inter: number::size(inter.strip_prefix("inter:")?)?,
        })
    }
}

impl Value for OpFlagSet {
    fn from_text(text: &str) -> Option<Self> {
        let words = text.split(',').filter(|word| !word.is_empty());
        words
            .map(OpFlag::from_name)
            .try_fold(OpFlagSet(0), |set, flag| {
                Some(OpFlagSet(set.0 | 1 << flag? as u8))
            })
    }
}

impl Value for PortRange {
    fn from_text(text: &str) -> Option<Self> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        // A port beyond 65535 is none: such a range ends at the last port.
        let port = |text: &str| number::ulong(text).map(|n| u16::try_from(n).unwrap_or(u16::MAX));
        Some(PortRange {
            first: port(first)?,
            last: port(last)?,
        })
    }
}

/// Options that have an effect and are no fields of [`Settings`]: they are read by their names where they are used.
pub const READ_BY_NAME: &[&str] = &[
    "IB_ODP_MAX_SIZE",
    "IB_ODP_MEM_TYPES",
    "IB_RCACHE_MAX_REGIONS",
    "IB_RCACHE_MAX_SIZE",
    "IB_RCACHE_PURGE_ON_FORK",
    "IB_REG_METHODS",
    "MEM_EVENTS",
    "MEM_MMAP_HOOK_MODE",
    "RCACHE_ENABLE",
    "RCACHE_MAX_REGIONS",
    "RCACHE_MAX_SIZE",
    "RCACHE_PURGE_ON_FORK",
];
