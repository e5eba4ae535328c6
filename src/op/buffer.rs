//! The memory of an operation: what the caller gave, by layout and kind of memory.

use super::param::Param;
use crate::ctypes::*;
use crate::engine::context::{ASK_DRIVER, MemoryAccess};
use crate::engine::datatype::Data;
use crate::engine::worker::Worker;
use crate::sys::cuda::MemoryKind;
use crate::sys::log;
use crate::tl::amo;
use crate::tl::cuda::{CudaContext, DeviceData, DevicePieces, Lookup};
use std::ffi::c_void;
use std::sync::Arc;

/// With none of these bits the buffer is host memory.
const KIND_IS_OPEN: u32 = UCP_OP_ATTR_FIELD_MEMORY_TYPE as u32 | ASK_DRIVER;

/// Longest source that is read from a device before the operation begins, bytes: a failure is the status of the call.
const READ_FIRST: usize = 64 << 10;

impl Param {
    /// The source of a send, a put or another operation that reads the buffer. `what`: the function, for the log.
    ///
    /// # Errors
    /// Those of [`Data::for_send`]; `UCS_ERR_UNSUPPORTED` for memory that this library cannot access;
    /// `UCS_ERR_IO_ERROR` where a device fails.
    ///
    /// # Safety
    /// The requirements of [`Data::for_send`].
    #[inline]
    pub unsafe fn source(
        &self,
        worker: &Worker,
        what: &str,
        buffer: *const c_void,
        count: usize,
    ) -> Result<Data, ucs_status_t> {
        // SAFETY: the caller's promise.
        let data = unsafe { Data::for_send(buffer, count, self.datatype()) }?;
        if self.mask & KIND_IS_OPEN == 0 {
            return Ok(data);
        }
        // SAFETY: the caller's promise.
        let data = unsafe { self.by_kind(worker, what, data) }?;
        if let Data::Device { memory, len } = data
            && len <= READ_FIRST
        {
            // SAFETY: made in this call; the caller's memory is valid.
            let read = unsafe { (*memory).read_ahead() };
            // SAFETY: made in this call, and not used after an error.
            return read
                .map(|()| data)
                .inspect_err(|_| unsafe { data.drop_unused() });
        }
        Ok(data)
    }

    /// The target of a receive, a get or another operation that writes the buffer. `what`: the function, for the log.
    ///
    /// # Errors
    /// Those of [`Data::for_recv`]; `UCS_ERR_UNSUPPORTED` for memory that this library cannot access.
    ///
    /// # Safety
    /// The requirements of [`Data::for_recv`].
    #[inline]
    pub unsafe fn target(
        &self,
        worker: &Worker,
        what: &str,
        buffer: *mut c_void,
        count: usize,
    ) -> Result<Data, ucs_status_t> {
        // SAFETY: the caller's promise.
        let data = unsafe { Data::for_recv(buffer, count, self.datatype()) }?;
        if self.mask & KIND_IS_OPEN == 0 {
            return Ok(data);
        }
        // SAFETY: the caller's promise.
        unsafe { self.by_kind(worker, what, data) }
    }

    /// One piece of a scatter-gather list.
    ///
    /// # Errors
    /// Those of [`source`](Self::source).
    ///
    /// # Safety
    /// `len` bytes at `ptr` are valid until the operation completes.
    #[inline]
    pub unsafe fn piece(
        &self,
        worker: &Worker,
        what: &str,
        ptr: *mut u8,
        len: usize,
    ) -> Result<Data, ucs_status_t> {
        let data = Data::Contig { ptr, len };
        if self.mask & KIND_IS_OPEN == 0 {
            return Ok(data);
        }
        // SAFETY: the caller's promise.
        unsafe { self.by_kind(worker, what, data) }
    }

