//! Host memory that devices copy from and to without another copy in between.

use super::api::Cuda;
use super::driver::{CuContext, MEM_HOST_REGISTER_PORTABLE};
use crate::sys::mapping::Mapping;
use rustix::mm::MapFlags;
use std::io;

/// Host memory, pinned if the driver could do so; freed on drop.
pub struct Pinned {
    cuda: &'static Cuda,
    memory: Mapping,
    /// The context in which the driver has pinned it, if it could.
    pinned_in: Option<CuContext>,
}

impl Pinned {
    /// Maps `len` bytes, whole pages, and pins them for all devices. Where the driver cannot pin more, the memory is
    /// usable all the same. `ctx`: any context.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub fn new(cuda: &'static Cuda, ctx: CuContext, len: usize) -> io::Result<Pinned> {
        // SAFETY: a new mapping, at no fixed address.
        let memory = unsafe { Mapping::anonymous(len, MapFlags::PRIVATE, None) }?;
        let current = cuda.enter(ctx);
        let register = cuda.functions().mem_host_register;
        // SAFETY: memory of this process, unregistered before it is unmapped.
        let pin = || unsafe { register(memory.ptr().cast(), len, MEM_HOST_REGISTER_PORTABLE) };
        let is_pinned = current.is_ok() && pin() == 0;
        Ok(Pinned {
            cuda,
            pinned_in: is_pinned.then_some(ctx),
            memory,
        })
    }

    /// Whether the driver has pinned it.
    pub fn is_pinned(&self) -> bool {
        self.pinned_in.is_some()
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
        // A context that is gone has ended the registration.
        let Some(_current) = self.pinned_in.and_then(|ctx| self.cuda.enter(ctx).ok()) else {
            return;
        };
        // SAFETY: registered in `new`, and nothing copies from or to it any more. After the end of the driver an error:
        // the registration has ended then.
        let _ = unsafe { (self.cuda.functions().mem_host_unregister)(self.memory.ptr().cast()) };
    }
}
