//! Pieces of a list between memory of devices and host memory that the processor accesses here: copied by way of pinned
//! memory.

use crate::ctypes::*;
use crate::sys::cuda::MemoryInfo;
use crate::tl::cuda::{CudaContext, DeviceData, DevicePieces, Lookup};
use std::sync::Arc;

/// A piece between memory of a device and host memory that the processor accesses here.
pub(super) struct HostPiece {
    /// In this process' address space.
    pub(super) device: ucp_dt_iov_t,
    pub(super) host: *mut u8,
}

/// Pieces between a device and the host, and what is known of their memory of devices.
#[derive(Default)]
pub(super) struct HostPieces {
    pub(super) pieces: Vec<HostPiece>,
    pub(super) lookup: Lookup,
    /// The memory of one of them.
    pub(super) sample: Option<MemoryInfo>,
}

impl HostPieces {
    pub(super) fn push(&mut self, device: u64, host: *mut u8, length: usize) {
        let buffer = device as *mut _;
        let device = ucp_dt_iov_t { buffer, length };
        self.pieces.push(HostPiece { device, host });
    }
}

/// In which direction bytes move between a device and the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostCopy {
    ToHost,
    ToDevice,
}

/// Copies pieces between devices and the host, by way of pinned memory, and waits for them. Returns their bytes.
/// `sample`: the memory of one of them.
///
/// # Errors
/// `UCS_ERR_IO_ERROR`: a device fails.
///
/// # Safety
/// Their memory is valid.
pub(super) unsafe fn copy_host(
    cuda: &Arc<CudaContext>,
    pieces: &[HostPiece],
    lookup: Lookup,
    sample: MemoryInfo,
    copies: HostCopy,
) -> Result<usize, ucs_status_t> {
    let list: Vec<ucp_dt_iov_t> = pieces.iter().map(|piece| piece.device).collect();
    let data = data_of(cuda, &list, lookup, sample);
    let (mut at, mut stored) = (0, Ok(()));
    for piece in pieces {
        let len = piece.device.length;
        // SAFETY: the caller's promise; the list outlives the data.
        unsafe {
            match copies {
                HostCopy::ToHost => data.pack(at, piece.host, len),
                HostCopy::ToDevice if stored.is_ok() => stored = data.unpack(at, piece.host, len),
                HostCopy::ToDevice => {}
            }
        }
        at += len;
    }
    // SAFETY: nothing else is called; the list outlives the data.
    match unsafe { data.finish(stored.err().unwrap_or(UCS_OK)) } {
        UCS_OK => Ok(at),
        status => Err(status),
    }
}

/// The data of a list, which outlives them.
pub(super) fn data_of(
    cuda: &Arc<CudaContext>,
    list: &[ucp_dt_iov_t],
    lookup: Lookup,
    sample: MemoryInfo,
) -> DeviceData {
    let layout = DevicePieces::Iov {
        iov: list.as_ptr(),
        count: list.len(),
    };
    let len = list.iter().map(|piece| piece.length).sum();
    DeviceData::new(cuda, (layout, len), lookup, sample)
}
