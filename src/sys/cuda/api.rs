//! The driver as the process has it.

use super::driver::{self, CuFunctions, CuResult, NOT_SUPPORTED, OpenWhen};
use super::error::CudaError;

/// The driver, open for the rest of the process.
#[repr(transparent)]
pub struct Cuda(CuFunctions);

impl Cuda {
    /// The driver. `None`: the process does not use CUDA, or the library is missing or too old.
    pub fn open(when: OpenWhen) -> Option<&'static Cuda> {
        driver::functions(when).map(Cuda::of)
    }

    /// The driver, if a context of this process has opened it.
    pub fn opened() -> Option<&'static Cuda> {
        driver::known_functions().map(Cuda::of)
    }

    fn of(functions: &'static CuFunctions) -> &'static Cuda {
        // SAFETY: a transparent wrapper of the table.
        unsafe { &*std::ptr::from_ref(functions).cast::<Cuda>() }
    }

    /// The driver's functions.
    pub(super) fn functions(&self) -> &CuFunctions {
        &self.0
    }

    /// Initialises the driver, unless the program has, and returns the number of devices.
    ///
    /// # Errors
    /// Those of `cuInit`: there is no device, or the process is a child of one that has used the driver.
    pub fn initialize(&self) -> Result<u32, CudaError> {
        let mut count = 0;
        // SAFETY: may be called at any time and by any thread; a place for the number.
        unsafe {
            self.check("cuInit", (self.0.init)(0))?;
            self.check("cuDeviceGetCount", (self.0.device_count)(&raw mut count))?;
        }
        Ok(count.try_into().unwrap_or(0))
    }

    /// The error of a call that this driver, or this use of it, does not have.
    pub fn unsupported(&self, call: &'static str) -> CudaError {
        CudaError::new(&self.0, call, NOT_SUPPORTED)
    }

    /// The result of a call.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn check(&self, call: &'static str, result: CuResult) -> Result<(), CudaError> {
        match result {
            0 => Ok(()),
            code => Err(CudaError::new(&self.0, call, code)),
        }
    }
}
