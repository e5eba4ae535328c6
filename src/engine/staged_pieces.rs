//! Host memory by way of which pieces of a list in memory of devices are accessed by message.

use crate::ctypes::*;
use crate::sys::cma::CmaDirection;
use crate::tl::cuda::DeviceData;
use std::ptr;

/// Pieces of memory of devices, and a buffer with a place for the bytes of each, side by side. A request owns it until
/// the messages are answered.
pub struct StagedPieces {
    /// What a get stores in the end; `None`: a put, whose bytes were read.
    target: Option<DeviceData>,
    buffer: Box<[u8]>,
    /// The pieces, which `target` reads.
    _list: Box<[ucp_dt_iov_t]>,
}

// SAFETY: the pieces are the user's, valid until the operation completes, whichever thread progresses it.
unsafe impl Send for StagedPieces {}

impl StagedPieces {
    /// Reads the pieces of a put, or prepares for those of a get. `data` makes the data of a list.
    ///
    /// # Errors
    /// `UCS_ERR_IO_ERROR`: they cannot be read.
    ///
    /// # Safety
    /// The pieces are the user's memory, valid until the operation completes.
    pub unsafe fn new(
        direction: CmaDirection,
        list: Box<[ucp_dt_iov_t]>,
        data: impl FnOnce(&[ucp_dt_iov_t]) -> DeviceData,
    ) -> Result<StagedPieces, ucs_status_t> {
        let target = data(&list);
        let mut staged = StagedPieces {
            buffer: vec![0; target.len()].into(),
            target: None,
            _list: list,
        };
        if direction == CmaDirection::Read {
            staged.target = Some(target);
            return Ok(staged);
        }
        // SAFETY: the caller's promise; the buffer has room for all bytes.
        let read = unsafe {
            target.pack(0, staged.buffer.as_mut_ptr(), staged.buffer.len());
            target.finish(UCS_OK)
        };
        match read {
            UCS_OK => Ok(staged),
            status => Err(status),
        }
    }

    /// The place of the first piece's bytes.
    pub fn buffer(&mut self) -> *mut u8 {
        self.buffer.as_mut_ptr()
    }

    /// The messages have ended with `status`: stores what a get has read. Returns the status of the operation.
    ///
    /// # Safety
    /// The pieces are still valid.
    pub unsafe fn finish(self, status: ucs_status_t) -> ucs_status_t {
        let Some(target) = self.target.filter(|_| status == UCS_OK) else {
            return status;
        };
        // SAFETY: the caller's promise; the buffer has all bytes; the list outlives the data.
        unsafe {
            let stored = target.unpack(0, ptr::from_ref(&*self.buffer).cast(), self.buffer.len());
            target.finish(stored.err().unwrap_or(UCS_OK))
        }
    }
}
