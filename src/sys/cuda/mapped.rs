//! Memory of `cuMemMap` that processes of a host share, by descriptors. A descriptor keeps the memory: it is made when
//! a process asks for it, and closed then.

use super::api::Cuda;
use super::driver::{
    AllocationProp, CuDevice, CuMemHandle, CuResult, HANDLE_TYPE_DESCRIPTOR, MemAccess,
};
use super::error::CudaError;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

/// Memory of another process, mapped at an address of its own. Unmapped on drop; no copy uses it then.
pub struct MappedMemory {
    cuda: &'static Cuda,
    addr: u64,
    len: usize,
}

/// A reference to memory, released on drop.
struct HeldMemory<'a> {
    cuda: &'a Cuda,
    handle: CuMemHandle,
}

impl Drop for HeldMemory<'_> {
    fn drop(&mut self) {
        if let Some(release) = self.cuda.functions().mem_release {
            // SAFETY: a reference of this value, released once.
            let _ = unsafe { release(self.handle) };
        }
    }
}

impl Cuda {
    /// A function that drivers from CUDA 11 on have.
    ///
    /// # Errors
    /// This driver is older.
    pub(super) fn newer<T>(&self, call: &'static str, function: Option<T>) -> Result<T, CudaError> {
        function.ok_or_else(|| self.unsupported(call))
    }

    fn hold(&self, addr: u64) -> Result<HeldMemory<'_>, CudaError> {
        const CALL: &str = "cuMemRetainAllocationHandle";
        let retain = self.newer(CALL, self.functions().mem_retain_handle)?;
        let mut handle = 0;
        // SAFETY: a place for the handle; the driver checks the address.
        self.check(CALL, unsafe {
            retain(&raw mut handle, addr as *mut c_void)
        })?;
        Ok(HeldMemory { cuda: self, handle })
    }

    /// Whether the memory of `cuMemMap` at an address was made to be exported as a descriptor.
    ///
    /// # Errors
    /// It is of another kind.
    pub fn has_descriptor(&self, addr: u64) -> Result<bool, CudaError> {
        const CALL: &str = "cuMemGetAllocationPropertiesFromHandle";
        let held = self.hold(addr)?;
        let properties = self.newer(CALL, self.functions().mem_handle_properties)?;
        let mut found = AllocationProp::EMPTY;
        // SAFETY: a place for the properties, and a handle that is held.
        self.check(CALL, unsafe { properties(&raw mut found, held.handle) })?;
        Ok(found.handle_types & HANDLE_TYPE_DESCRIPTOR != 0)
    }

    /// A descriptor of the memory of `cuMemMap` at an address.
    ///
    /// # Errors
    /// Those of `cuMemExportToShareableHandle`.
    pub fn export_mapped(&self, addr: u64) -> Result<OwnedFd, CudaError> {
        const CALL: &str = "cuMemExportToShareableHandle";
        let held = self.hold(addr)?;
        let export = self.newer(CALL, self.functions().mem_export)?;
        self.descriptor(CALL, |place| {
            // SAFETY: the place is that of a descriptor; the handle is held.
            unsafe { export(place, held.handle, HANDLE_TYPE_DESCRIPTOR, 0) }
        })
    }

    /// The descriptor that a call writes.
    ///
    /// # Errors
    /// Those of the call.
    pub(super) fn descriptor(
        &self,
        call: &'static str,
        export: impl FnOnce(*mut c_void) -> CuResult,
    ) -> Result<OwnedFd, CudaError> {
        let mut descriptor: c_int = -1;
        self.check(call, export((&raw mut descriptor).cast()))?;
        match descriptor {
            0.. => {
                // SAFETY: the driver has opened it for the caller, and nothing else closes it.
                Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
            }
            _ => Err(self.unsupported(call)),
        }
    }

    /// Maps `len` bytes of another process for a device.
    ///
    /// # Errors
    /// Those of the driver: it is no descriptor of memory, or memory that the device does not reach.
    pub fn map_exported(
        &'static self,
        descriptor: &OwnedFd,
        len: usize,
        device: CuDevice,
    ) -> Result<MappedMemory, CudaError> {
        const IMPORT: &str = "cuMemImportFromShareableHandle";
        const RESERVE: &str = "cuMemAddressReserve";
        const MAP: &str = "cuMemMap";
        let functions = self.functions();
        let import = self.newer(IMPORT, functions.mem_import)?;
        let reserve = self.newer(RESERVE, functions.mem_reserve)?;
        let map = self.newer(MAP, functions.mem_map)?;
        let (mut handle, mut addr) = (0, 0);
        // SAFETY: a place for the handle; the driver takes the descriptor's number in place of an address.
        self.check(IMPORT, unsafe {
            let value = ptr::without_provenance_mut(descriptor.as_raw_fd() as usize);
            import(&raw mut handle, value, HANDLE_TYPE_DESCRIPTOR)
        })?;
        // Released at the end: the mapping keeps the memory.
        let held = HeldMemory { cuda: self, handle };
        // SAFETY: a place for the address.
        self.check(RESERVE, unsafe { reserve(&raw mut addr, len, 0, 0, 0) })?;
        // SAFETY: addresses that were reserved for this; the driver checks the length against the memory's.
        let mapped = self.check(MAP, unsafe { map(addr, len, 0, held.handle, 0) });
        if let Err(e) = mapped {
            self.free_addresses(addr, len);
            return Err(e);
        }
        let memory = MappedMemory {
            cuda: self,
            addr,
            len,
        };
        memory.allow(device)?;
        Ok(memory)
    }

    fn free_addresses(&self, addr: u64, len: usize) {
        if let Some(free) = self.functions().mem_address_free {
            // SAFETY: a reservation of this module, in which nothing is mapped.
            let _ = unsafe { free(addr, len) };
        }
    }
}

impl MappedMemory {
    /// First byte.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Lets a device access it, besides those that can.
    ///
    /// # Errors
    /// Those of `cuMemSetAccess`: the device does not reach it.
    pub fn allow(&self, device: CuDevice) -> Result<(), CudaError> {
        const CALL: &str = "cuMemSetAccess";
        let set = self
            .cuda
            .newer(CALL, self.cuda.functions().mem_set_access)?;
        let access = MemAccess::of(device);
        // SAFETY: the mapping of this value, and one description.
        let done = unsafe { set(self.addr, self.len, &raw const access, 1) };
        self.cuda.check(CALL, done)
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        if let Some(unmap) = self.cuda.functions().mem_unmap {
            // SAFETY: the mapping of this value, which nothing uses.
            let _ = unsafe { unmap(self.addr, self.len) };
        }
        self.cuda.free_addresses(self.addr, self.len);
    }
}
