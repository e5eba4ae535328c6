//! Layout of a buffer: contiguous, a list of pieces, the user's own packing functions, or memory of devices.

use crate::ctypes::*;
use crate::sys::cma::{IoSpan, Spans};
use crate::sys::copy;
use crate::sys::cuda::MemoryKind;
use crate::tl::cuda::DeviceData;
use crate::tl::payload::UserData;
use std::ffi::c_void;
use std::ptr;

const CLASS_MASK: u64 = UCP_DATATYPE_CLASS_MASK;

/// A generic datatype: the user's functions and the argument they get. Owned by the user until
/// `ucp_dt_destroy`; 8-byte aligned, so that its address leaves the class bits free.
#[repr(C, align(8))]
pub struct Generic {
    pub ops: ucp_generic_dt_ops_t,
    pub context: *mut c_void,
}

impl Generic {
    /// The datatype behind a handle of the generic class.
    ///
    /// # Safety
    /// `datatype` came from `ucp_dt_create_generic` and was not destroyed.
    pub unsafe fn of<'a>(datatype: u64) -> &'a Generic {
        // SAFETY: the caller's promise.
        unsafe { &*((datatype & !CLASS_MASK) as *const Generic) }
    }
}

/// The user's memory of one operation. Sizes are in bytes; `len` is that of the packed message or
/// the capacity of the receive. It does not own the memory, which is the user's until completion.
///
/// `repr(u64)`: the fields are in this order, so that all lengths are at the same place, and [`len`](Data::len) is one
/// load.
#[repr(u64)]
#[derive(Clone, Copy)]
pub enum Data {
    Contig {
        len: usize,
        ptr: *mut u8,
    },
    Iov {
        len: usize,
        iov: *const ucp_dt_iov_t,
        count: usize,
    },
    Generic {
        len: usize,
        dt: *const Generic,
        state: *mut c_void,
    },
    /// Memory that devices copy, or a list with such pieces. Made by `Box::into_raw`, freed by [`Data::finish`].
    Device {
        len: usize,
        memory: *const DeviceData,
        /// That of the memory; of a list's first piece that is not the host's. Valid after [`Data::finish`], too.
        kind: MemoryKind,
    },
}

impl Data {
    /// An empty buffer.
    pub const EMPTY: Data = Data::Contig {
        ptr: ptr::null_mut(),
        len: 0,
    };

    /// The source of a send. A generic datatype's `start_pack` and `packed_size` run here.
    ///
    /// # Errors
    /// `UCS_ERR_INVALID_PARAM` for a class that cannot be sent.
    ///
    /// # Safety
    /// `buffer`, `count` and `datatype` are as UCP defines them, readable until completion.
    pub unsafe fn for_send(
        buffer: *const c_void,
        count: usize,
        datatype: u64,
    ) -> Result<Data, ucs_status_t> {
        // SAFETY: the caller's promise.
        unsafe {
            Self::new(buffer.cast_mut(), count, datatype, |g| {
                g.ops.start_pack.map(|f| f(g.context, buffer, count))
            })
        }
    }

    /// The target of a receive. A generic datatype's `start_unpack` and `packed_size` run here.
    ///
    /// # Errors
    /// `UCS_ERR_INVALID_PARAM` for a class that cannot be received.
    ///
    /// # Safety
    /// `buffer`, `count` and `datatype` are as UCP defines them, writable until completion.
    pub unsafe fn for_recv(
        buffer: *mut c_void,
        count: usize,
        datatype: u64,
    ) -> Result<Data, ucs_status_t> {
        // SAFETY: the caller's promise.
        unsafe {
            Self::new(buffer, count, datatype, |g| {
                g.ops.start_unpack.map(|f| f(g.context, buffer, count))
            })
        }
    }

