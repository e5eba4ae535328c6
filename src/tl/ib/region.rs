//! Memory of the program that peers' devices access (`ucp_mem_map`).

use super::bindings::*;
use super::context::IbContext;
use super::hca::{Hca, HcaMr};
use super::port::Port;
use super::rkey::{IbRkey, RkeyAtomics};
use crate::sys::cuda::{Cuda, DmaBuf, MemoryInfo};
use crate::sys::log;
use crate::sys::regcache;
use crate::sys::sync::OnceLock;
use std::io;
use std::sync::Arc;

/// Access rights of peers' devices on registered memory.
const REMOTE: u32 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC;

/// Those on memory of GPUs: the owner executes atomic operations there, to which an adapter's are not atomic.
const GPU_REMOTE: u32 = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

/// A registered region: its first packed key registers it, because no peer can access it before.
pub struct IbRegion {
    /// Whole pages: where they begin, and how many bytes they are.
    base: u64,
    len: u64,
    ports: Arc<[Arc<Port>]>,
    memory: RegionMemory,
    /// Devices that cannot pin it may fetch its pages.
    on_demand: bool,
    /// The device that executes atomic operations on it, once it has keys.
    atomics: RkeyAtomics,
    /// `None` if it cannot be registered.
    registered: OnceLock<Option<RegisteredKeys>>,
}

/// Whose memory a region is.
enum RegionMemory {
    Host,
    /// That of a GPU: the allocation that contains it.
    Gpu(MemoryInfo),
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
            memory: RegionMemory::Host,
            on_demand: self.on_demand,
            atomics: self.atomics,
            registered: OnceLock::new(),
        })
    }

    /// A region of a GPU's memory: whole pages that are inside of an allocation, or overlap its ends. Its atomic
    /// operations are the owner's. `None` where there is no port, or the options exclude it.
    pub fn gpu_region(&self, base: u64, len: u64, memory: MemoryInfo) -> Option<IbRegion> {
        self.takes_gpu_memory.then(|| IbRegion {
            base,
            len,
            ports: self.ports.clone(),
            memory: RegionMemory::Gpu(memory),
            on_demand: false,
            atomics: RkeyAtomics::default(),
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
        let exported = match &self.memory {
            RegionMemory::Host => None,
            RegionMemory::Gpu(memory) => Some(self.export(memory)?),
        };
        for (i, port) in self.ports.iter().take(keys.keys.len()).enumerate() {
            // Ports of one device share its keys.
            let same = |p: &&Arc<Port>| Arc::ptr_eq(&p.hca, &port.hca);
            let earlier = self.ports[..i].iter().position(|p| same(&p));
            keys.keys[i] = match earlier {
                Some(earlier) => keys.keys[earlier],
                None => match self.register_with(&port.hca, exported.as_ref()) {
                    Ok(region) => {
                        let key = region.rkey();
                        regions.push(region);
                        key
                    }
                    Err(e) if exported.is_some() => {
                        log::diag!("{}: memory of a GPU is not registered: {e}", port.hca.name);
                        return None;
                    }
                    Err(e) => {
                        let (device, len) = (&port.hca.name, self.len as usize);
                        regcache::refused(device, "memory of ucp_mem_map", len, &e);
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

    /// The descriptor of the pages. `None`: the driver has none.
    fn export(&self, memory: &MemoryInfo) -> Option<DmaBuf> {
        let cuda = Cuda::opened().filter(|cuda| cuda.has_dmabuf(memory.device))?;
        // What a synchronous copy of the program has written is there for adapters.
        cuda.synchronize_memops(memory.start);
        // The pages may overlap the ends of the allocation, whose bytes are all that the driver is asked for.
        let begin = self.base.max(memory.start);
        let end = (self.base + self.len).min(memory.start + memory.len);
        let exported = cuda.dmabuf(memory, begin, end.saturating_sub(begin));
        exported
            .inspect_err(|e| log::diag!("memory of a GPU has no descriptor for adapters: {e}"))
            .ok()
    }

    /// Registers the pages with one device, pinned if that can be. `exported`: the memory, if it is a GPU's.
    fn register_with(&self, hca: &Arc<Hca>, exported: Option<&DmaBuf>) -> io::Result<HcaMr> {
        if let Some(exported) = exported {
            return hca.register_dmabuf(exported, GPU_REMOTE);
        }
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
