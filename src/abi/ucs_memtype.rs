//! The cache of memory types, which programs with memory other than the host's keep up to date.

use crate::ctypes::*;
use crate::sys::memtype_cache::{self, Attributes, Found};
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// Looks up the type that programs have set for a range of memory; `UCS_ERR_NO_ELEM` where they have set none.
///
/// `UCS_MEMORY_TYPE_UNKNOWN` in the answer means: not the host's, to be found out in another way.
///
/// # Safety
/// `mem_info` is writable, or nothing was stated about the address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucs_memtype_cache_lookup(
    address: *const c_void,
    size: usize,
    mem_info: *mut ucs_memory_info_t,
) -> ucs_status_t {
    let found = memtype_cache::lookup(address.addr(), size);
    let (kind, device, base, length, flags) = match found {
        None => return UCS_ERR_NO_ELEM,
        Some(Found::Inside {
            start,
            end,
            attributes: of,
        }) => {
            let kind = ucs_memory_type::from_raw(of.kind).unwrap_or(UCS_MEMORY_TYPE_UNKNOWN);
            (kind, of.device, start, end - start, of.flags)
        }
        Some(Found::Beyond) => (
            UCS_MEMORY_TYPE_UNKNOWN,
            UCS_SYS_DEVICE_ID_UNKNOWN,
            0,
            usize::MAX,
            UCS_MEM_FLAG_REGISTRABLE as u8,
        ),
    };
    let info = ucs_memory_info_t {
        r#type: kind,
        sys_dev: device,
        base_address: std::ptr::without_provenance_mut(base),
        alloc_length: length,
        mem_flags: flags,
    };
    // SAFETY: the caller's structure.
    unsafe { mem_info.write(info) };
    UCS_OK
}

/// Sets the type of a range of memory, in place of an earlier one; the memory around it keeps its type.
#[unsafe(no_mangle)]
pub extern "C" fn ucs_memtype_cache_update(
    address: *const c_void,
    size: usize,
    mem_type: MaybeUninit<ucs_memory_type_t>,
    sys_dev: ucs_sys_device_t,
    mem_flags: u8,
) {
    let attributes = Attributes {
        // SAFETY: an argument that C passed by value is initialised.
        kind: unsafe { enum_raw(mem_type) },
        device: sys_dev,
        flags: mem_flags,
    };
    memtype_cache::update(address.addr(), size, attributes);
}

/// Forgets what was stated about a piece of memory.
#[unsafe(no_mangle)]
pub extern "C" fn ucs_memtype_cache_remove(address: *const c_void, size: usize) {
    memtype_cache::remove(address.addr(), size);
}