    unsafe fn new(
        buffer: *mut c_void,
        count: usize,
        datatype: u64,
        start: impl FnOnce(&Generic) -> Option<*mut c_void>,
    ) -> Result<Data, ucs_status_t> {
        const CONTIG: u64 = UCP_DATATYPE_CONTIG as u64;
        const IOV: u64 = UCP_DATATYPE_IOV as u64;
        const GENERIC: u64 = UCP_DATATYPE_GENERIC as u64;
        match datatype & CLASS_MASK {
            CONTIG => {
                let len = count
                    .checked_mul((datatype >> 3) as usize)
                    .ok_or(UCS_ERR_INVALID_PARAM)?;
                if len > 0 && buffer.is_null() {
                    return Err(UCS_ERR_INVALID_PARAM);
                }
                Ok(Data::Contig {
                    ptr: buffer.cast(),
                    len,
                })
            }
            IOV => {
                if count > 0 && buffer.is_null() {
                    return Err(UCS_ERR_INVALID_PARAM);
                }
                let iov: *const ucp_dt_iov_t = buffer.cast_const().cast();
                let mut len = 0usize;
                for i in 0..count {
                    // SAFETY: the caller promises `count` entries.
                    let piece = unsafe { (*iov.add(i)).length };
                    len = len.checked_add(piece).ok_or(UCS_ERR_INVALID_PARAM)?;
                }
                Ok(Data::Iov { iov, count, len })
            }
            GENERIC if datatype & !CLASS_MASK != 0 => {
                // SAFETY: the caller promises a live datatype.
                let g = unsafe { Generic::of(datatype) };
                let state = start(g).ok_or(UCS_ERR_INVALID_PARAM)?;
                // SAFETY: the user's function with the user's state.
                let len = g.ops.packed_size.map_or(0, |f| unsafe { f(state) });
                Ok(Data::Generic { dt: g, state, len })
            }
            _ => Err(UCS_ERR_INVALID_PARAM),
        }
    }

