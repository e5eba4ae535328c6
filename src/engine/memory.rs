//! Memory that the user registered.

use super::context::Context;
use super::regions::{RegionExtent, RegionId};
use crate::sys::fork::Origin;
use crate::sys::mapping::Mapping;
use crate::sys::memfd::PAGE;
use crate::sys::shm::{ShmId, ShmSegment};
use crate::sys::sync::OnceLock;
use crate::tl::ib::bindings::*;
use crate::tl::ib::hca::{Hca, HcaMr};
use crate::tl::ib::port::Port;
use crate::tl::ib::registration;
use crate::tl::{TlContext, TlRegion};
use crate::wire::rkey::{DeviceKeys, RkeyAtomics};
use rustix::mm::MapFlags;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// Access rights of peers' devices on registered memory.
const REMOTE: u32 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC;

/// A registered region. Handed out as `ucp_mem_h`; freed by `ucp_mem_unmap`.
pub struct MemHandle {
    /// First byte, 0 for the handle of an empty region.
    pub addr: u64,
    /// Bytes.
    pub len: usize,
    /// The process that registered it.
    origin: Origin,
    /// Shared memory by which peers of this host map it, if they can.
    pub export: Option<ShmExport>,
    /// Keys for devices: made when the first key is packed, because no peer can access the region before. In front of
    /// the memory: deregistered before that is unmapped.
    device: OnceLock<Option<(DeviceKeys, Vec<HcaMr>)>>,
    /// The device that executes atomic operations on it, once it has device keys.
    atomics: RkeyAtomics,
    /// The key for atomic operations by that device, set with the other keys; the context's table of regions shares it.
    atomic_key: Arc<OnceLock<u32>>,
    ib_ports: Vec<Arc<Port>>,
    /// The transports' part; the context's table of regions shares it. In front of the memory: deregistered before
    /// that is unmapped.
    pub tl: TlRegion,
    /// Devices that cannot pin it may fetch its pages.
    on_demand: bool,
    /// Memory that this handle allocated; unmapped with it.
    _owned: Option<Allocation>,
    /// Key in the context's table.
    key: Option<RegionId>,
}

enum Allocation {
    Shared {
        _memory: ShmSegment,
    },
    /// No shared memory was available: private memory, which peers access by devices or by message.
    Private {
        _memory: Mapping,
    },
}

/// Memory that peers can map, in which a region lies.
#[derive(Clone, Copy, Debug)]
pub struct ShmExport {
    pub id: ShmId,
    /// Where it begins in this process.
    pub base: u64,
    /// Bytes.
    pub len: usize,
}

// SAFETY: the fields do not change; accesses to the memory are the user's.
unsafe impl Send for MemHandle {}
// SAFETY: the fields do not change; accesses to the memory are the user's.
unsafe impl Sync for MemHandle {}

impl MemHandle {
    /// Whether a parent of this process registered it.
    pub fn is_inherited(&self) -> bool {
        self.origin.is_inherited()
    }

    /// The handle of an empty region.
    pub fn empty() -> MemHandle {
        MemHandle {
            addr: 0,
            len: 0,
            export: None,
            origin: Origin::here(),
            device: OnceLock::new(),
            atomics: RkeyAtomics::default(),
            atomic_key: Arc::default(),
            on_demand: false,
            tl: TlRegion::default(),
            ib_ports: Vec::new(),
            _owned: None,
            key: None,
        }
    }

    /// Registers user memory. If it is part of memory that the library allocated, peers map it by that.
    pub fn register(ctx: &Context, addr: u64, len: usize) -> MemHandle {
        let end = addr.saturating_add(len as u64);
        let export = ctx.regions.export(addr, end);
        let tl = region(&ctx.tl, addr, len as u64);
        let extent = RegionExtent::new(tl.clone());
        let atomic_key = extent.atomic_key.clone();
        let key = ctx.regions.insert(addr, end, extent, None);
        MemHandle {
            addr,
            len,
            export,
            origin: Origin::here(),
            device: OnceLock::new(),
            atomics: ctx.atomics,
            on_demand: !ctx.ib.ports.is_empty() && registration::allows_demand(&ctx.options),
            atomic_key,
            tl,
            ib_ports: ctx.ib.ports.clone(),
            _owned: None,
            key: Some(key),
        }
    }

