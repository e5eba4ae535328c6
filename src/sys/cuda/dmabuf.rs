//! Memory of devices as descriptors by which adapters register it (dma-buf).

use super::api::Cuda;
use super::driver::{
    CuDevice, DeviceAttribute, FLUSH_BY_HOST, FLUSH_CURRENT, FLUSH_TO_OWNER, ORDERED_FOR_OWNER,
    RANGE_HANDLE_DMA_BUF,
};
use super::error::CudaError;
use super::pointer::{MemoryInfo, MemoryKind};
use crate::sys::mem_monitor::page_size;
use std::os::fd::OwnedFd;

/// Whole pages of a device's memory, by a descriptor. It keeps the memory until it is closed, and so does an adapter
/// that has registered it.
pub struct DmaBuf {
    pub descriptor: OwnedFd,
    /// Address of the first byte, at which the descriptor begins.
    pub base: u64,
    /// Bytes.
    pub len: usize,
}

impl Cuda {
    /// Whether the driver makes such descriptors of a device's memory.
    pub fn has_dmabuf(&self, device: CuDevice) -> bool {
        let has = || self.device_attribute(DeviceAttribute::DmaBufSupported, device);
        self.functions().address_range_handle.is_some() && has().is_some_and(|has| has != 0)
    }

    /// Whether a device may see what adapters have written only after
    /// [`flush_adapter_writes`](Self::flush_adapter_writes).
    pub fn needs_flush(&self, device: CuDevice) -> bool {
        let attribute = |which| self.device_attribute(which, device);
        let is_ordered = || {
            let ordering = attribute(DeviceAttribute::GpuDirectWritesOrdering);
            ordering.is_none_or(|ordering| ordering >= ORDERED_FOR_OWNER)
        };
        let options = || attribute(DeviceAttribute::GpuDirectFlushOptions).unwrap_or(0);
        let flush = self.functions().flush_rdma_writes;
        flush.is_some() && !is_ordered() && options() & FLUSH_BY_HOST != 0
    }

    /// Waits until the device of the current context sees what adapters have written to its memory.
    ///
    /// # Errors
    /// Those of `cuFlushGPUDirectRDMAWrites`.
    pub fn flush_adapter_writes(&self) -> Result<(), CudaError> {
        const CALL: &str = "cuFlushGPUDirectRDMAWrites";
        let flush = self.newer(CALL, self.functions().flush_rdma_writes)?;
        // SAFETY: takes no memory of this process.
        self.check(CALL, unsafe { flush(FLUSH_CURRENT, FLUSH_TO_OWNER) })
    }

    /// A descriptor of the pages that `len` bytes at `addr` of an allocation are in. `memory`: the allocation.
    ///
    /// # Errors
    /// Those of `cuMemGetHandleForAddressRange`; it is not a device's memory, or the range is not inside of it.
    pub fn dmabuf(&self, memory: &MemoryInfo, addr: u64, len: u64) -> Result<DmaBuf, CudaError> {
        const CALL: &str = "cuMemGetHandleForAddressRange";
        let export = self.newer(CALL, self.functions().address_range_handle)?;
        let (base, len) = pages(memory, addr, len).ok_or_else(|| self.unsupported(CALL))?;
        // Memory of `cuMemMap` and of pools belongs to no context, and needs none.
        let _current = match memory.ctx.is_none() {
            true => None,
            false => Some(self.enter(memory.ctx)?),
        };
        let descriptor = self.descriptor(CALL, |place| {
            // SAFETY: the place is that of a descriptor; the driver checks the range.
            unsafe { export(place, base, len, RANGE_HANDLE_DMA_BUF, 0) }
        })?;
        Ok(DmaBuf {
            descriptor,
            base,
            len,
        })
    }
}

/// The pages of `len` bytes at `addr`, if these are inside of an allocation of a device.
fn pages(memory: &MemoryInfo, addr: u64, len: u64) -> Option<(u64, usize)> {
    let left = memory.len.checked_sub(addr.wrapping_sub(memory.start))?;
    if memory.kind != MemoryKind::Device || len == 0 || len > left {
        return None;
    }
    // The driver exports whole pages of the host.
    let page = page_size() as u64;
    let base = addr / page * page;
    let end = addr.checked_add(len)?.checked_next_multiple_of(page)?;
    Some((base, usize::try_from(end - base).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pages_of_an_allocation() {
        let memory = MemoryInfo {
            kind: MemoryKind::Device,
            start: 0x10200,
            len: 0x3000,
            ..MemoryInfo::HOST
        };
        assert_eq!(pages(&memory, 0x10200, 0x3000), Some((0x10000, 0x4000)));
        assert_eq!(pages(&memory, 0x11000, 0x1000), Some((0x11000, 0x1000)));
        assert_eq!(pages(&memory, 0x11001, 0x1000), Some((0x11000, 0x2000)));
        for (addr, len) in [
            (0x101ff, 1),
            (0x10200, 0x3001),
            (0x13200, 1),
            (0x11000, 0),
            (0x11000, u64::MAX),
        ] {
            assert_eq!(pages(&memory, addr, len), None, "{addr:#x} {len:#x}");
        }
        let managed = MemoryInfo {
            kind: MemoryKind::Managed,
            ..memory
        };
        assert_eq!(pages(&managed, 0x11000, 8), None);
    }
}
