//! Memory of the program that peers' devices access (`ucp_mem_map`).

use super::bindings::*;
use super::context::IbContext;
use super::hca::{Hca, HcaMr};
use super::port::Port;
use super::rkey::{IbRkey, RkeyAtomics};
use crate::sys::sync::OnceLock;
use std::io;
use std::sync::Arc;

/// Access rights of peers' devices on registered memory.
const REMOTE: u32 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC;

/// A registered region: its first packed key registers it, because no peer can access it before.
pub struct IbRegion {
    /// Whole pages: where they begin, and how many bytes they are.
    base: u64,
    len: u64,
    ports: Arc<[Arc<Port>]>,
    /// Devices that cannot pin it may fetch its pages.
    on_demand: bool,
    /// The device that executes atomic operations on it, once it has keys.
    atomics: RkeyAtomics,
    /// `None` if it cannot be registered.
    registered: OnceLock<Option<RegisteredKeys>>,
}

/// The registrations of a region.
struct RegisteredKeys {
    keys: IbRkey,
    /// The key for atomic operations, if a device executes them.
    atomic_key: Option<u32>,
    _regions: Vec<HcaMr>,
}

impl IbContext {
    /// A region of whole pages; `None` where there is no port.
    ///
    /// # Safety
    /// `len` bytes at `base` are mapped, and may be read and written by devices, until the value is dropped.
    pub unsafe fn region(&self, base: u64, len: u64) -> Option<IbRegion> {
        (!self.ports.is_empty()).then(|| IbRegion {
            base,
            len,
            ports: self.ports.clone(),
            on_demand: self.on_demand,
            atomics: self.atomics,
            registered: OnceLock::new(),
        })
    }
}

impl IbRegion {
    /// The keys for peers' devices, registered by the first call; `None` where the memory cannot be registered.
    pub fn keys(&self) -> Option<IbRkey> {
        let registered = self.registered.get_or_init(|| self.register());
        registered.as_ref().map(|registered| registered.keys)
    }

    /// The key by which a device executes atomic operations on the region, if one does and the region has keys.
    pub fn atomic_key(&self) -> Option<u32> {
        self.registered.get()?.as_ref()?.atomic_key
    }

    /// Registers the pages with every port's device.
    fn register(&self) -> Option<RegisteredKeys> {
        let mut keys = IbRkey {
            base: self.base,
            len: self.len,
            atomics: self.atomics,
            ..IbRkey::default()
        };
        let mut regions = Vec::new();
        for (i, port) in self.ports.iter().take(keys.keys.len()).enumerate() {
            // Ports of one device share its keys.
            let same = |p: &&Arc<Port>| Arc::ptr_eq(&p.hca, &port.hca);
            let earlier = self.ports[..i].iter().position(|p| same(&p));
            keys.keys[i] = match earlier {
                Some(earlier) => keys.keys[earlier],
                None => match self.register_with(&port.hca) {
                    Ok(region) => {
                        let key = region.rkey();
                        regions.push(region);
                        key
                    }
                    Err(e) => {
                        port.hca
                            .report_limit("memory of ucp_mem_map", self.len as usize, &e);
                        return None;
                    }
                },
            };
            keys.count = i as u8 + 1;
        }
        let atomic_key = match self.atomics.port_mask {
            0 => None,
            ports => Some(keys.of_port(ports.trailing_zeros() as usize)?),
        };
        Some(RegisteredKeys {
            keys,
            atomic_key,
            _regions: regions,
        })
    }

    /// Registers the pages with one device, pinned if that can be.
    fn register_with(&self, hca: &Arc<Hca>) -> io::Result<HcaMr> {
        let register = |access| {
            // SAFETY: the memory is mapped as long as the region exists, which owns the registration.
            unsafe { hca.register(self.base as *mut u8, self.len as usize, access) }
        };
        let unpinned = |e| {
            if self.on_demand && hca.has_parts_on_demand() {
                register(REMOTE | IBV_ACCESS_ON_DEMAND).map_err(|_| e)
            } else {
                Err(e)
            }
        };
        register(REMOTE).or_else(unpinned)
    }
}
