//! Worker addresses as blobs that the user carries.

use super::output::invalid;
use super::worker::worker_of;
use crate::ctypes::*;
use crate::engine::worker::Worker;
use crate::sys::log;
use crate::tl::address::WorkerAddress;
use crate::wire::address::total_len;

/// The worker's address in memory from malloc.
pub fn allocate(worker: &Worker, net_only: bool) -> Option<(*mut ucp_address_t, usize)> {
    let blob = worker.address(net_only).encode();
    // SAFETY: malloc of a length that is not 0; the copy fits.
    unsafe {
        let ptr = libc::malloc(blob.len()).cast::<u8>();
        if ptr.is_null() {
            return None;
        }
        ptr.copy_from_nonoverlapping(blob.as_ptr(), blob.len());
        Some((ptr.cast(), blob.len()))
    }
}

/// Decodes an address whose length only its prefix contains.
///
/// # Errors
/// `UCS_ERR_INVALID_ADDR`, `UCS_ERR_UNREACHABLE` for one of another library.
///
/// # Safety
/// `address` points to as many bytes as the prefix of four states, or to four that are no valid prefix.
pub unsafe fn decode(address: *const ucp_address_t) -> Result<WorkerAddress, ucs_status_t> {
    // SAFETY: the prefix is read first, then as many bytes as it states.
    let decoded = unsafe {
        let ptr = address.cast::<u8>();
        let prefix = ptr.cast::<[u8; 4]>().read_unaligned();
        total_len(&prefix)
            .and_then(|len| WorkerAddress::decode(std::slice::from_raw_parts(ptr, len)))
    };
    decoded.map_err(|e| {
        log::error!("{e}");
        UCS_ERR_INVALID_ADDR
    })
}

/// The worker's address; freed with `ucp_worker_release_address`.
///
/// # Safety
/// A live worker; both pointers are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_worker_get_address(
    worker: ucp_worker_h,
    address_p: *mut *mut ucp_address_t,
    address_length_p: *mut usize,
) -> ucs_status_t {
    if worker.is_null() || address_p.is_null() || address_length_p.is_null() {
        return invalid(
            "ucp_worker_get_address",
            "worker, address_p or address_length_p is null",
        );
    }
    // SAFETY: the caller's handle and pointers.
    unsafe {
        let Some((ptr, len)) = allocate(worker_of(worker), false) else {
            return UCS_ERR_NO_MEMORY;
        };
        address_p.write(ptr);
        address_length_p.write(len);
    }
    UCS_OK
}

/// Frees an address.
///
/// # Safety
/// Null, or an address of this library's that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_worker_release_address(
    _worker: ucp_worker_h,
    address: *mut ucp_address_t,
) {
    // SAFETY: made by `allocate`.
    unsafe { libc::free(address.cast()) };
}

/// Returns the fields of an address.
///
/// # Safety
/// A blob as `ucp_worker_query` made it; `attr` valid in the fields that its mask names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_worker_address_query(
    address: *mut ucp_address_t,
    attr: *mut ucp_worker_address_attr_t,
) -> ucs_status_t {
    if address.is_null() || attr.is_null() {
        return invalid("ucp_worker_address_query", "address or attr is null");
    }
    // SAFETY: the caller's blob and structure.
    unsafe {
        match decode(address) {
            Ok(decoded) => {
                if (*attr).field_mask & UCP_WORKER_ADDRESS_ATTR_FIELD_UID as u64 != 0 {
                    (*attr).worker_uid = decoded.uid;
                }
                UCS_OK
            }
            Err(status) => status,
        }
    }
}
