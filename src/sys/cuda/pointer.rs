//! What the driver knows of an address.

use super::api::Cuda;
use super::driver::{CuContext, CuDevice, MEMORYTYPE_DEVICE, PointerAttribute};
use super::error::CudaError;

/// The kind of memory at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// The processor's, pinned or not.
    Host,
    /// A device's.
    Device,
    /// Memory that the driver moves between host and devices.
    Managed,
}

/// The memory at an address: what all addresses of the same allocation have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    pub kind: MemoryKind,
    /// The context in which it was allocated; none for the host's.
    pub ctx: CuContext,
    pub device: CuDevice,
    /// First byte of the allocation, as far as the driver knows it.
    pub start: u64,
    /// Bytes of the allocation; 0 where the driver does not know it.
    pub len: u64,
    /// Distinguishes the allocation from all others of the process, also from later ones at its address.
    pub buffer_id: u64,
}

impl MemoryInfo {
    /// Memory that is not the driver's.
    pub const HOST: MemoryInfo = MemoryInfo {
        kind: MemoryKind::Host,
        ctx: CuContext::NONE,
        device: -1,
        start: 0,
        len: 0,
        buffer_id: 0,
    };

    /// Whether `addr` is in the same allocation.
    pub fn contains(&self, addr: u64) -> bool {
        addr.wrapping_sub(self.start) < self.len
    }
}

impl Cuda {
    /// The memory at an address. Needs no current context. Before the program has initialised the driver all memory is
    /// the host's.
    pub fn memory_at(&self, addr: u64) -> MemoryInfo {
        let (mut memory_type, mut is_managed, mut device) = (0u32, 0u32, -1);
        let mut ctx = CuContext::NONE;
        let (mut start, mut len, mut buffer_id) = (0u64, 0usize, 0u64);
        let mut which = [
            PointerAttribute::MemoryType,
            PointerAttribute::IsManaged,
            PointerAttribute::DeviceOrdinal,
            PointerAttribute::Context,
            PointerAttribute::RangeStart,
            PointerAttribute::RangeSize,
            PointerAttribute::BufferId,
        ];
        let mut places = [
            (&raw mut memory_type).cast(),
            (&raw mut is_managed).cast(),
            (&raw mut device).cast(),
            (&raw mut ctx).cast(),
            (&raw mut start).cast(),
            (&raw mut len).cast(),
            (&raw mut buffer_id).cast(),
        ];
        let count = which.len() as u32;
        // SAFETY: as many places as attributes, each of the size that the documentation gives for its attribute. Any
        // address may be asked for.
        let found = unsafe {
            let ask = self.functions().pointer_get_attributes;
            ask(count, which.as_mut_ptr(), places.as_mut_ptr(), addr)
        };
        let kind = match (memory_type, is_managed) {
            _ if found != 0 => MemoryKind::Host,
            (_, 1..) => MemoryKind::Managed,
            (MEMORYTYPE_DEVICE, 0) => MemoryKind::Device,
            _ => return MemoryInfo::HOST,
        };
        if kind == MemoryKind::Host {
            return MemoryInfo::HOST;
        }
        MemoryInfo {
            kind,
            ctx,
            device,
            start,
            len: len as u64,
            buffer_id,
        }
    }

    /// Lets copies of the program that are synchronous to it be so for other processes, too: to the allocation at an
    /// address they have ended when their call returns. Not all kinds of memory know this.
    pub fn synchronize_memops(&self, addr: u64) {
        let yes = 1u32;
        if let Some(set) = self.functions().pointer_set_attribute {
            // SAFETY: a value of the attribute's type, which the driver reads in the call; it checks the address.
            let _ = unsafe { set((&raw const yes).cast(), PointerAttribute::SyncMemops, addr) };
        }
    }

    /// Allocates memory of the current context's device.
    ///
    /// # Errors
    /// Those of `cuMemAlloc`.
    pub fn allocate(&self, kind: MemoryKind, len: usize) -> Result<u64, CudaError> {
        let mut addr = 0;
        let functions = self.functions();
        // SAFETY: a place for the address.
        unsafe {
            match kind {
                MemoryKind::Managed => self.check(
                    "cuMemAllocManaged",
                    (functions.mem_alloc_managed)(
                        &raw mut addr,
                        len,
                        super::driver::MEM_ATTACH_GLOBAL,
                    ),
                )?,
                MemoryKind::Host | MemoryKind::Device => {
                    self.check("cuMemAlloc", (functions.mem_alloc)(&raw mut addr, len))?;
                }
            }
        }
        Ok(addr)
    }

    /// Frees what [`allocate`](Self::allocate) has returned; its context is current.
    ///
    /// # Safety
    /// Nothing uses the memory any more.
    pub unsafe fn free(&self, addr: u64) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.check("cuMemFree", unsafe { (self.functions().mem_free)(addr) })
    }
}
