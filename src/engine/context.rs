//! A context: what the program requested, what the environment allows, and the memory that the program registered.

use super::job::JobInfo;
use super::policy;
pub use super::policy::{Policy, transports};
use super::regions::RegionTable;
use super::rkey::MappedSegments;
use crate::ctypes::*;
use crate::options::{HeapMode, Options};
use crate::sys::fork::Origin;
use crate::sys::trace::Recording;
use crate::sys::{log, shared_heap};
use crate::tl::cuda::{CUDA_COPY, CUDA_IPC, CudaContext};
use crate::tl::{Program, TlContext};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Handed out as `ucp_context_h`.
pub struct Context {
    pub name: String,
    pub features: u64,
    /// Bytes of the user's area behind each request.
    pub request_size: usize,
    pub request_init: ucp_request_init_callback_t,
    pub request_cleanup: ucp_request_cleanup_callback_t,
    /// Threads may use different workers, or the context, concurrently.
    pub mt_workers_shared: bool,
    /// Minor API version of the caller.
    pub api_minor: u32,
    pub options: Options,
    pub policy: Policy,
    pub regions: RegionTable,
    /// Registered memory of devices, which peers access by message only.
    pub device_regions: RegionTable,
    pub attached: MappedSegments,
    /// What the transports keep.
    pub tl: TlContext,
    /// Memory of GPUs, if the process can have it.
    pub cuda: Option<Arc<CudaContext>>,
    /// Memory handles that the user holds; `ucp_mem_unmap` ignores others, as some programs pass handles that were
    /// never mapped.
    pub handles: parking_lot::Mutex<std::collections::HashSet<usize>>,
    workers_made: AtomicU64,
    /// Keeps the recording of the timeline running.
    _recording: Option<Recording>,
    /// The process that made it: a forked child inherits it and must not use it.
    origin: Origin,
}

/// Parameters of [`Context::new`] that come from `ucp_params_t`.
pub struct ContextParams {
    pub name: Option<String>,
    pub features: u64,
    pub request_size: usize,
    pub request_init: ucp_request_init_callback_t,
    pub request_cleanup: ucp_request_cleanup_callback_t,
    pub mt_workers_shared: bool,
    /// Endpoints that the program expects, if given.
    pub num_eps: Option<usize>,
    pub api_minor: u32,
    /// Processes on this host, if given.
    pub num_ppn: Option<usize>,
}

/// The operation's memory may be a device's: a bit that a context with CUDA adds to the flags of operations. UCP uses
/// none of the highest bits.
pub const ASK_DRIVER: u32 = 1 << 31;

/// The timeline of the worker is recorded: a bit that it adds to the flags of operations.
pub const RECORDED: u32 = 1 << 30;

