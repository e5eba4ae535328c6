//! What a context knows of libfabric: the devices that its workers may use.

use super::amo;
use super::choice::{self, NAMED};
use super::device::OfiDevice;
use super::iface::OfiIface;
use super::mr::{OfiMrCache, OfiRegistrar};
use super::registry::OfiRegistry;
use super::worker::OfiWorker;
use crate::options::Options;
use crate::sys::log;
use crate::tl::iface_params::IfaceParams;
use crate::tl::program::Program;
use std::io;
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
    /// Devices that may be used, preferred first.
    devices: Vec<OfiDevice>,
    tuning: OfiTuning,
    /// The transports of [`NAMED`] and `ofi` that `UCX_TLS` allows.
    allowed: Vec<&'static str>,
    /// The endpoints of workers.
    pub(super) registry: Arc<OfiRegistry>,
    /// The provider executes atomic operations on memory of the context, if it has all of them.
    pub has_atomics: bool,
}

/// What all threads of a worker use to register memory. Does not keep the endpoint open.
pub struct OfiShared {
    mrs: Arc<OfiMrCache>,
    /// Operations of this side pass a registration of their memory (`FI_MR_LOCAL`).
    needs_local: bool,
    /// Operations of peers pass addresses of this process (`FI_MR_VIRT_ADDR`).
    is_virtual: bool,
    /// Bytes of the shortest memory that is accessed in place.
    pub zcopy: usize,
    /// Number of the endpoint in the registry.
    pub number: u16,
    /// The provider has all atomic operations on memory of peers.
    pub has_atomics: bool,
}

impl OfiShared {
    /// For the threads of a worker with this endpoint.
    pub fn new(iface: &OfiIface, mrs: Arc<OfiMrCache>, zcopy: usize, number: u16) -> OfiShared {
        OfiShared {
            mrs,
            needs_local: iface.needs_local,
            is_virtual: iface.is_virtual,
            zcopy,
            number,
            has_atomics: iface.has_atomics,
        }
    }

    /// What registers user memory.
    pub fn registrar<'a>(&'a self, options: &'a Options) -> OfiRegistrar<'a> {
        OfiRegistrar {
            mrs: &self.mrs,
            options,
            needs_local: self.needs_local,
            is_virtual: self.is_virtual,
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
        let mut devices = choice::usable(options);
        if let Some(first) = devices.first_mut() {
            *first = first.clone().with_rma();
        }
        let has_atomics = devices.first().is_some_and(OfiDevice::has_atomics);
        OfiContext {
            devices,
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

    /// The device that workers use, if they can.
    pub fn device(&self) -> Option<&OfiDevice> {
        self.devices.first()
    }

    /// Whether this transport is allowed, and has no device.
    pub fn lacks_devices(&self, transport: &str) -> bool {
        let has = |device: &OfiDevice| transport == OFI || device.core_provider() == transport;
        self.allowed.contains(&transport) && !self.devices.iter().any(has)
    }

    /// The interface of a new worker, if there is a device. `reaches_others`: peers are reached by other transports,
    /// too.
    ///
    /// # Errors
    /// The provider's, if the worker reaches no peers without the interface.
    pub fn open_iface<P: Copy + Eq>(
        &self,
        params: &IfaceParams,
        reaches_others: bool,
    ) -> io::Result<Option<Box<OfiWorker<P>>>> {
        let Some(device) = self.device() else {
            return Ok(None);
        };
        match OfiWorker::new(device, params, self.tuning, &self.registry) {
            Ok(worker) => Ok(Some(Box::new(worker))),
            Err(e) => {
                let why = format!("{} on {} by libfabric: {e}", device.provider, device.domain);
                if reaches_others {
                    log::warn!("a worker does not use {why}");
                    return Ok(None);
                }
                Err(io::Error::new(e.kind(), format!("no endpoint of {why}")))
            }
        }
    }
}
