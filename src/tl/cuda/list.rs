//! Memory of a device in which kernels find a list of memory.

use super::context::CudaContext;
use crate::sys::cuda::{CudaError, MemoryInfo, MemoryKind};
use std::sync::Arc;

/// Some bytes of a device, freed on drop.
pub struct ListMemory {
    cuda: Arc<CudaContext>,
    addr: u64,
}

impl ListMemory {
    /// Allocates `len` bytes on the device of `beside`, or on the current context's, or on the first one.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn new(
        cuda: &Arc<CudaContext>,
        beside: Option<&MemoryInfo>,
        len: usize,
    ) -> Result<ListMemory, CudaError> {
        let current = match beside {
            Some(memory) => Some(cuda.cuda.enter(cuda.context_of(memory)?)?),
            None => None,
        };
        let addr = cuda.allocate(MemoryKind::Device, len)?;
        drop(current);
        Ok(ListMemory {
            cuda: Arc::clone(cuda),
            addr,
        })
    }

    /// Address of the first byte.
    pub fn addr(&self) -> u64 {
        self.addr
    }
}

impl Drop for ListMemory {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, and the program has released the list.
        unsafe { self.cuda.free(self.addr) };
    }
}
