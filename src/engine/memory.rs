//! Memory that the user registered.

use super::context::Context;
use super::regions::RegionId;
use crate::ctypes::*;
use crate::sys::cuda::{CudaError, MemoryKind};
use crate::sys::fork::Origin;
use crate::sys::log;
use crate::sys::mapping::Mapping;
use crate::sys::memfd::PAGE;
use crate::sys::shared_heap;
use crate::sys::shm::{ShmId, ShmSegment};
use crate::tl::cuda::CudaContext;
use crate::tl::{TlContext, TlRegion};
use crate::wire::device_handle::DeviceHandle;
use rucp_heap_directory::Segment;
use rustix::mm::MapFlags;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// UCX's number of a kind of memory.
pub fn memory_type_of(kind: MemoryKind) -> ucs_memory_type_t {
    match kind {
        MemoryKind::Host => UCS_MEMORY_TYPE_HOST,
        MemoryKind::Device => UCS_MEMORY_TYPE_CUDA,
        MemoryKind::Managed => UCS_MEMORY_TYPE_CUDA_MANAGED,
    }
}

/// Logs that memory of a device was stated to be the host's.
#[cold]
pub fn note_wrong_type(what: &str, addr: u64) {
    log::error!("{what}: {addr:#x} is memory of a GPU, which the caller states to be host memory");
}

/// A registered region. Handed out as `ucp_mem_h`; freed by `ucp_mem_unmap`.
pub struct MemHandle {
    /// First byte, 0 for the handle of an empty region.
    pub addr: u64,
    /// Bytes.
    pub len: usize,
    /// Whose memory it is.
    pub kind: MemoryKind,
    /// The process that registered it.
    origin: Origin,
    /// Shared memory by which peers of this host map it, if they can.
    pub export: Option<ShmExport>,
    /// The handle by which peers of this host open memory of a device, if they can.
    pub device_handle: Option<DeviceHandle>,
    /// The transports' part; the context's table of regions shares it. In front of the memory: deregistered before
    /// that is unmapped.
    pub tl: TlRegion,
    /// Memory that this handle allocated; unmapped with it.
    _owned: Option<Allocation>,
    /// Key in the context's table: that of devices' memory for such.
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
    Device {
        _memory: DeviceAllocation,
    },
}

/// Memory of a device, freed on drop.
struct DeviceAllocation {
    cuda: Arc<CudaContext>,
    addr: u64,
}

impl Drop for DeviceAllocation {
    fn drop(&mut self) {
        // SAFETY: allocated for this handle; the user has ended its use with it.
        unsafe { self.cuda.free(self.addr) };
    }
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
    /// Whether `len` bytes at `addr` are part of the region.
    #[inline(always)]
    pub fn contains(&self, addr: u64, len: usize) -> bool {
        let at = addr.wrapping_sub(self.addr);
        at <= self.len as u64 && len as u64 <= self.len as u64 - at
    }

    /// Whether a parent of this process registered it.
    pub fn is_inherited(&self) -> bool {
        self.origin.is_inherited()
    }

    /// The handle of an empty region.
    pub fn empty() -> MemHandle {
        MemHandle {
            addr: 0,
            len: 0,
            kind: MemoryKind::Host,
            export: None,
            device_handle: None,
            origin: Origin::here(),
            tl: TlRegion::default(),
            _owned: None,
            key: None,
        }
    }

