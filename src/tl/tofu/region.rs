//! Memory of the program that peers' TNIs access (`ucp_mem_map`).

use super::context::TofuContext;
use super::iface::TofuIface;
use super::rkey::TofuRkey;
use super::vcq::RemoteAddr;
use super::vcq_registry::{MrPerVcq, VcqRegistry};
use parking_lot::Mutex;
use std::sync::Arc;

/// A registered region: it is registered for the VCQ of each worker of the context when its first key is packed.
pub struct TofuRegion {
    stadds: Mutex<MrPerVcq>,
    vcq_registry: Arc<VcqRegistry>,
    /// TNIs execute the atomic operations on it.
    amo_by_tni: bool,
}

impl TofuContext {
    /// A region of whole pages; `None` where there is no TNI.
    ///
    /// # Safety
    /// `len` bytes at `base` are mapped, and may be read and written by TNIs, until the value is dropped.
    pub unsafe fn region(&self, base: u64, len: u64) -> Option<TofuRegion> {
        self.has_tnis().then(|| TofuRegion {
            // SAFETY: the caller's memory, as long as the value exists.
            stadds: Mutex::new(unsafe { MrPerVcq::new(base as *mut u8, len as usize) }),
            vcq_registry: self.vcq_registry.clone(),
            amo_by_tni: self.amo_by_tni,
        })
    }
}

impl TofuRegion {
    /// STADDs for all current workers of the context; `None` if a key needs none.
    pub fn rkey(&self) -> Option<TofuRkey> {
        let mut stadds = self.stadds.lock();
        let (base, len) = stadds.extent();
        let addresses = stadds.addresses(&self.vcq_registry);
        let atomics = self.amo_by_tni;
        (atomics || !addresses.is_empty()).then_some(TofuRkey {
            base,
            len,
            atomics,
            addresses,
        })
    }

    /// Remote address of a byte of the region for this worker's VCQ, or for another one of the context. `None`: no TNI
    /// can access it.
    pub fn locate(&self, addr: u64, iface: &TofuIface) -> Option<RemoteAddr> {
        (self.stadds.lock()).locate(iface.number, &iface.vcq, addr)
    }
}
