//! The memory of an operation: what the caller gave, by layout and kind of memory.

use super::param::Param;
use crate::ctypes::*;
use crate::engine::context::{ASK_DRIVER, MemoryAccess};
use crate::engine::datatype::Data;
use crate::engine::worker::Worker;
use crate::sys::cuda::MemoryKind;
use crate::sys::log;
use crate::tl::cuda::{CudaContext, DeviceData, DevicePieces, Lookup};
use std::ffi::c_void;
use std::ptr;
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
    #[inline(always)]
    pub unsafe fn source(
        &self,
        worker: &Worker,
        what: &str,
        buffer: *const c_void,
        count: usize,
    ) -> Result<Data, ucs_status_t> {
        if self.is_kind_open() {
            let (source, first) = (buffer.cast_mut(), READ_FIRST);
            // SAFETY: the caller's promise.
            let memory = unsafe { self.device(worker, what, (source, count), first) }?;
            // SAFETY: just made.
            if let Some(device) = unsafe { as_data(memory) } {
                return Ok(device);
            }
        }
        // SAFETY: the caller's promise.
        unsafe { Data::for_send(buffer, count, self.datatype()) }
    }

    /// [`source`](Self::source) of which nothing is read before the operation begins: a device copies it where it is.
    ///
    /// # Errors
    /// Those of [`source`](Self::source), except for failures of a device.
    ///
    /// # Safety
    /// The requirements of [`source`](Self::source).
    pub unsafe fn source_unread(
        &self,
        worker: &Worker,
        what: &str,
        buffer: *const c_void,
        count: usize,
    ) -> Result<Data, ucs_status_t> {
        // SAFETY: the caller's promise.
        unsafe {
            let memory = self.device(worker, what, (buffer.cast_mut(), count), 0)?;
            match as_data(memory) {
                Some(device) => Ok(device),
                None => Data::for_send(buffer, count, self.datatype()),
            }
        }
    }

    /// The target of a receive, a get or another operation that writes the buffer. `what`: the function, for the log.
    ///
    /// # Errors
    /// Those of [`Data::for_recv`]; `UCS_ERR_UNSUPPORTED` for memory that this library cannot access.
    ///
    /// # Safety
    /// The requirements of [`Data::for_recv`].
    #[inline(always)]
    pub unsafe fn target(
        &self,
        worker: &Worker,
        what: &str,
        buffer: *mut c_void,
        count: usize,
    ) -> Result<Data, ucs_status_t> {
        if self.is_kind_open() {
            // SAFETY: the caller's promise.
            let memory = unsafe { self.device(worker, what, (buffer, count), 0) }?;
            // SAFETY: just made.
            if let Some(device) = unsafe { as_data(memory) } {
                return Ok(device);
            }
        }
        // SAFETY: the caller's promise.
        unsafe { Data::for_recv(buffer, count, self.datatype()) }
    }

    /// The buffer as memory of a device, for [`Data::Device`]; null: the processor, or the user's functions access it.
    /// Sources of up to `first` bytes are read. A pointer, so that it is returned in a register.
    ///
    /// # Errors
    /// Those of [`source`](Self::source).
    ///
    /// # Safety
    /// The requirements of [`source`](Self::source) or [`target`](Self::target).
    #[cold]
    #[inline(never)]
    unsafe fn device(
        &self,
        worker: &Worker,
        what: &str,
        (buffer, count): (*mut c_void, usize),
        first: usize,
    ) -> Result<*const DeviceData, ucs_status_t> {
        let cuda = self.driver(worker, what)?;
        let is_generic = self.datatype() & UCP_DATATYPE_CLASS_MASK == UCP_DATATYPE_GENERIC as u64;
        let Some(cuda) = cuda.filter(|_| !is_generic) else {
            return Ok(ptr::null());
        };
        // SAFETY: the caller's promise; the layout is that of a send.
        let data = unsafe { Data::for_send(buffer, count, self.datatype()) }?;
        // SAFETY: the caller's data are valid until the operation completes.
        let data = unsafe { by_driver(cuda, data) };
        let Data::Device { memory, len, .. } = data else {
            return Ok(ptr::null());
        };
        // What a peer may read where it is: not first by this process.
        let policy = &worker.ctx.policy;
        let may_be_read = cuda.has_ipc() && len >= policy.rndv_thresh.min(policy.rndv_thresh_inter);
        if len > first || may_be_read {
            return Ok(memory);
        }
        // SAFETY: made in this call, and ended after an error; the caller's memory is valid.
        unsafe {
            let read = (*memory).read_ahead();
            let ended = |_: &ucs_status_t| data.drop_unused();
            read.map(|()| memory).inspect_err(ended)
        }
    }

    /// Whether the buffer may be another memory than the host's.
    #[inline(always)]
    pub fn is_kind_open(&self) -> bool {
        self.mask & KIND_IS_OPEN != 0
    }

    /// One piece of a scatter-gather list.
    ///
    /// # Errors
    /// Those of [`source`](Self::source).
    ///
    /// # Safety
    /// `len` bytes at `ptr` are valid until the operation completes.
    #[inline(always)]
    pub unsafe fn piece(
        &self,
        worker: &Worker,
        what: &str,
        ptr: *mut u8,
        len: usize,
    ) -> Result<Data, ucs_status_t> {
        let data = Data::Contig { ptr, len };
        if !self.is_kind_open() {
            return Ok(data);
        }
        // SAFETY: the caller's promise.
        unsafe { self.by_kind(worker, what, data) }
    }

    /// Reads an operand of `size` bytes, 4 or 8, of any kind of memory.
    ///
    /// # Errors
    /// Those of [`source`](Self::source).
    ///
    /// # Safety
    /// `ptr` leads to `size` readable bytes.
    #[cold]
    #[inline(never)]
    pub unsafe fn word(
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
            data.read_out(bytes.as_mut_ptr())?;
            Ok(u64::from_le_bytes(bytes))
        }
    }

    /// The driver that knows the kind of the buffer's memory. `None`: it is the host's.
    ///
    /// # Errors
    /// `UCS_ERR_UNSUPPORTED` for memory that this library cannot access.
    fn driver<'a>(
        &self,
        worker: &'a Worker,
        what: &str,
    ) -> Result<Option<&'a Arc<CudaContext>>, ucs_status_t> {
        match worker.ctx.memory_access(self.memory_type()) {
            MemoryAccess::Processor => Ok(None),
            MemoryAccess::AskDriver(cuda) => Ok(Some(cuda)),
            MemoryAccess::None => {
                log::error!(
                    "{what}: no transport for {}, only for {}",
                    memory_text(self.memory_type()),
                    worker.ctx.memory_types_text()
                );
                Err(UCS_ERR_UNSUPPORTED)
            }
        }
    }

    /// Contiguous memory, whose kind is open.
    ///
    /// # Errors
    /// Those of [`driver`](Self::driver).
    ///
    /// # Safety
    /// The memory is valid until the operation completes.
    #[cold]
    #[inline(never)]
    unsafe fn by_kind(
        &self,
        worker: &Worker,
        what: &str,
        data: Data,
    ) -> Result<Data, ucs_status_t> {
        Ok(match self.driver(worker, what)? {
            // SAFETY: the caller's promise.
            Some(cuda) => unsafe { by_driver(cuda, data) },
            None => data,
        })
    }
}

/// What [`Param::device`] has returned, as data. `None`: null.
///
/// # Safety
/// It was just returned.
#[inline(always)]
unsafe fn as_data(memory: *const DeviceData) -> Option<Data> {
    // SAFETY: the caller's promise.
    let device = unsafe { memory.as_ref() }?;
    let (len, kind) = (device.len(), device.kind());
    Some(Data::Device { len, memory, kind })
}

/// The data as the driver knows them: those of a device, if some of their memory is not the host's. The user's packing
/// functions access their memory in their own way.
///
/// # Safety
/// The data are valid until the operation completes.
pub(super) unsafe fn by_driver(cuda: &Arc<CudaContext>, data: Data) -> Data {
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
    Data::of_device(DeviceData::new(cuda, (pieces, len), lookup, memory))
}
