//! A context: what the program asked for, what the environment allows, and the memory it registered.

use super::memory::Regions;
use super::rkey::Attached;
use crate::ctypes::*;
use crate::options::{OpFlag, Options};
use crate::sys::log;
use std::sync::atomic::{AtomicU64, Ordering};

/// Transports of this version.
pub const TRANSPORTS: [&str; 4] = ["self", "posix", "sysv", "cma"];

/// `UCX_RNDV_THRESH=auto` over shared memory: from about here on one copy by the receiver (2 us
/// for the system call, 9 GB/s) beats two copies through a ring.
const DEFAULT_RNDV_THRESH: usize = 16 << 10;

/// What the options mean to the engine: decided once per context.
#[derive(Clone, Debug)]
pub struct Policy {
    /// `UCX_TLS` lets a worker talk to itself.
    pub loopback: bool,
    /// It lets workers of one host talk through shared memory.
    pub shm: bool,
    /// It lets them copy from each other's memory.
    pub cma: bool,
    /// Messages longer than this travel by rendezvous, bytes.
    pub rndv_thresh: usize,
    /// Flags added to those of every operation.
    pub extra_op_flags: u32,
    /// Between two looks at a silent peer, milliseconds; `u64::MAX` for never.
    pub keepalive_ms: u64,
}

impl Policy {
    /// What the options say.
    ///
    /// # Errors
    /// `UCS_ERR_NO_DEVICE` if they leave no transport.
    pub fn new(options: &Options) -> Result<Policy, ucs_status_t> {
        let tls = &options.tls;
        warn_unknown(options);
        let shm = tls.allows("posix") || tls.allows("sysv");
        let loopback = shm || tls.allows("self");
        if !loopback {
            let asked = options.get("TLS").unwrap_or_default();
            log::error!(
                "no usable transports/devices (asked {asked}; this version has self, posix, sysv and cma)"
            );
            return Err(UCS_ERR_NO_DEVICE);
        }
        Ok(Policy {
            loopback,
            shm,
            cma: tls.allows("cma"),
            rndv_thresh: options
                .rndv_thresh
                .intra
                .bytes()
                .unwrap_or(DEFAULT_RNDV_THRESH),
            extra_op_flags: extra_flags(options),
            keepalive_ms: options
                .keepalive_interval
                .duration()
                .map_or(u64::MAX, |d| d.as_millis() as u64),
        })
    }
}

/// Names in `UCX_TLS` that mean nothing here are worth a warning: the user expects something else.
fn warn_unknown(options: &Options) {
    let unknown = options.tls.unknown(&TRANSPORTS);
    if !unknown.is_empty() && options.warn_invalid_config && !options.tls.is_negated() {
        let (names, ours) = (unknown.join("', '"), TRANSPORTS.join(", "));
        log::warn!("transport '{names}' is not available, please use one or more of: {ours}");
    }
}

fn extra_flags(options: &Options) -> u32 {
    [
        (OpFlag::NoImmCmpl, UCP_OP_ATTR_FLAG_NO_IMM_CMPL),
        (OpFlag::FastCmpl, UCP_OP_ATTR_FLAG_FAST_CMPL),
        (OpFlag::ForceImmCmpl, UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL),
        (OpFlag::MultiSend, UCP_OP_ATTR_FLAG_MULTI_SEND),
    ]
    .into_iter()
    .filter(|&(flag, _)| options.extra_op_attr_flags.contains(flag))
    .fold(0, |bits, (_, bit)| bits | bit as u32)
}

/// Handed out as `ucp_context_h`.
pub struct Context {
    pub name: String,
    pub features: u64,
    /// Bytes of the user's area behind each request.
    pub request_size: usize,
    pub request_init: ucp_request_init_callback_t,
    pub request_cleanup: ucp_request_cleanup_callback_t,
    /// Threads may use different workers, or the context, at the same time.
    pub mt_workers_shared: bool,
    /// Minor API version of the caller: 5 was the number of "unknown" memory before 1.17 or so.
    pub api_minor: u32,
    pub options: Options,
    pub policy: Policy,
    pub regions: Regions,
    pub attached: Attached,
    /// Memory handles that the user holds: clients are known to unmap what was never mapped.
    pub handles: parking_lot::Mutex<std::collections::HashSet<usize>>,
    workers_made: AtomicU64,
}

/// Parameters of [`Context::new`] that come from `ucp_params_t`.
pub struct ContextParams {
    pub name: Option<String>,
    pub features: u64,
    pub request_size: usize,
    pub request_init: ucp_request_init_callback_t,
    pub request_cleanup: ucp_request_cleanup_callback_t,
    pub mt_workers_shared: bool,
    pub api_minor: u32,
}

static CONTEXTS_MADE: AtomicU64 = AtomicU64::new(0);

impl Context {
    /// A context; `policy` were derived from `options` by the caller.
    pub fn new(params: ContextParams, options: Options, policy: Policy) -> Self {
        let number = CONTEXTS_MADE.fetch_add(1, Ordering::Relaxed);
        if policy.cma {
            crate::sys::cma::allow_peers();
        }
        Self {
            name: params
                .name
                .unwrap_or_else(|| format!("ucp_context_{number}")),
            features: params.features,
            request_size: params.request_size,
            request_init: params.request_init,
            request_cleanup: params.request_cleanup,
            mt_workers_shared: params.mt_workers_shared,
            api_minor: params.api_minor,
            options,
            policy,
            regions: Regions::default(),
            attached: Attached::default(),
            handles: parking_lot::Mutex::default(),
            workers_made: AtomicU64::new(0),
        }
    }

    /// Whether the options let this process copy from its peers' memory.
    pub fn cma_allowed(&self) -> bool {
        self.policy.cma
    }

    /// Whether the program asked for a feature.
    pub fn has(&self, feature: ucp_feature) -> bool {
        self.features & feature as u64 != 0
    }

    /// Counts workers; true for the first.
    pub fn note_worker(&self) -> bool {
        self.workers_made.fetch_add(1, Ordering::Relaxed) == 0
    }
}
