//! Several copies in one call of the driver.

use super::api::Cuda;
use super::driver::{MemcpyAttributes, NOT_SUPPORTED};
use super::error::CudaError;
use super::stream::Stream;

/// Copies that belong to one stream.
#[derive(Debug, Default)]
pub struct CopyBatch {
    to: Vec<u64>,
    from: Vec<u64>,
    len: Vec<usize>,
}

impl CopyBatch {
    /// Adds a copy of `len` bytes.
    pub fn push(&mut self, to: u64, from: u64, len: usize) {
        self.to.push(to);
        self.from.push(from);
        self.len.push(len);
    }

    /// Begins the copies and removes them: in one call where the driver has it, which needs pinned memory of the host
    /// (`is_pinned`), else in a call each. The stream's context is current.
    ///
    /// # Errors
    /// Those of the driver's calls.
    ///
    /// # Safety
    /// The requirements of [`Cuda::copy`] for each of them.
    pub unsafe fn begin(
        &mut self,
        cuda: &Cuda,
        stream: &Stream,
        is_pinned: bool,
    ) -> Result<(), CudaError> {
        let mut batch = std::mem::take(self);
        if batch.len.len() > 1 && is_pinned {
            // SAFETY: the caller's promise.
            match unsafe { batch.begin_at_once(cuda, stream) } {
                Some(Err(e)) if e.code == NOT_SUPPORTED => {}
                Some(begun) => return begun,
                None => {}
            }
        }
        for ((&to, &from), &len) in batch.to.iter().zip(&batch.from).zip(&batch.len) {
            // SAFETY: the caller's promise.
            unsafe { cuda.copy(to, from, len, stream) }?;
        }
        Ok(())
    }

    /// `None`: the driver is older than CUDA 12.8.
    unsafe fn begin_at_once(
        &mut self,
        cuda: &Cuda,
        stream: &Stream,
    ) -> Option<Result<(), CudaError>> {
        let copy = cuda.functions().memcpy_batch_async?;
        let (mut attributes, mut first, mut failed) = (MemcpyAttributes::IN_ORDER, 0, 0);
        let (to, from) = (self.to.as_mut_ptr(), self.from.as_mut_ptr());
        let (len, count) = (self.len.as_mut_ptr(), self.len.len());
        // SAFETY: three lists of `count` entries, which the driver reads during the call; the attributes are those of
        // all copies from the first on; a stream that is not destroyed; the caller's promise for the memory.
        let begun = unsafe {
            copy(
                to,
                from,
                len,
                count,
                &raw mut attributes,
                &raw mut first,
                1,
                &raw mut failed,
                stream.handle(),
            )
        };
        Some(cuda.check("cuMemcpyBatchAsync", begun))
    }
}
