//! Memory of pools (`cuMemAllocAsync`) that processes of a host share: the pool by a descriptor, and in it allocations.

use super::api::Cuda;
use super::driver::{
    CuDevice, CuMemPool, CuPoolPointer, HANDLE_TYPE_DESCRIPTOR, MemAccess, PointerAttribute,
};
use super::error::CudaError;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

/// A pool of another process. On drop it ends as soon as none of its allocations is open.
pub struct ImportedPool {
    cuda: &'static Cuda,
    pool: CuMemPool,
}

// SAFETY: the driver's handles belong to the process.
unsafe impl Send for ImportedPool {}
// SAFETY: the handle does not change, and the driver takes calls of all threads.
unsafe impl Sync for ImportedPool {}

impl Cuda {
    /// The pool of the memory at an address, as a number. `None`: it is of another kind.
    pub fn pool_of(&self, addr: u64) -> Option<u64> {
        let pool = self.attribute(PointerAttribute::MempoolHandle, addr);
        pool.filter(|&pool| pool != 0)
    }

    /// A descriptor of the pool of the memory at an address.
    ///
    /// # Errors
    /// Those of `cuMemPoolExportToShareableHandle`: it was not made to be shared.
    pub fn export_pool(&self, addr: u64) -> Result<OwnedFd, CudaError> {
        const CALL: &str = "cuMemPoolExportToShareableHandle";
        let export = self.newer(CALL, self.functions().pool_export)?;
        let pool = (self.pool_of(addr)).ok_or_else(|| self.unsupported(CALL))?;
        self.descriptor(CALL, |place| {
            // SAFETY: the place is that of a descriptor; the pool is one that the driver has named just now.
            unsafe { export(place, pool as CuMemPool, HANDLE_TYPE_DESCRIPTOR, 0) }
        })
    }

    /// What names the allocation at an address in its pool.
    ///
    /// # Errors
    /// Those of `cuMemPoolExportPointer`: the pool was not made to be shared.
    pub fn export_pool_pointer(&self, addr: u64) -> Result<[u8; 64], CudaError> {
        const CALL: &str = "cuMemPoolExportPointer";
        let export = self.newer(CALL, self.functions().pool_export_pointer)?;
        let mut pointer = CuPoolPointer([0; 64]);
        // SAFETY: a place for the bytes; the driver checks the address.
        self.check(CALL, unsafe { export(&raw mut pointer, addr) })?;
        Ok(pointer.0)
    }

    /// The pool of a descriptor of another process.
    ///
    /// # Errors
    /// Those of `cuMemPoolImportFromShareableHandle`.
    pub fn import_pool(&'static self, descriptor: &OwnedFd) -> Result<ImportedPool, CudaError> {
        const CALL: &str = "cuMemPoolImportFromShareableHandle";
        let import = self.newer(CALL, self.functions().pool_import)?;
        let mut pool = ptr::null_mut();
        // SAFETY: a place for the pool; the driver takes the descriptor's number in place of an address.
        self.check(CALL, unsafe {
            let value = ptr::without_provenance_mut(descriptor.as_raw_fd() as usize);
            import(&raw mut pool, value, HANDLE_TYPE_DESCRIPTOR, 0)
        })?;
        Ok(ImportedPool { cuda: self, pool })
    }
}

impl ImportedPool {
    /// Lets a device access all allocations of the pool.
    ///
    /// # Errors
    /// Those of `cuMemPoolSetAccess`: the device does not reach it.
    pub fn allow(&self, device: CuDevice) -> Result<(), CudaError> {
        const CALL: &str = "cuMemPoolSetAccess";
        let set = self
            .cuda
            .newer(CALL, self.cuda.functions().pool_set_access)?;
        let access = MemAccess::of(device);
        // SAFETY: the pool of this value, and one description.
        let done = unsafe { set(self.pool, &raw const access, 1) };
        self.cuda.check(CALL, done)
    }

    /// Opens an allocation: returns its first byte, to be freed by [`Cuda::free`] once.
    ///
    /// # Errors
    /// Those of `cuMemPoolImportPointer`: it is none of this pool, or was freed.
    pub fn open(&self, pointer: [u8; 64]) -> Result<u64, CudaError> {
        const CALL: &str = "cuMemPoolImportPointer";
        let import = self
            .cuda
            .newer(CALL, self.cuda.functions().pool_import_pointer)?;
        let (mut addr, mut pointer) = (0, CuPoolPointer(pointer));
        // SAFETY: the pool of this value, and a place for the address; the driver checks the bytes.
        self.cuda.check(CALL, unsafe {
            import(&raw mut addr, self.pool, &raw mut pointer)
        })?;
        Ok(addr)
    }
}

impl Drop for ImportedPool {
    fn drop(&mut self) {
        if let Some(destroy) = self.cuda.functions().pool_destroy {
            // SAFETY: the pool of this value, destroyed once; the driver keeps it for allocations that are open.
            let _ = unsafe { destroy(self.pool) };
        }
    }
}