    /// Registers user memory. If it is part of memory that the library allocated, or of the shared heap, peers map it
    /// by that.
    pub fn register(ctx: &Context, addr: u64, len: usize) -> MemHandle {
        let end = addr.saturating_add(len as u64);
        let export = ctx.regions.export(addr, end).or_else(|| heap_of(addr, end));
        let tl = region(&ctx.tl, addr, len as u64);
        let key = ctx.regions.insert(addr, end, tl.clone(), None);
        MemHandle {
            addr,
            len,
            kind: MemoryKind::Host,
            export,
            device_handle: None,
            origin: Origin::here(),
            tl,
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
        let key = ctx
            .regions
            .insert(base, base + len as u64, tl.clone(), export);
        Ok(MemHandle {
            addr: base,
            len,
            kind: MemoryKind::Host,
            export,
            device_handle: None,
            origin: Origin::here(),
            tl,
            _owned: Some(owned),
            key: Some(key),
        })
    }

    /// Registers memory that a driver manages, which peers access by message.
    pub fn register_device(ctx: &Context, kind: MemoryKind, addr: u64, len: usize) -> MemHandle {
        Self::of_device(ctx, kind, (addr, len), None)
    }

    /// Allocates memory of the current context's device, or of the first one.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn allocate_device(
        ctx: &Context,
        cuda: &Arc<CudaContext>,
        kind: MemoryKind,
        len: usize,
    ) -> Result<MemHandle, CudaError> {
        let addr = cuda.allocate(kind, len)?;
        let owned = DeviceAllocation {
            cuda: Arc::clone(cuda),
            addr,
        };
        Ok(Self::of_device(ctx, kind, (addr, len), Some(owned)))
    }

    fn of_device(
        ctx: &Context,
        kind: MemoryKind,
        (addr, len): (u64, usize),
        owned: Option<DeviceAllocation>,
    ) -> MemHandle {
        let end = addr.saturating_add(len as u64);
        let tl = gpu_region(ctx, kind, addr, len as u64);
        let key = ctx.device_regions.insert(addr, end, tl.clone(), None);
        MemHandle {
            addr,
            len,
            kind,
            export: None,
            device_handle: ctx
                .cuda
                .as_ref()
                .and_then(|cuda| cuda.export_region(addr, len)),
            origin: Origin::here(),
            tl,
            _owned: owned.map(|memory| Allocation::Device { _memory: memory }),
            key: Some(key),
        }
    }

    /// Whether the processor does not access the memory by itself.
    pub fn is_device(&self) -> bool {
        self.kind != MemoryKind::Host
    }

    /// Takes the region out of the table; the memory goes when the handle is dropped.
    pub fn unregister(&mut self, ctx: &Context) {
        if let Some(key) = self.key.take() {
            match self.kind {
                MemoryKind::Host => ctx.regions.remove(key),
                MemoryKind::Device | MemoryKind::Managed => ctx.device_regions.remove(key),
            }
        }
        self.tl = TlRegion::default();
    }
}

/// The segment of the shared heap that has these bytes.
fn heap_of(start: u64, end: u64) -> Option<ShmExport> {
    let Segment { file, base, len } = shared_heap::segment_of(start, end)?;
    let id = ShmId::File(shared_heap::memfd_of(std::process::id(), file));
    let len = len as usize;
    Some(ShmExport { id, base, len })
}

/// The transports' part of a region of these bytes.
fn region(tl: &TlContext, addr: u64, len: u64) -> TlRegion {
    let (base, len) = pages(addr, len);
    // SAFETY: user memory is valid until `ucp_mem_unmap`, the library's own until the handle is dropped; the
    // registration ends before.
    unsafe { tl.region(base, len) }
}

/// The transports' part of a region of memory of a device.
fn gpu_region(ctx: &Context, kind: MemoryKind, addr: u64, len: u64) -> TlRegion {
    let Some(cuda) = ctx.cuda.as_ref().filter(|_| kind == MemoryKind::Device) else {
        return TlRegion::default();
    };
    if len == 0 || !ctx.tl.takes_gpu_memory() {
        return TlRegion::default();
    }
    let memory = cuda.cuda.memory_at(addr);
    let end = addr.saturating_add(len);
    if !memory.contains(addr) || end > memory.start + memory.len {
        return TlRegion::default();
    }
    let (base, len) = pages(addr, len);
    ctx.tl.gpu_region(base, len, memory)
}

/// The pages that these bytes lie in: where they begin, and how many bytes they are.
fn pages(addr: u64, len: u64) -> (u64, u64) {
    let page = PAGE as u64;
    let base = addr / page * page;
    let end = addr.saturating_add(len).checked_next_multiple_of(page);
    (base, end.unwrap_or(u64::MAX / page * page) - base)
}
