//! A few bytes of any kind of memory, read and written during a call.

use super::buffer::by_driver;
use crate::ctypes::*;
use crate::engine::context::Context;
use crate::engine::datatype::Data;

/// The bytes at an address, whose memory the driver knows, if the context uses one.
///
/// # Safety
/// The memory is valid until the data end.
unsafe fn data(ctx: &Context, addr: u64, len: usize) -> Data {
    let ptr = addr as *mut u8;
    let data = Data::Contig { ptr, len };
    match &ctx.cuda {
        // SAFETY: the caller's promise.
        Some(cuda) => unsafe { by_driver(cuda, data) },
        None => data,
    }
}

/// Writes bytes to memory of the host or of a device. They are in place when the call returns.
///
/// # Errors
/// `UCS_ERR_IO_ERROR`: the device has failed.
///
/// # Safety
/// The memory is writable.
pub unsafe fn write(ctx: &Context, addr: u64, bytes: &[u8]) -> Result<(), ucs_status_t> {
    // SAFETY: the caller's promise; the data end here.
    unsafe { data(ctx, addr, bytes.len()).write_in(bytes.as_ptr()) }
}

/// Reads bytes of memory of the host or of a device.
///
/// # Errors
/// `UCS_ERR_IO_ERROR`: the device has failed.
///
/// # Safety
/// The memory is readable.
pub unsafe fn read<const N: usize>(ctx: &Context, addr: u64) -> Result<[u8; N], ucs_status_t> {
    let mut bytes = [0; N];
    // SAFETY: the caller's promise; the data end here.
    unsafe { data(ctx, addr, N).read_out(bytes.as_mut_ptr()) }?;
    Ok(bytes)
}