    /// Bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        match *self {
            Data::Contig { len, .. }
            | Data::Iov { len, .. }
            | Data::Generic { len, .. }
            | Data::Device { len, .. } => len,
        }
    }

    /// The kind of the memory, after the end of the operation, too. The host's for the user's own datatypes.
    pub fn kind(&self) -> MemoryKind {
        match *self {
            Data::Contig { .. } | Data::Iov { .. } | Data::Generic { .. } => MemoryKind::Host,
            Data::Device { kind, .. } => kind,
        }
    }

    /// Memory that devices copy.
    pub fn of_device(memory: DeviceData) -> Data {
        let (len, kind) = (memory.len(), memory.kind());
        Data::Device {
            len,
            memory: Box::into_raw(Box::new(memory)),
            kind,
        }
    }

    /// Start of the memory if it is one piece.
    pub fn as_contig(&self) -> Option<*mut u8> {
        match *self {
            Data::Contig { ptr, .. } => Some(ptr),
            _ => None,
        }
    }

    /// Appends the pieces of memory of the range `offset..offset + n` as far as the list has room.
    /// False for the user's own datatypes, which only their functions can read and write, and for memory of devices.
    ///
    /// # Safety
    /// `offset + n <= len`; the entries of the list are valid until the operation completes.
    pub unsafe fn spans(&self, offset: usize, n: usize, out: &mut Spans) -> bool {
        match *self {
            Data::Contig { ptr, .. } => {
                out.push(IoSpan {
                    addr: ptr as u64 + offset as u64,
                    len: n,
                });
            }
            // SAFETY: the caller's promise.
            Data::Iov { iov, count, .. } => unsafe {
                for_pieces(iov, count, offset, n, |piece, len| {
                    out.push(IoSpan {
                        addr: piece as u64,
                        len,
                    })
                });
            },
            Data::Generic { .. } | Data::Device { .. } => return false,
        }
        true
    }

    /// Writes `n` bytes of the packed form, from `offset` on, to `dst`.
    ///
    /// # Safety
    /// `offset + n <= len`, `dst` has room for `n` bytes, the user's memory is valid until the operation completes.
    #[inline]
    pub unsafe fn pack(&self, offset: usize, dst: *mut u8, n: usize) {
        match *self {
            // SAFETY: within the user's buffer.
            Data::Contig { ptr, .. } => unsafe { copy::to_shared(dst, ptr.add(offset), n) },
            Data::Iov { iov, count, .. } => {
                let mut done = 0;
                // SAFETY: pieces of the user's list.
                unsafe {
                    for_pieces(iov, count, offset, n, |piece, len| {
                        ptr::copy_nonoverlapping(piece, dst.add(done), len);
                        done += len;
                        true
                    });
                }
            }
            // SAFETY: the user's functions with the user's state.
            Data::Generic { dt, state, .. } => unsafe { pack_generic(&*dt, state, offset, dst, n) },
            // SAFETY: freed by `finish` only; the caller's promise.
            Data::Device { memory, .. } => unsafe { pack_device(&*memory, offset, dst, n) },
        }
    }

    /// Writes up to `n` bytes of the packed form, from `offset` on, and returns their number: a generic datatype may
    /// stop before an element that does not fit.
    ///
    /// # Safety
    /// `offset + n <= len`, `dst` has room for `n` bytes, `n` is not 0, the user's memory is valid until the operation
    /// completes.
    pub unsafe fn pack_some(&self, offset: usize, dst: *mut u8, n: usize) -> usize {
        if let Data::Generic { dt, state, .. } = *self {
            // SAFETY: the user's function with the user's state.
            let got = unsafe {
                (*dt)
                    .ops
                    .pack
                    .map_or(0, |f| f(state, offset, dst.cast(), n))
            };
            if (1..=n).contains(&got) {
                return got;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.pack(offset, dst, n) };
        n
    }

    /// Stores `n` received bytes that belong at `offset`.
    ///
    /// # Errors
    /// What a generic datatype's `unpack` returns; `UCS_ERR_IO_ERROR` where a device fails.
    ///
    /// # Safety
    /// `offset + n <= len`, `n` bytes are readable at `src`.
    #[inline]
    pub unsafe fn unpack(
        &self,
        offset: usize,
        src: *const u8,
        n: usize,
    ) -> Result<(), ucs_status_t> {
        match *self {
            // SAFETY: within the user's buffer.
            Data::Contig { ptr, .. } => unsafe {
                let dst = ptr.add(offset);
                // A worker's access to its own memory.
                if (src as usize).abs_diff(dst as usize) < n {
                    ptr::copy(src, dst, n);
                } else {
                    copy::from_shared(dst, src, n);
                }
            },
            Data::Iov { iov, count, .. } => {
                let mut done = 0;
                // SAFETY: pieces of the user's list.
                unsafe {
                    for_pieces(iov, count, offset, n, |piece, len| {
                        ptr::copy(src.add(done), piece, len);
                        done += len;
                        true
                    });
                }
            }
            Data::Generic { dt, state, .. } => {
                // SAFETY: the user's function with the user's state; never called for nothing.
                if let (Some(f), 1..) = (unsafe { (*dt).ops.unpack }, n) {
                    // SAFETY: the user's function with the user's state; `src` is readable for `n` bytes.
                    let status = unsafe { status_raw(f(state, offset, src.cast(), n)) };
                    if status != 0 {
                        return Err(ucs_status_t::from_raw(status));
                    }
                }
            }
            // SAFETY: freed by `finish` only; the caller's promise.
            Data::Device { memory, .. } => unsafe {
                return unpack_device(&*memory, offset, src, n);
            },
        }
        Ok(())
    }

    /// Writes all bytes of the packed form to `dst`, and ends the data.
    ///
    /// # Errors
    /// `UCS_ERR_IO_ERROR` where a device fails.
    ///
    /// # Safety
    /// `dst` has room for them, the user's memory is valid; the conditions of [`finish`](Self::finish).
    #[cold]
    pub unsafe fn read_out(&self, dst: *mut u8) -> Result<(), ucs_status_t> {
        // SAFETY: the caller's promise.
        unsafe {
            self.pack(0, dst, self.len());
            self.finish_with(Ok(()))
        }
    }

    /// Stores as many bytes as the data have, and ends them: the bytes are in place.
    ///
    /// # Errors
    /// Those of [`unpack`](Self::unpack).
    ///
    /// # Safety
    /// They are readable at `src`, the user's memory is valid; the conditions of [`finish`](Self::finish).
    #[cold]
    pub unsafe fn write_in(&self, src: *const u8) -> Result<(), ucs_status_t> {
        // SAFETY: the caller's promise.
        unsafe { self.finish_with(self.unpack(0, src, self.len())) }
    }

    /// [`finish`](Self::finish) with a result.
    unsafe fn finish_with(&self, result: Result<(), ucs_status_t>) -> Result<(), ucs_status_t> {
        // SAFETY: the caller's promise.
        match unsafe { self.finish(result.err().unwrap_or(UCS_OK)) } {
            UCS_OK => Ok(()),
            status => Err(status),
        }
    }

    /// Ends a generic datatype's state, and the copies of devices. Exactly once per operation, whatever its outcome.
    /// Returns the status of the operation, which was `status` before: a copy may have failed.
    ///
    /// # Safety
    /// Not called before, nothing else is called after.
    #[inline(always)]
    pub unsafe fn finish(&self, status: ucs_status_t) -> ucs_status_t {
        match *self {
            Data::Contig { .. } | Data::Iov { .. } => status,
            // SAFETY: the caller's promise.
            Data::Generic { .. } | Data::Device { .. } => unsafe { self.finish_state(status) },
        }
    }

    /// Out of line, so that callers with plain memory need no larger frame.
    #[inline(never)]
    unsafe fn finish_state(&self, status: ucs_status_t) -> ucs_status_t {
        match *self {
            Data::Contig { .. } | Data::Iov { .. } => status,
            Data::Generic { dt, state, .. } => {
                // SAFETY: the user's function with the user's state.
                unsafe {
                    if let Some(f) = (*dt).ops.finish {
                        f(state);
                    }
                }
                status
            }
            Data::Device { memory, .. } => {
                // SAFETY: made by `Box::into_raw`, and freed here only; the user's memory is valid until the operation
                // completes, which is later.
                unsafe { Box::from_raw(memory.cast_mut()).finish(status) }
            }
        }
    }

    /// Ends the data of an operation that has not begun.
    ///
    /// # Safety
    /// The requirements of [`finish`](Self::finish).
    pub unsafe fn drop_unused(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.finish(UCS_OK) };
    }
}

