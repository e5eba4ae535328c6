//! The memory of an operation: what the caller gave, by layout and kind of memory.

use super::param::Param;
use crate::ctypes::*;
use crate::engine::context::{ASK_DRIVER, MemoryAccess};
use crate::engine::datatype::Data;
use crate::engine::memory::note_wrong_type;
use crate::engine::worker::Worker;
use crate::proto::select::device::MAX_READ;
use crate::proto::select::message::Protocol;
use crate::sys::cuda::{MemoryInfo, MemoryKind};
use crate::sys::log;
use crate::tl::cuda::{CudaContext, DeviceData, DevicePieces, Lookup};
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

/// With none of these bits the buffer is host memory.
const KIND_IS_OPEN: u32 = UCP_OP_ATTR_FIELD_MEMORY_TYPE as u32 | ASK_DRIVER;

impl Param {
    /// The source of a put or another operation that reads the buffer; a short one is read from its device. `what`: the
    /// function, for the log.
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
        // SAFETY: the caller's promise; the data are new.
        unsafe {
            let data = self.source_unread(worker, what, buffer, count)?;
            if let Data::Device {
                len: ..=MAX_READ, ..
            } = data
            {
                read_first(data)?;
            }
            Ok(data)
        }
    }

    /// The source of an operation that selects what moves the bytes before a device reads any of them.
    ///
    /// # Errors
    /// Those of [`source`](Self::source), except for failures of a device.
    ///
    /// # Safety
    /// The requirements of [`source`](Self::source).
    #[inline(always)]
    pub unsafe fn source_unread(
        &self,
        worker: &Worker,
        what: &str,
        buffer: *const c_void,
        count: usize,
    ) -> Result<Data, ucs_status_t> {
        if self.is_kind_open() {
            // SAFETY: the caller's promise.
            let memory = unsafe { self.device(worker, what, (buffer.cast_mut(), count)) }?;
            // SAFETY: just made.
            if let Some(device) = unsafe { as_data(memory) } {
                return Ok(device);
            }
        }
        // SAFETY: the caller's promise.
        unsafe { Data::for_send(buffer, count, self.datatype()) }
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
            let memory = unsafe { self.device(worker, what, (buffer, count)) }?;
            // SAFETY: just made.
            if let Some(device) = unsafe { as_data(memory) } {
                return Ok(device);
            }
        }
        // SAFETY: the caller's promise.
        unsafe { Data::for_recv(buffer, count, self.datatype()) }
    }

    /// The buffer as memory of a device, for [`Data::Device`]; null: the processor, or the user's functions access it.
    /// A pointer, so that it is returned in a register.
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
    ) -> Result<*const DeviceData, ucs_status_t> {
        let driver = self.driver(worker, what)?;
        let is_generic = self.datatype() & UCP_DATATYPE_CLASS_MASK == UCP_DATATYPE_GENERIC as u64;
        let Some(driver) = driver.filter(|_| !is_generic) else {
            return Ok(ptr::null());
        };
        // SAFETY: the caller's promise; the layout is that of a send.
        let data = unsafe { Data::for_send(buffer, count, self.datatype()) }?;
        // SAFETY: the caller's data are valid until the operation completes.
        let data = unsafe { driver.find(what, data) }?;
        match data {
            Data::Device { memory, .. } => Ok(memory),
            _ => Ok(ptr::null()),
        }
    }

    /// What the driver knows of the memory at an address, unless the processor accesses it. `lookup`: what it has said
    /// during the operation.
    ///
    /// # Errors
    /// `UCS_ERR_UNSUPPORTED` for memory that this library cannot access; `UCS_ERR_INVALID_PARAM`: the processor cannot
    /// access what is stated to be the host's. Both with a line in the log.
    pub fn piece_memory(
        &self,
        worker: &Worker,
        what: &str,
        addr: u64,
        lookup: &mut Lookup,
    ) -> Result<Option<MemoryInfo>, ucs_status_t> {
        let Some(driver) = self.driver(worker, what)? else {
            return Ok(None);
        };
        let memory = lookup.at(driver.cuda, addr);
        match (memory.kind, driver.stated) {
            (MemoryKind::Host, _) | (MemoryKind::Managed, StatedKind::Host) => Ok(None),
            (MemoryKind::Device, StatedKind::Host) => {
                note_wrong_type(what, addr);
                Err(UCS_ERR_INVALID_PARAM)
            }
            (MemoryKind::Device | MemoryKind::Managed, StatedKind::Any) => Ok(Some(memory)),
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

    /// What knows the kind of the buffer's memory. `None`: it is the host's.
    ///
    /// # Errors
    /// `UCS_ERR_UNSUPPORTED` for memory that this library cannot access.
    fn driver<'a>(
        &self,
        worker: &'a Worker,
        what: &str,
    ) -> Result<Option<Driver<'a>>, ucs_status_t> {
        let (cuda, stated) = match worker.ctx.memory_access(self.memory_type()) {
            MemoryAccess::Processor => return Ok(None),
            MemoryAccess::AskDriver(cuda) => (cuda, StatedKind::Any),
            MemoryAccess::CheckHost(cuda) => (cuda, StatedKind::Host),
            MemoryAccess::None => {
                log::error!(
                    "{what}: no transport for {}, only for {}",
                    memory_text(self.memory_type()),
                    worker.ctx.memory_types_text()
                );
                return Err(UCS_ERR_UNSUPPORTED);
            }
        };
        Ok(Some(Driver { cuda, stated }))
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
        match self.driver(worker, what)? {
            // SAFETY: the caller's promise.
            Some(driver) => unsafe { driver.find(what, data) },
            None => Ok(data),
        }
    }
}