    /// Allocates `len` bytes, rounded up to pages, in memory that peers can map. `at`: at this address, in place of
    /// what the program has mapped there, as `UCP_MEM_MAP_FIXED` allows.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn allocate(ctx: &Context, len: usize, at: Option<NonNull<u8>>) -> io::Result<MemHandle> {
        let len = len
            .checked_next_multiple_of(PAGE)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let (ptr, owned, id) = match ShmSegment::create(len, at) {
            Ok((memory, id)) => (
                memory.start(),
                Allocation::Shared { _memory: memory },
                Some(id),
            ),
            Err(_) => {
                // SAFETY: `at` is what the program has given up by `UCP_MEM_MAP_FIXED`.
                let memory = unsafe { Mapping::anonymous(len, MapFlags::PRIVATE, at) }?;
                (
                    memory.start(),
                    Allocation::Private { _memory: memory },
                    None,
                )
            }
        };
        let base = ptr.as_ptr() as u64;
        let export = id.map(|id| ShmExport { id, base, len });
        let tl = region(&ctx.tl, base, len as u64);
        let extent = RegionExtent::new(tl.clone());
        let atomic_key = extent.atomic_key.clone();
        let key = ctx.regions.insert(base, base + len as u64, extent, export);
        Ok(MemHandle {
            addr: base,
            len,
            export,
            origin: Origin::here(),
            device: OnceLock::new(),
            atomics: ctx.atomics,
            on_demand: !ctx.ib.ports.is_empty() && registration::allows_demand(&ctx.options),
            atomic_key,
            tl,
            ib_ports: ctx.ib.ports.clone(),
            _owned: Some(owned),
            key: Some(key),
        })
    }

    /// The keys for peers' devices; `None` where there is no device, or the memory cannot be registered.
    pub fn device_keys(&self) -> Option<DeviceKeys> {
        if self.ib_ports.is_empty() {
            return None;
        }
        let registered = self.device.get_or_init(|| self.register_with_devices());
        registered.as_ref().map(|(keys, _)| *keys)
    }

    /// Registers the pages that it lies in with every port's device.
    fn register_with_devices(&self) -> Option<(DeviceKeys, Vec<HcaMr>)> {
        let (base, len) = pages(self.addr, self.len as u64);
        let mut keys = DeviceKeys {
            base,
            len,
            ..DeviceKeys::default()
        };
        let mut regions = Vec::new();
        for (i, port) in self.ib_ports.iter().take(keys.keys.len()).enumerate() {
            // Ports of one device share its keys.
            let same = |p: &&Arc<Port>| Arc::ptr_eq(&p.hca, &port.hca);
            let earlier = self.ib_ports[..i].iter().position(|p| same(&p));
            keys.keys[i] = match earlier {
                Some(earlier) => keys.keys[earlier],
                None => match self.register_with(&port.hca, base, len as usize) {
                    Ok(region) => {
                        let key = region.rkey();
                        regions.push(region);
                        key
                    }
                    Err(e) => {
                        port.hca
                            .report_limit("memory of ucp_mem_map", len as usize, &e);
                        return None;
                    }
                },
            };
            keys.count = i as u8 + 1;
        }
        keys.atomics = self.atomics;
        if self.atomics.port_mask != 0 {
            let port = self.atomics.port_mask.trailing_zeros() as usize;
            // Set once: here.
            let _ = self.atomic_key.set(keys.of_port(port)?);
        }
        Some((keys, regions))
    }

    /// Registers these pages with one device, pinned if that can be.
    fn register_with(&self, hca: &Arc<Hca>, base: u64, len: usize) -> io::Result<HcaMr> {
        let register = |access| {
            // SAFETY: user memory is valid until `ucp_mem_unmap`, the library's own until the handle is dropped; the
            // registration ends before.
            unsafe { hca.register(base as *mut u8, len, access) }
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

    /// Takes the region out of the table; the memory goes when the handle is dropped.
    pub fn unregister(&mut self, ctx: &Context) {
        if let Some(key) = self.key.take() {
            ctx.regions.remove(key);
        }
        self.device = OnceLock::new();
        self.tl = TlRegion::default();
    }
}

/// The transports' part of a region of these bytes.
fn region(tl: &TlContext, addr: u64, len: u64) -> TlRegion {
    let (base, len) = pages(addr, len);
    // SAFETY: user memory is valid until `ucp_mem_unmap`, the library's own until the handle is dropped; the
    // registration ends before.
    unsafe { tl.region(base, len) }
}

/// The pages that these bytes lie in: where they begin, and how many bytes they are.
fn pages(addr: u64, len: u64) -> (u64, u64) {
    let page = PAGE as u64;
    let base = addr / page * page;
    let end = addr.saturating_add(len).checked_next_multiple_of(page);
    (base, end.unwrap_or(u64::MAX / page * page) - base)
}