// SAFETY: `spans` appends pieces of the buffer that the user has given with the operation.
unsafe impl UserData for Data {
    unsafe fn spans(&self, offset: usize, n: usize, out: &mut Spans) -> bool {
        // SAFETY: the caller's promises are those that the callee requires.
        unsafe { Data::spans(self, offset, n, out) }
    }

    unsafe fn pack(&self, offset: usize, dst: *mut u8, n: usize) {
        // SAFETY: the caller's promises are those that the callee requires.
        unsafe { Data::pack(self, offset, dst, n) };
    }

    unsafe fn unpack(&self, offset: usize, src: *const u8, n: usize) -> Result<(), ucs_status_t> {
        // SAFETY: the caller's promises are those that the callee requires.
        unsafe { Data::unpack(self, offset, src, n) }
    }
}

/// Out of line, so that callers with host memory need no larger frame.
#[cold]
#[inline(never)]
unsafe fn pack_device(memory: &DeviceData, offset: usize, dst: *mut u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { memory.pack(offset, dst, n) };
}

/// Out of line, so that callers with host memory need no larger frame.
#[cold]
#[inline(never)]
unsafe fn unpack_device(
    memory: &DeviceData,
    offset: usize,
    src: *const u8,
    n: usize,
) -> Result<(), ucs_status_t> {
    // SAFETY: the caller's promise.
    unsafe { memory.unpack(offset, src, n) }
}

/// Packs by the user's function. It may pack less than requested; the bytes that it does not write are zero.
unsafe fn pack_generic(dt: &Generic, state: *mut c_void, offset: usize, dst: *mut u8, n: usize) {
    let mut done = 0;
    while done < n {
        // SAFETY: the user's function with the user's state, never for nothing.
        let got = dt.ops.pack.map_or(0, |f| unsafe {
            f(state, offset + done, dst.add(done).cast(), n - done)
        });
        if got == 0 || got > n - done {
            // SAFETY: `dst` has room for `n`.
            unsafe { ptr::write_bytes(dst.add(done), 0, n - done) };
            return;
        }
        done += got;
    }
}

/// Calls `f` with each piece of memory of the range `offset..offset + n` of the list, until it returns false.
unsafe fn for_pieces(
    iov: *const ucp_dt_iov_t,
    count: usize,
    mut offset: usize,
    mut n: usize,
    mut f: impl FnMut(*mut u8, usize) -> bool,
) {
    for i in 0..count {
        if n == 0 {
            return;
        }
        // SAFETY: the caller promises `count` entries.
        let entry = unsafe { &*iov.add(i) };
        if offset >= entry.length {
            offset -= entry.length;
            continue;
        }
        let len = n.min(entry.length - offset);
        // SAFETY: within the entry.
        if !f(unsafe { entry.buffer.cast::<u8>().add(offset) }, len) {
            return;
        }
        n -= len;
        offset = 0;
    }
}
