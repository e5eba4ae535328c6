//! Host memory that devices copy from and to without another copy in between.

use super::Cuda;
use super::driver::MEM_HOST_REGISTER_PORTABLE;
use crate::sys::mapping::Mapping;
use rustix::mm::MapFlags;
use std::io;

/// Host memory, pinned if the driver could do so; freed on drop.
pub struct Pinned {
    cuda: &'static Cuda,
    memory: Mapping,
    is_registered: bool,
}

impl Pinned {
    /// Maps `len` bytes, whole pages, and pins them for all devices. Where the driver cannot pin more, the memory is
    /// usable all the same. A context is current.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub fn new(cuda: &'static Cuda, len: usize) -> io::Result<Pinned> {
        // SAFETY: a new mapping, at no fixed address.
        let memory = unsafe { Mapping::anonymous(len, MapFlags::PRIVATE, None) }?;
        // SAFETY: memory of this process, unregistered before it is unmapped.
        let registered = unsafe {
            (cuda.functions().mem_host_register)(
                memory.ptr().cast(),
                len,
                MEM_HOST_REGISTER_PORTABLE,
            )
        };
        Ok(Pinned {
            cuda,
            memory,
            is_registered: registered == 0,
        })
    }

    /// First byte.
    pub fn ptr(&self) -> *mut u8 {
        self.memory.ptr()
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.is_registered {
            // SAFETY: registered in `new`. Without a current context, or after the end of the driver, an error: the
            // registration has ended then, or ends with the process.
            let _ =
                unsafe { (self.cuda.functions().mem_host_unregister)(self.memory.ptr().cast()) };
        }
    }
}
