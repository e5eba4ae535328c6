//! A put of a peer into memory of a device, of which some parts have arrived.

use crate::ctypes::*;
use crate::tl::cuda::DeviceData;

/// Its bytes are copied to the device behind their arrival. Dropped, it waits for the copies that have begun, and
/// stores nothing else.
pub struct PartialPut {
    /// From the first part on, as long as the put is at most.
    memory: DeviceData,
    /// Address of the first byte.
    addr: u64,
    /// Bytes of the parts that have arrived.
    received: usize,
}

impl PartialPut {
    /// A put whose first byte belongs at `addr`, where `memory` begins.
    pub fn new(addr: u64, memory: DeviceData) -> PartialPut {
        PartialPut {
            memory,
            addr,
            received: 0,
        }
    }

    /// Whether a part of `len` bytes at `addr` is the next one.
    pub fn expects(&self, addr: u64, len: usize) -> bool {
        let is_next = self.addr.checked_add(self.received as u64) == Some(addr);
        is_next && len <= self.memory.len() - self.received
    }

    /// Takes the next `len` bytes. They may be in their place later only.
    ///
    /// # Errors
    /// `UCS_ERR_IO_ERROR`: a copy has failed.
    ///
    /// # Safety
    /// The put [expects](Self::expects) them; they are readable at `bytes`. The memory is registered.
    pub unsafe fn store(&mut self, bytes: *const u8, len: usize) -> Result<(), ucs_status_t> {
        // SAFETY: the range is inside the data; the caller's promise.
        unsafe { self.memory.unpack(self.received, bytes, len) }?;
        self.received += len;
        Ok(())
    }

    /// Ends the put: all bytes that were stored are in their place.
    ///
    /// # Errors
    /// `UCS_ERR_IO_ERROR`: a copy has failed.
    pub fn finish(self) -> Result<(), ucs_status_t> {
        // SAFETY: nothing else of the data is called any more; the memory is registered.
        match unsafe { self.memory.finish(UCS_OK) } {
            UCS_OK => Ok(()),
            status => Err(status),
        }
    }
}