/// What an operation's caller says of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StatedKind {
    /// Nothing that matters: the driver knows it.
    Any,
    /// The processor accesses it.
    Host,
}

/// The driver, for the memory of one operation.
struct Driver<'a> {
    cuda: &'a Arc<CudaContext>,
    stated: StatedKind,
}

impl Driver<'_> {
    /// The data as the driver knows them. Managed memory that the caller states to be the host's is the processor's.
    ///
    /// # Errors
    /// `UCS_ERR_INVALID_PARAM`, with a line in the log: the processor cannot access what is stated to be the host's.
    ///
    /// # Safety
    /// The data are valid until the operation completes.
    unsafe fn find(&self, what: &str, data: Data) -> Result<Data, ucs_status_t> {
        match self.stated {
            // SAFETY: the caller's promise.
            StatedKind::Any => Ok(unsafe { by_driver(self.cuda, data) }),
            StatedKind::Host => {
                let mut lookup = Lookup::default();
                let is_device = |kind| kind == MemoryKind::Device;
                // SAFETY: the caller's promise.
                match unsafe { first_piece(self.cuda, data, &mut lookup, is_device) } {
                    None => Ok(data),
                    Some((addr, _)) => {
                        note_wrong_type(what, addr);
                        Err(UCS_ERR_INVALID_PARAM)
                    }
                }
            }
        }
    }
}

/// Reads the data of a message that is one record before that is written, if they are a device's: what is put into a
/// record cannot be taken back when the device fails. At most [`MAX_READ`] bytes.
///
/// # Errors
/// `UCS_ERR_IO_ERROR` where a device fails: the data have ended.
///
/// # Safety
/// The data were made in the call, and their memory is valid until the operation completes.
#[inline(always)]
pub(super) unsafe fn read_for_record(protocol: &Protocol, data: Data) -> Result<(), ucs_status_t> {
    match data {
        // SAFETY: the caller's promise.
        Data::Device { .. } if protocol.is_one_record() => unsafe { read_first(data) },
        _ => Ok(()),
    }
}

/// Reads the first bytes of memory of a device, all of a short source.
///
/// # Errors
/// `UCS_ERR_IO_ERROR` where a device fails: the data have ended.
///
/// # Safety
/// The data were made in the call, and their memory is valid until the operation completes.
#[cold]
#[inline(never)]
unsafe fn read_first(data: Data) -> Result<(), ucs_status_t> {
    let Data::Device { memory, .. } = data else {
        return Ok(());
    };
    // SAFETY: the caller's promise; the data are not used after they have ended.
    unsafe {
        let read = (*memory).read_ahead();
        read.inspect_err(|_| data.drop_unused())
    }
}

/// The layout of the data, if the driver may know their memory. The user's packing functions access theirs in their own
/// way.
fn layout_of(data: &Data) -> Option<DevicePieces> {
    match *data {
        Data::Contig { ptr, .. } => Some(DevicePieces::Contig { addr: ptr as u64 }),
        Data::Iov { iov, count, .. } => Some(DevicePieces::Iov { iov, count }),
        Data::Generic { .. } | Data::Device { .. } => None,
    }
}

/// The first piece of the data whose memory is of a kind that `wanted` selects: its address, and what the driver knows.
///
/// # Safety
/// A list is readable.
unsafe fn first_piece(
    cuda: &CudaContext,
    data: Data,
    lookup: &mut Lookup,
    wanted: impl Fn(MemoryKind) -> bool,
) -> Option<(u64, MemoryInfo)> {
    let look = |addr, _| {
        let memory = lookup.at(cuda, addr);
        match wanted(memory.kind) {
            true => Err((addr, memory)),
            false => Ok(()),
        }
    };
    // SAFETY: the caller's promise.
    unsafe { layout_of(&data)?.for_range(0, data.len(), look) }.err()
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
    let mut lookup = Lookup::default();
    let is_drivers = |kind| kind != MemoryKind::Host;
    // SAFETY: the caller's list is readable.
    let found = unsafe { first_piece(cuda, data, &mut lookup, is_drivers) };
    match (layout_of(&data), found) {
        (Some(pieces), Some((_, memory))) => {
            let whole = (pieces, data.len());
            Data::of_device(DeviceData::new(cuda, whole, lookup, memory))
        }
        _ => data,
    }
}