    /// Reads an operand of `size` bytes, 4 or 8.
    ///
    /// # Errors
    /// Those of [`source`](Self::source).
    ///
    /// # Safety
    /// `ptr` leads to `size` readable bytes.
    #[inline(always)]
    pub unsafe fn word(
        &self,
        worker: &Worker,
        what: &str,
        ptr: *const c_void,
        size: u8,
    ) -> Result<u64, ucs_status_t> {
        if self.mask & KIND_IS_OPEN == 0 {
            // SAFETY: the caller's promise.
            return Ok(unsafe { amo::load(ptr.cast(), size) });
        }
        // SAFETY: the caller's promise.
        unsafe { self.word_by_kind(worker, what, ptr, size) }
    }

    #[inline(never)]
    unsafe fn word_by_kind(
        &self,
        worker: &Worker,
        what: &str,
        ptr: *const c_void,
        size: u8,
    ) -> Result<u64, ucs_status_t> {
        let (ptr, len) = (ptr.cast_mut().cast(), usize::from(size));
        let mut bytes = [0u8; size_of::<u64>()];
        // SAFETY: the caller's promise; the data end here.
        unsafe {
            let data = self.by_kind(worker, what, Data::Contig { ptr, len })?;
            data.pack(0, bytes.as_mut_ptr(), len);
            match data.finish(UCS_OK) {
                UCS_OK => Ok(u64::from_le_bytes(bytes)),
                status => Err(status),
            }
        }
    }

    /// The memory for a result of `size` bytes, 4 or 8; empty if `ptr` is null.
    ///
    /// # Errors
    /// Those of [`target`](Self::target).
    ///
    /// # Safety
    /// `ptr` is null or leads to `size` bytes, writable until the operation completes.
    #[inline(always)]
    pub unsafe fn word_target(
        &self,
        worker: &Worker,
        what: &str,
        ptr: *mut c_void,
        size: u8,
    ) -> Result<Data, ucs_status_t> {
        if ptr.is_null() {
            return Ok(Data::EMPTY);
        }
        let data = Data::Contig {
            ptr: ptr.cast(),
            len: size.into(),
        };
        if self.mask & KIND_IS_OPEN == 0 {
            return Ok(data);
        }
        // SAFETY: the caller's promise.
        unsafe { self.by_kind(worker, what, data) }
    }

    /// The data by the kind of their memory.
    #[inline(never)]
    unsafe fn by_kind(
        &self,
        worker: &Worker,
        what: &str,
        data: Data,
    ) -> Result<Data, ucs_status_t> {
        match worker.ctx.memory_access(self.memory_type()) {
            MemoryAccess::Processor => Ok(data),
            // SAFETY: the caller's data are valid until the operation completes.
            MemoryAccess::AskDriver(cuda) => Ok(unsafe { by_driver(cuda, data) }),
            MemoryAccess::None => {
                // SAFETY: not used any more.
                unsafe { data.drop_unused() };
                log::error!(
                    "{what}: no transport for memory of type {}, only for {}",
                    self.memory_type(),
                    worker.ctx.memory_types_text()
                );
                Err(UCS_ERR_UNSUPPORTED)
            }
        }
    }
}

/// The data as the driver knows them: those of a device, if some of their memory is not the host's. A user's own packing
/// functions access their memory in their own way.
///
/// # Safety
/// The data are valid until the operation completes.
unsafe fn by_driver(cuda: &Arc<CudaContext>, data: Data) -> Data {
    let pieces = match data {
        Data::Contig { ptr, .. } => DevicePieces::Contig { addr: ptr as u64 },
        Data::Iov { iov, count, .. } => DevicePieces::Iov { iov, count },
        Data::Generic { .. } | Data::Device { .. } => return data,
    };
    let len = data.len();
    let mut lookup = Lookup::new(cuda.cuda);
    let mut is_hosts = |addr, _| {
        let memory = lookup.at(addr);
        match memory.kind {
            MemoryKind::Host => Ok(()),
            MemoryKind::Device | MemoryKind::Managed => Err(memory),
        }
    };
    // SAFETY: the caller's list is readable.
    let Err(memory) = (unsafe { pieces.for_range(0, len, &mut is_hosts) }) else {
        return data;
    };
    let memory = DeviceData::new(cuda, (pieces, len), lookup, memory);
    Data::Device {
        memory: Box::into_raw(Box::new(memory)),
        len,
    }
}
