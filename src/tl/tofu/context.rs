//! What a context knows of the interconnect, and what the threads of a worker share of their interface.

use super::amo::{AmoCaps, AmoVerb};
use super::iface::TofuIface;
use super::tni::{self, Tni};
use super::utofu::Utofu;
use super::vcq_registry::VcqRegistry;
use super::{TofuTuning, info, options};
use crate::options::{AtomicMode, Count, Options};
use crate::sys::log;
use crate::tl::lane_info::LaneInfo;
use crate::tl::program::Program;
use std::io;
use std::sync::Arc;

/// End of the error message: the exhausted limit, and what can be done.
const NO_QUEUE: &str = "no virtual control queue is left on the network interfaces of this node that UCX_NET_DEVICES \
     allows; fewer workers or processes a node, more interfaces, or, to share control queues earlier, a smaller \
     UCX_TOFU_MAX_VCQS or UCX_TOFU_VCQS_PER_WORKER make room";

/// The interconnect, as far as a context uses it.
pub struct TofuContext {
    /// `None` where the transport is not allowed.
    tuning: Option<TofuTuning>,
    /// Network interfaces that may be used.
    tnis: Vec<Tni>,
    /// VCQs of the workers there.
    pub vcq_registry: Arc<VcqRegistry>,
    /// Atomic operations that all of the TNIs offer.
    pub offered: AmoCaps,
    /// Whether TNIs, and nothing else, execute atomic operations on the context's memory.
    pub amo_by_tni: bool,
    /// The program may wait for events.
    pub(super) sleeps: bool,
}

impl TofuContext {
    /// Finds the TNIs that the options allow, by the library, if `UCX_TLS` allows the transport. There are none where
    /// the library or the interconnect is missing, or the program may wait for events; that is no error.
    pub fn new(options: &Options, program: Program) -> TofuContext {
        let allowed = options.tls.allows("tofu");
        let mut tuning = allowed.then(|| options::tuning(options));
        let tnis = tuning.map_or(Vec::new(), |_| tnis(options, program.sleeps));
        if let (Count::Auto, Some(tuning), Some(processes)) =
            (options.tofu.max_vcqs, &mut tuning, program.processes)
        {
            tuning.most_alone = options::fair_part(tnis.len(), processes);
        }
        let offered = AmoCaps::by_all(tnis.iter().map(|tni| &tni.caps));
        TofuContext {
            tuning,
            tnis,
            vcq_registry: Arc::default(),
            offered,
            amo_by_tni: amo_by_tni(options, offered, program),
            sleeps: program.sleeps,
        }
    }

    /// Whether there is a TNI to use.
    pub fn has_tnis(&self) -> bool {
        !self.tnis.is_empty()
    }

    /// Whether the transport is allowed, and there is no TNI to use.
    pub fn lacks_tnis(&self) -> bool {
        self.tuning.is_some() && self.tnis.is_empty()
    }

    /// Whether the transport is allowed, and its library is not there.
    pub fn lacks_library(&self) -> bool {
        self.tuning.is_some() && Utofu::get().is_none()
    }

    /// Whether there is an interconnect that may be used, but not by a program that wants to sleep.
    pub fn lacks_events(&self) -> bool {
        let lacks = self.lacks_tnis() && !self.lacks_library();
        lacks && self.sleeps
    }

    /// The interface of a new worker, if there is an interconnect. `mt`: threads may call the worker concurrently;
    /// `reaches_others`: peers are reached by other transports, too.
    ///
    /// # Errors
    /// There is no VCQ for the worker, which reaches no peers without one.
    pub fn open_iface(&self, mt: bool, reaches_others: bool) -> io::Result<Option<TofuIface>> {
        let Some(tuning) = self.tuning.filter(|_| self.has_tnis()) else {
            return Ok(None);
        };
        match TofuIface::new(&self.tnis, &self.vcq_registry, tuning, mt) {
            Ok(iface) => Ok(Some(iface)),
            Err(e) if reaches_others => {
                log::warn!("a worker does not use Tofu: {NO_QUEUE}: {e}");
                Ok(None)
            }
            Err(e) => Err(io::Error::new(e.kind(), format!("{NO_QUEUE}: {e}"))),
        }
    }
}

/// The TNIs that may be used by a program that may sleep (`sleeps`) or not.
fn tnis(options: &Options, sleeps: bool) -> Vec<Tni> {
    let tnis = tni::usable(&options.net_devices);
    if sleeps && !tnis.is_empty() {
        log::diag!("tofu is not used: the program uses UCP_FEATURE_WAKEUP");
        return Vec::new();
    }
    tnis
}

/// Whether TNIs execute atomic operations. Operations that a TNI does not offer are emulated by compare-and-swap, which
/// is therefore required.
fn amo_by_tni(options: &Options, offered: AmoCaps, program: Program) -> bool {
    (program.amo32 || program.amo64)
        && offered.has(AmoVerb::CompareSwap)
        && match options.atomic_mode {
            AtomicMode::Cpu => false,
            AtomicMode::Device => true,
            AtomicMode::Guess => !(program.one_host && program.shm),
        }
}

/// What all threads of a worker use of its interface.
pub struct TofuShared {
    pub iface: Arc<TofuIface>,
}

impl TofuShared {
    /// Name and estimates of a lane of this worker.
    pub fn lane_info(&self) -> LaneInfo {
        info::lane(&self.iface.name)
    }
}
