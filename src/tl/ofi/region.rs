//! Memory of the program that peers access (`ucp_mem_map`).

use super::context::OfiContext;
use super::iface::OfiIface;
use super::mr::OfiMr;
use super::object::OfiAccess;
use super::registry::OfiRegistry;
use super::rkey::{MAX_KEYS, OfiRkey};
use crate::sys::log;
use parking_lot::Mutex;
use std::sync::Arc;

/// A registered region: it is registered in the domain of each worker of the context when its first key is packed.
pub struct OfiRegion {
    base: u64,
    len: u64,
    registry: Arc<OfiRegistry>,
    /// Numbers of workers, and the registration in the domain of each.
    registered: Mutex<Vec<(u16, OfiMr)>>,
}

impl OfiContext {
    /// A region of whole pages; `None` where no endpoint accesses memory.
    ///
    /// # Safety
    /// `len` bytes at `base` are mapped, and may be read and written by peers, until the value is dropped.
    pub unsafe fn region(&self, base: u64, len: u64) -> Option<OfiRegion> {
        let has_rma = self.device().is_some_and(|device| device.has_rma());
        has_rma.then(|| OfiRegion {
            base,
            len,
            registry: self.registry.clone(),
            registered: Mutex::default(),
        })
    }
}

impl OfiRegion {
    /// Keys for all current workers of the context; `None` if there are none.
    pub fn rkey(&self) -> Option<OfiRkey> {
        let mut ifaces = self.registry.ifaces();
        ifaces.truncate(MAX_KEYS);
        let mut registered = self.registered.lock();
        registered.retain(|&(number, _)| ifaces.iter().any(|&(there, _)| there == number));
        for (number, iface) in &ifaces {
            if !registered.iter().any(|(known, _)| known == number) {
                registered.extend(self.register(iface).map(|mr| (*number, mr)));
            }
        }
        let (_, iface) = ifaces.first()?;
        (!registered.is_empty()).then(|| OfiRkey {
            fabric: iface.fabric,
            base: self.base,
            len: self.len,
            atomics: false,
            is_virtual: iface.is_virtual,
            keys: registered
                .iter()
                .map(|(number, mr)| (*number, mr.key()))
                .collect(),
        })
    }

    /// Registers the region in a domain. `None`: accesses to its worker go by message.
    fn register(&self, iface: &Arc<OfiIface>) -> Option<OfiMr> {
        let (base, len) = (self.base as *mut u8, self.len as usize);
        // SAFETY: the memory is mapped as long as the region exists, which owns the registration.
        let mr = unsafe { OfiMr::new(iface, base, len, OfiAccess::ByPeers) };
        mr.inspect_err(|e| log::diag!("{len} bytes at {base:p} are reached by message: {e}"))
            .ok()
    }
}