/// How memory of one type is accessed.
#[derive(Clone, Copy)]
pub enum MemoryAccess<'a> {
    /// It is the host's.
    Processor,
    /// The driver knows whose it is.
    AskDriver(&'a Arc<CudaContext>),
    /// It is the host's, as the caller says. The driver knows whether that is so.
    CheckHost(&'a Arc<CudaContext>),
    /// Not at all.
    None,
}

/// Minor version of the API whose numbers of memory types this library uses.
const LAST_KNOWN_API: u32 = 22;

static CONTEXTS_MADE: AtomicU64 = AtomicU64::new(0);

/// Warns of a shared heap that was asked for and cannot be had.
fn warn_of_heap(options: &Options) {
    if options.heap == HeapMode::Shared && !shared_heap::is_loaded() {
        log::once!(
            Warn,
            "UCX_HEAP=shared: librucp_heap.so is not preloaded, so that the memory of this process stays private \
             (rucp run --shared-heap)"
        );
    }
}

impl Context {
    /// A context; the caller has derived `policy` from `options`.
    ///
    /// # Errors
    /// `UCS_ERR_NO_DEVICE` if this host has nothing of what they allow.
    pub fn new(
        params: ContextParams,
        options: Options,
        mut policy: Policy,
    ) -> Result<Self, ucs_status_t> {
        let recording = Recording::start(&options);
        let number = CONTEXTS_MADE.fetch_add(1, Ordering::Relaxed);
        if policy.cma {
            crate::sys::cma::allow_peers();
        }
        warn_of_heap(&options);
        let wants = |feature| params.features & feature as u64 != 0;
        let job = JobInfo {
            endpoints: params.num_eps,
            here: params.num_ppn,
        };
        let known = job.known(&options);
        let program = Program {
            sleeps: wants(UCP_FEATURE_WAKEUP),
            num_eps: params.num_eps,
            processes: known.here,
            amo32: wants(UCP_FEATURE_AMO32),
            amo64: wants(UCP_FEATURE_AMO64),
            one_host: known.is_on_one_host(),
            shm: policy.shm,
        };
        let tl = TlContext::new(&options, program);
        // A list of devices may be the reason.
        let every = options.net_devices.is_all();
        let cuda = CudaContext::new(&options).map(Arc::new);
        let copies: &[&str] = cuda.as_ref().map_or(&[], |_| &[CUDA_COPY, CUDA_IPC]);
        policy::warn_of_transports(&options, copies, |name| every && tl.lacks_devices(name));
        if !policy.loopback && !tl.has_network() {
            return Err(policy::none_usable(&options));
        }
        if cuda.is_some() {
            policy.extra_op_flags |= ASK_DRIVER;
        }
        Ok(Self {
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
            regions: RegionTable::default(),
            device_regions: RegionTable::default(),
            attached: MappedSegments::default(),
            tl,
            cuda,
            handles: parking_lot::Mutex::default(),
            workers_made: AtomicU64::new(0),
            _recording: recording,
            origin: Origin::here(),
        })
    }

    /// Whether this process is a child, forked after the context was made.
    pub fn is_inherited(&self) -> bool {
        self.origin.is_inherited()
    }

    /// Whether the options let this process copy from its peers' memory.
    pub fn cma_allowed(&self) -> bool {
        self.policy.cma
    }

    /// Whether the program requested a feature.
    pub fn has(&self, feature: ucp_feature) -> bool {
        self.features & feature as u64 != 0
    }

    /// How memory of this type, a number of the caller's, is accessed. "Unknown" is the number behind the last type,
    /// which was 5 in 1.13 and is 10 in 1.22; the headers between them added one type after the other, so that for
    /// their programs a number from 5 on says nothing.
    pub fn memory_access(&self, memory_type: u32) -> MemoryAccess<'_> {
        const CUDA: u32 = UCS_MEMORY_TYPE_CUDA as u32;
        const MANAGED: u32 = UCS_MEMORY_TYPE_CUDA_MANAGED as u32;
        const UNKNOWN: u32 = UCS_MEMORY_TYPE_UNKNOWN as u32;
        match (memory_type, &self.cuda) {
            (0, None) => MemoryAccess::Processor,
            (0, Some(cuda)) => MemoryAccess::CheckHost(cuda),
            (CUDA | MANAGED, Some(cuda)) => MemoryAccess::AskDriver(cuda),
            (1..=4, _) => MemoryAccess::None,
            (n, cuda) if n == UNKNOWN || self.api_minor < LAST_KNOWN_API => match cuda {
                Some(cuda) => MemoryAccess::AskDriver(cuda),
                None => MemoryAccess::Processor,
            },
            _ => MemoryAccess::None,
        }
    }

    /// The types of memory that this context accesses, a bit for each.
    pub fn memory_types(&self) -> u64 {
        let host = 1 << UCS_MEMORY_TYPE_HOST as u64;
        let cuda = 1 << UCS_MEMORY_TYPE_CUDA as u64 | 1 << UCS_MEMORY_TYPE_CUDA_MANAGED as u64;
        host | self.cuda.as_ref().map_or(0, |_| cuda)
    }

    /// The types of memory that this context accesses, for messages.
    pub fn memory_types_text(&self) -> &'static str {
        match self.cuda {
            Some(_) => "host and CUDA memory",
            None => "host memory",
        }
    }

    /// Counts workers; true for the first.
    pub fn note_worker(&self) -> bool {
        self.workers_made.fetch_add(1, Ordering::Relaxed) == 0
    }
}
