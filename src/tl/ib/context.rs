//! What a context knows of InfiniBand and RoCE: the ports, and what their devices share among its workers.

use super::amo;
use super::keepalive::KeepaliveResponder;
use super::loopback::LoopbackQp;
use super::options::IbPolicy;
use super::port::{self, Port};
use super::registration::{self, IbMrCaches, LocalMrCache};
use super::rkey::RkeyAtomics;
use crate::options::Options;
use crate::sys::lock::MtLock;
use crate::sys::sync::OnceLock;
use crate::tl::program::Program;
use std::sync::Arc;

/// InfiniBand's part of a context.
pub struct IbContext {
    /// `None`: InfiniBand and RoCE are not allowed.
    pub policy: Option<IbPolicy>,
    /// Ports that may be used, in the order of their devices.
    pub ports: Arc<[Arc<Port>]>,
    /// The device that executes atomic operations on the context's memory, if one does.
    pub atomics: RkeyAtomics,
    /// Devices that cannot pin memory may fetch its pages.
    pub on_demand: bool,
    /// Devices may access memory of GPUs.
    pub takes_gpu_memory: bool,
    /// Replies to liveness probes.
    pub(super) responder: Arc<KeepaliveResponder>,
    /// Registered user memory; made by the first registration.
    registrations: OnceLock<IbMrCaches>,
}

impl IbContext {
    /// `amo_by_tni`: TNIs execute the atomic operations, so that no device does.
    pub fn new(options: &Options, program: Program, amo_by_tni: bool) -> IbContext {
        let policy = IbPolicy::new(options, program.num_eps);
        let ports = (policy.as_ref()).map_or(Vec::new(), |ib| {
            port::usable(&options.net_devices, &ib.tuning)
        });
        let ports: Arc<[Arc<Port>]> = ports.into();
        let by_queue = policy.as_ref().is_some_and(|ib| ib.by_queue);
        let wanted = program.amo64 && !amo_by_tni;
        IbContext {
            atomics: amo::choose(options, &ports, by_queue, wanted, program.one_host),
            on_demand: !ports.is_empty() && registration::allows_demand(options),
            takes_gpu_memory: !ports.is_empty() && registration::allows_gpu(options),
            responder: Arc::new(KeepaliveResponder::new(ports.clone())),
            policy,
            ports,
            registrations: OnceLock::new(),
        }
    }

    /// Whether each peer gets a queue pair.
    pub fn by_queue(&self) -> bool {
        self.policy.as_ref().is_some_and(|ib| ib.by_queue)
    }

    /// Whether a put or get of this length accesses the user's memory.
    pub fn is_in_place(&self, len: usize) -> bool {
        self.policy.as_ref().is_some_and(|ib| len >= ib.in_place)
    }

    /// Whether the transports are allowed, and there is no port to use.
    pub fn lacks_ports(&self) -> bool {
        self.policy.is_some() && self.ports.is_empty()
    }

    /// Whether queue pairs are connected by TCP: `UCX_TLS` excludes UD.
    pub fn wireup_by_tcp(&self) -> bool {
        let without_ud = (self.policy.as_ref()).is_some_and(|ib| !ib.tuning.ud.used);
        without_ud && !self.ports.is_empty()
    }

    /// Removes a worker from the keepalive responder.
    pub fn forget_worker(&self, worker: u64) {
        self.responder.remove_worker(worker);
    }

    /// The registrations of user memory.
    pub fn registrations(&self, options: &Options) -> &IbMrCaches {
        self.registrations
            .get_or_init(|| IbMrCaches::new(options, &self.ports))
    }

    /// Deregisters memory that has been unmapped. To be called now and then.
    pub fn trim(&self) {
        if let Some(registrations) = self.registrations.get() {
            registrations.trim();
        }
    }
}

/// What all threads of a worker use.
pub struct IbShared {
    /// Registrations that the worker found lately; `None` before the first lookup.
    pub registrations: LocalMrCache,
    /// Queue pair to the own process by which a device executes atomic operations for peers that cannot use it
    /// directly; `None` before the first.
    pub loopback: MtLock<Option<LoopbackQp>>,
}

impl IbShared {
    /// `mt`: threads may call the worker concurrently.
    pub fn new(mt: bool) -> IbShared {
        IbShared {
            registrations: MtLock::new(mt, None),
            loopback: MtLock::new(mt, None),
        }
    }
}
