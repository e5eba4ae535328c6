//! Memory of the program that peers access (`ucp_mem_map`).

use super::address::MAX_INTERFACES;
use super::choice::IfaceRole;
use super::context::OfiContext;
use super::device::OfiDevice;
use super::mr::OfiMr;
use super::object::OfiAccess;
use super::registry::OfiRegistry;
use super::rkey::{MAX_KEYS, OfiRkey, OfiRkeys};
use super::shared_ep::OfiSharedEp;
use crate::sys::log;
use crate::tl::rma::MrKey;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What there is for each interface, by their numbers.
type Numbered<T> = Vec<(u16, T)>;

/// A registered region: it is registered in the domain of each interface of the context's workers when its first key is
/// packed.
pub struct OfiRegion {
    base: u64,
    len: u64,
    registry: Arc<OfiRegistry>,
    wants_atomics: bool,
    /// A key says that the provider executes atomic operations: nothing else does from then on.
    is_amo_alone: AtomicBool,
    /// Numbers of interfaces, and the registration in the domain of each.
    registered: Mutex<Numbered<OfiMr>>,
}

impl OfiContext {
    /// A region of whole pages; `None` where no endpoint accesses memory.
    ///
    /// # Safety
    /// `len` bytes at `base` are mapped, and may be read and written by peers, until the value is dropped.
    pub unsafe fn region(&self, base: u64, len: u64) -> Option<OfiRegion> {
        let has_rma = self.devices().iter().any(OfiDevice::has_rma);
        has_rma.then(|| OfiRegion {
            base,
            len,
            registry: self.registry.clone(),
            wants_atomics: self.has_atomics,
            is_amo_alone: AtomicBool::new(false),
            registered: Mutex::default(),
        })
    }
}

impl OfiRegion {
    /// Keys for the interfaces of all current workers of the context; `None` if there are none.
    pub fn rkeys(&self) -> Option<OfiRkeys> {
        let (eps, registered) = self.update();
        let mut fabrics: Vec<OfiRkey> = Vec::new();
        for (number, mr) in registered.iter() {
            let Some((_, ep)) = eps.iter().find(|(there, _)| there == number) else {
                continue;
            };
            let entry = (*number, mr.key());
            let known = fabrics.iter().position(|known| known.fabric == ep.fabric);
            match known {
                Some(at) if fabrics[at].keys.len() < MAX_KEYS => fabrics[at].keys.push(entry),
                None if fabrics.len() < MAX_INTERFACES => fabrics.push(OfiRkey {
                    fabric: ep.fabric,
                    base: self.base,
                    len: self.len,
                    atomics: self.wants_atomics && ep.has_atomics,
                    is_virtual: ep.is_virtual,
                    keys: vec![entry],
                }),
                // Accesses to it go by message.
                _ => {}
            }
        }
        if fabrics.iter().any(|fabric| fabric.atomics) {
            // Release: the partner is the load in `is_amo_alone`, for an operation of a peer that has the key.
            self.is_amo_alone.store(true, Ordering::Release);
        }
        OfiRkeys::new(fabrics)
    }

    /// Whether the provider, and nothing else, executes atomic operations on it.
    pub fn is_amo_alone(&self) -> bool {
        // Acquire: the partner is the store in `rkeys`.
        self.is_amo_alone.load(Ordering::Acquire)
    }

    /// The endpoint of this number, or else another one of the context, that executes atomic operations, and in whose
    /// domain the region is registered, and the key there.
    pub fn unit(&self, number: u16) -> Option<(Arc<OfiSharedEp>, MrKey)> {
        let (eps, registered) = self.update();
        let key_of = |wanted: u16| {
            let mut all = registered.iter();
            let (_, mr) = all.find(|&&(known, _)| known == wanted)?;
            Some(mr.key())
        };
        let own = eps.iter().filter(|&&(there, _)| there == number);
        let all = own.chain(&eps);
        let mut able = all.filter(|(_, ep)| ep.executes_amo());
        able.find_map(|(there, ep)| {
            let key = key_of(*there)?;
            let base = if ep.is_virtual { 0 } else { self.base };
            Some((ep.clone(), MrKey::new(key, base, *there)?))
        })
    }

    /// Registers the region for the current interfaces that lack it. Returns them, and the registrations.
    fn update(&self) -> (Numbered<Arc<OfiSharedEp>>, MutexGuard<'_, Numbered<OfiMr>>) {
        let mut eps = self.registry.eps();
        // Peers read messages by rails, and nothing else.
        eps.retain(|(_, ep)| ep.role == IfaceRole::Lane);
        let mut registered = self.registered.lock();
        registered.retain(|&(number, _)| eps.iter().any(|&(there, _)| there == number));
        for (number, ep) in &eps {
            if !registered.iter().any(|(known, _)| known == number) {
                registered.extend(self.register(ep).map(|mr| (*number, mr)));
            }
        }
        (eps, registered)
    }

    /// Registers the region in a domain. `None`: accesses by its interface go by message.
    fn register(&self, ep: &Arc<OfiSharedEp>) -> Option<OfiMr> {
        let (base, len) = (self.base as *mut u8, self.len as usize);
        // SAFETY: the memory is mapped as long as the region exists, which owns the registration.
        let mr = unsafe { OfiMr::new(ep, base, len, OfiAccess::ByPeers) };
        mr.inspect_err(|e| log::diag!("{len} bytes at {base:p} are reached by message: {e}"))
            .ok()
    }
}
