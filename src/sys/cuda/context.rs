//! Contexts of devices: which one is current during calls of the driver.

use super::api::Cuda;
use super::driver::{CuContext, CuDevice};
use super::error::CudaError;
use std::marker::PhantomData;

/// Makes a context the current one of this thread, until it is dropped.
pub struct CurrentContext<'a> {
    cuda: &'a Cuda,
    /// Not `Send`: the stack of contexts is the thread's.
    _thread: PhantomData<*mut ()>,
}

impl Cuda {
    /// Makes a context the current one of this thread.
    ///
    /// # Errors
    /// Those of `cuCtxPushCurrent`: the context is destroyed, or its device has failed.
    pub fn enter(&self, ctx: CuContext) -> Result<CurrentContext<'_>, CudaError> {
        // SAFETY: the driver checks the handle.
        self.check("cuCtxPushCurrent", unsafe {
            (self.functions().ctx_push)(ctx)
        })?;
        Ok(CurrentContext {
            cuda: self,
            _thread: PhantomData,
        })
    }

    /// What distinguishes a context from all others of the process, also from later ones with the same handle. `None`:
    /// the driver is older than CUDA 12, or the context is gone.
    pub fn context_id(&self, ctx: CuContext) -> Option<u64> {
        let mut id = 0;
        // SAFETY: the driver checks the handle; a place for the number.
        let found = unsafe { (self.functions().ctx_get_id?)(ctx, &raw mut id) };
        (found == 0).then_some(id)
    }

    /// The current context of this thread, if there is one.
    pub fn current(&self) -> Option<CuContext> {
        let mut ctx = CuContext::NONE;
        // SAFETY: a place for the handle.
        let found = unsafe { (self.functions().ctx_get_current)(&raw mut ctx) };
        (found == 0 && !ctx.is_none()).then_some(ctx)
    }

    /// The primary context of a device, which is kept until [`release_primary`](Self::release_primary).
    ///
    /// # Errors
    /// Those of `cuDevicePrimaryCtxRetain`.
    pub fn retain_primary(&self, device: CuDevice) -> Result<CuContext, CudaError> {
        let mut ctx = CuContext::NONE;
        // SAFETY: a place for the handle; the driver checks the number.
        let retained = unsafe { (self.functions().primary_ctx_retain)(&raw mut ctx, device) };
        self.check("cuDevicePrimaryCtxRetain", retained)?;
        Ok(ctx)
    }

    /// Gives back a primary context.
    pub fn release_primary(&self, device: CuDevice) {
        // SAFETY: the driver checks the number. An error means that it is gone.
        let _ = unsafe { (self.functions().primary_ctx_release)(device) };
    }
}

impl Drop for CurrentContext<'_> {
    fn drop(&mut self) {
        let mut ctx = CuContext::NONE;
        // SAFETY: a place for the handle. This thread has pushed the context, and pops it once.
        let _ = unsafe { (self.cuda.functions().ctx_pop)(&raw mut ctx) };
    }
}
