//! What a context knows of libfabric: the devices that its workers may use.

use super::address::OfiPath;
use super::amo;
use super::choice::{self, NAMED};
use super::device::OfiDevice;
use super::mr::{OfiDomain, OfiRegistrar};
use super::registry::OfiRegistry;
use crate::options::Options;
use crate::tl::program::Program;
use std::sync::Arc;

/// Settings of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfiTuning {
    /// Receive buffers.
    pub receives: u32,
    /// Sends to one peer that are not complete.
    pub window: u32,
    /// Time to answer a request to connect, milliseconds.
    pub timeout_ms: u64,
    /// Bytes of the shortest memory that is accessed in place.
    pub zcopy: usize,
}

impl OfiTuning {
    /// The settings of these options.
    pub fn new(options: &Options) -> OfiTuning {
        let timeout = options.ofi.timeout.duration();
        OfiTuning {
            receives: options.ofi.rx_queue_len.clamp(8, 4096),
            window: options.ofi.tx_window.max(1),
            timeout_ms: timeout.map_or(u64::MAX, |d| d.as_millis() as u64),
            zcopy: options.ofi.zcopy_thresh.bytes().unwrap_or(usize::MAX),
        }
    }
}

/// libfabric, as far as a context uses it.
pub struct OfiContext {
    /// Devices that may be used.
    usable: Vec<OfiDevice>,
    /// Those among them of which each worker opens an interface, preferred first.
    devices: Vec<OfiDevice>,
    /// Those of which each worker opens an interface for a rail.
    rails: Vec<OfiDevice>,
    pub(super) tuning: OfiTuning,
    /// The transports of [`NAMED`] and `ofi` that `UCX_TLS` allows.
    allowed: Vec<&'static str>,
    /// The endpoints of workers.
    pub(super) registry: Arc<OfiRegistry>,
    /// The provider executes atomic operations on memory of the context, if it has all of them.
    pub has_atomics: bool,
}

/// What all threads of a worker use to register memory. Does not keep endpoints open.
pub struct OfiShared {
    /// The domains of its interfaces, in the order of its address; `None`: the interface accesses no memory of peers.
    domains: Vec<Option<OfiDomain>>,
    /// Bytes of the shortest memory that is accessed in place.
    pub zcopy: usize,
    /// The provider has all atomic operations on memory of peers.
    pub has_atomics: bool,
}

impl OfiShared {
    /// For the threads of a worker with these domains. `None`: none of its interfaces accesses memory of peers.
    pub fn new(
        domains: Vec<Option<OfiDomain>>,
        zcopy: usize,
        has_atomics: bool,
    ) -> Option<OfiShared> {
        domains.iter().any(Option::is_some).then_some(OfiShared {
            domains,
            zcopy,
            has_atomics,
        })
    }

    /// Number of the first interface that accesses memory in the registry.
    pub fn number(&self) -> u16 {
        let mut domains = self.domains.iter().flatten();
        domains.next().map_or(0, |domain| domain.number)
    }

    /// Whether memory of a peer is accessed by this way to it.
    pub fn accesses(&self, path: &OfiPath) -> bool {
        let has_domain = self.domains.get(path.iface).is_some_and(Option::is_some);
        path.to.number != 0 && has_domain
    }

    /// What registers user memory.
    pub fn registrar<'a>(&'a self, options: &'a Options) -> OfiRegistrar<'a> {
        OfiRegistrar {
            domains: &self.domains,
            zcopy: self.zcopy,
            options,
        }
    }
}

/// The name by which the transport is chosen, whatever the provider.
pub const OFI: &str = "ofi";

impl OfiContext {
    /// Finds the devices that the options allow. There are none where the library or a provider is missing, which is no
    /// error.
    pub fn new(options: &Options, program: Program) -> OfiContext {
        let named = NAMED.into_iter().chain([OFI]);
        let usable = choice::usable(options);
        let devices: Vec<OfiDevice> = choice::per_worker(&usable)
            .into_iter()
            .map(OfiDevice::with_rma)
            .collect();
        let most = options.max_rndv_rails.number().unwrap_or(usize::MAX);
        let rails = choice::rails(&usable, most.saturating_sub(1).min(1));
        let rails = rails.into_iter().map(OfiDevice::with_rma).collect();
        // Operations of two providers on one word are not atomic with each other.
        let has_atomics = match &devices[..] {
            [only] => only.has_atomics(),
            _ => false,
        };
        OfiContext {
            usable,
            devices,
            rails,
            registry: Arc::default(),
            has_atomics: has_atomics && amo::wanted(options, program),
            tuning: OfiTuning::new(options),
            allowed: named.filter(|name| options.tls.allows(name)).collect(),
        }
    }

    /// Whether there is a device to use.
    pub fn is_used(&self) -> bool {
        !self.devices.is_empty()
    }

    /// The devices of which each worker opens an interface, if it can, preferred first.
    pub fn devices(&self) -> &[OfiDevice] {
        &self.devices
    }

    /// The devices of which each worker opens an interface for a rail, if it can.
    pub fn rails(&self) -> &[OfiDevice] {
        &self.rails
    }

    /// Whether this transport is allowed, and has no device.
    pub fn lacks_devices(&self, transport: &str) -> bool {
        let has = |device: &OfiDevice| transport == OFI || device.core_provider() == transport;
        self.allowed.contains(&transport) && !self.usable.iter().any(has)
    }
}
