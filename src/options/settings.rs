//! The options that the library itself reads, as typed fields. Those of a transport are beside its rows.
#![forbid(unsafe_code)]

use super::choice::{AtomicMode, HeapMode, HookMode, LogLevel, RndvScheme, Ternary};
use super::fields::option_fields;
use super::filter::{DeviceFilter, TlsFilter};
use super::number::{Count, Interval, Size};
use super::table::rows_cm::CmOptions;
use super::table::rows_cuda::CudaOptions;
use super::table::rows_ib::IbOptions;
use super::table::rows_ofi::OfiOptions;
use super::table::rows_shm::ShmOptions;
use super::table::rows_tcp::TcpOptions;
use super::table::rows_tofu::TofuOptions;
use super::value::{OpFlagSet, RndvThresh};

option_fields! {
    /// The values of the options that the library reads.
    Settings {
        log_level: LogLevel = "LOG_LEVEL",
        log_file: String = "LOG_FILE",
        log_file_size: Size = "LOG_FILE_SIZE",
        log_file_rotate: u32 = "LOG_FILE_ROTATE",
        trace_file: String = "TRACE_FILE",
        trace_max_size: Size = "TRACE_MAX_SIZE",
        warn_unused_env_vars: bool = "WARN_UNUSED_ENV_VARS",
        warn_invalid_config: bool = "WARN_INVALID_CONFIG",
        vfs_enable: bool = "VFS_ENABLE",
        mem_events: bool = "MEM_EVENTS",
        memtype_cache: Ternary = "MEMTYPE_CACHE",
        heap: HeapMode = "HEAP",
        mem_mmap_hook_mode: HookMode = "MEM_MMAP_HOOK_MODE",

        tls: TlsFilter = "TLS",
        net_devices: DeviceFilter = "NET_DEVICES",
        shm_devices: DeviceFilter = "SHM_DEVICES",
        self_devices: DeviceFilter = "SELF_DEVICES",
        sockaddr_tls_priority: Vec<String> = "SOCKADDR_TLS_PRIORITY",
        cm_use_all_devices: bool = "CM_USE_ALL_DEVICES",
        rcache_enable: Ternary = "RCACHE_ENABLE",
        rcache_max_regions: Count = "RCACHE_MAX_REGIONS",
        rcache_max_size: Size = "RCACHE_MAX_SIZE",
        rcache_purge_on_fork: bool = "RCACHE_PURGE_ON_FORK",

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
        shm_idle_timeout: Interval = "SHM_IDLE_TIMEOUT",
        keepalive_num_eps: u32 = "KEEPALIVE_NUM_EPS",
        listener_backlog: Count = "LISTENER_BACKLOG",

        num_eps: Count = "NUM_EPS",
        num_ppn: Count = "NUM_PPN",
        ;
        shm: ShmOptions,
        ib: IbOptions,
        tofu: TofuOptions,
        ofi: OfiOptions,
        tcp: TcpOptions,
        cuda: CudaOptions,
        cm: CmOptions,
    }
}
