//! What the driver knows of an address.

use super::api::Cuda;
use super::driver::{
    ACCESS_READWRITE, CuContext, CuDevice, MEMORYTYPE_DEVICE, NOT_INITIALIZED, PointerAttribute,
};
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

/// What the driver says of memory that belongs to no context.
struct MemoryBlock {
    /// Of the physical memory; 0: not known.
    id: u64,
    /// Address and bytes of what one `cuMemMap` has mapped; `None`: memory of a pool, or not known. The range of such
    /// an address is all that `cuMemAddressReserve` has reserved.
    mapping: Option<(u64, usize)>,
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
        self.find_memory(addr).unwrap_or(MemoryInfo::HOST)
    }

    /// Whether an adapter may pin the memory at an address: that of devices it cannot access, and managed memory moves.
    pub fn is_pinnable(&self, addr: u64) -> bool {
        self.memory_at(addr).kind == MemoryKind::Host
    }

    /// The memory at an address. `None`: the driver does not know it: memory of the host that it has neither pinned nor
    /// allocated.
    pub fn find_memory(&self, addr: u64) -> Option<MemoryInfo> {
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
        let kind = match (found, memory_type, is_managed) {
            (0, _, 1..) => MemoryKind::Managed,
            (0, MEMORYTYPE_DEVICE, 0) => MemoryKind::Device,
            // Without the driver there is no memory of devices.
            (0, 0, 0) | (NOT_INITIALIZED, ..) => return None,
            _ => return Some(MemoryInfo::HOST),
        };
        if ctx.is_none() {
            // Of `cuMemMap` or of a pool: at the same address there may be other memory later with the same id.
            let block = self.block_at(addr);
            buffer_id ^= block.id.rotate_left(32);
            if let Some(mapping) = block.mapping {
                (start, len) = mapping;
            }
        }
        Some(MemoryInfo {
            kind,
            ctx,
            device,
            start,
            len: len as u64,
            buffer_id,
        })
    }

    /// What memory that belongs to no context is made of.
    fn block_at(&self, addr: u64) -> MemoryBlock {
        let (mut id, mut base, mut len, mut pool) = (0u64, 0u64, 0usize, 0u64);
        let mut which = [
            PointerAttribute::MemoryBlockId,
            PointerAttribute::MappingBase,
            PointerAttribute::MappingSize,
            PointerAttribute::MempoolHandle,
        ];
        let mut places = [
            (&raw mut id).cast(),
            (&raw mut base).cast(),
            (&raw mut len).cast(),
            (&raw mut pool).cast(),
        ];
        let count = which.len() as u32;
        // SAFETY: as many places as attributes, each of the size that the documentation gives for its attribute. Any
        // address may be asked for.
        let found = unsafe {
            let ask = self.functions().pointer_get_attributes;
            ask(count, which.as_mut_ptr(), places.as_mut_ptr(), addr)
        };
        if found != 0 {
            // A driver that does not know all of the attributes.
            return MemoryBlock {
                id: 0,
                mapping: None,
            };
        }
        // A pool maps long blocks, of which its allocations are parts.
        let is_mapped = pool == 0 && len > 0;
        MemoryBlock {
            id,
            mapping: is_mapped.then_some((base, len)),
        }
    }

    /// An attribute of an address whose value is a number. `None`: it has none there, or the driver does not know it.
    pub(super) fn attribute(&self, attribute: PointerAttribute, addr: u64) -> Option<u64> {
        let mut value = 0u64;
        let (mut which, mut place) = (attribute, (&raw mut value).cast());
        // SAFETY: one place, as long as the longest attribute. Any address may be asked for.
        let found = unsafe {
            let ask = self.functions().pointer_get_attributes;
            ask(1, &raw mut which, &raw mut place, addr)
        };
        (found == 0).then_some(value)
    }

    /// Whether the device of a context can read and write the memory of a device at an address. Memory of `cuMemMap`
    /// and of pools is accessible to the devices that its program has named: a copy by another one fails, and with it
    /// the context.
    pub fn can_touch(&self, ctx: CuContext, addr: u64) -> bool {
        let flags = self.enter(ctx).ok().and_then(|_current| {
            // Of the current context's device.
            self.attribute(PointerAttribute::AccessFlags, addr)
        });
        flags == Some(ACCESS_READWRITE as u64)
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
