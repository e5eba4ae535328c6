//! Generic datatypes.

use super::output::invalid;
use crate::ctypes::*;
use crate::engine::datatype::{Data, Generic};
use std::ffi::c_void;

/// A datatype of the user's own packing functions.
///
/// # Safety
/// `ops` and `datatype_p` are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_dt_create_generic(
    ops: *const ucp_generic_dt_ops_t,
    context: *mut c_void,
    datatype_p: *mut ucp_datatype_t,
) -> ucs_status_t {
    if ops.is_null() || datatype_p.is_null() {
        return invalid("ucp_dt_create_generic", "ops or datatype_p is null");
    }
    // SAFETY: checked above.
    unsafe {
        let dt = Box::into_raw(Box::new(Generic { ops: *ops, context }));
        datatype_p.write(dt as u64 | UCP_DATATYPE_GENERIC as u64);
    }
    UCS_OK
}

fn is_generic(datatype: ucp_datatype_t) -> bool {
    datatype & UCP_DATATYPE_CLASS_MASK == UCP_DATATYPE_GENERIC as u64
        && datatype & !UCP_DATATYPE_CLASS_MASK != 0
}

/// Frees a generic datatype; others need no freeing.
///
/// # Safety
/// Not destroyed before, and no operation uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_dt_destroy(datatype: ucp_datatype_t) {
    if is_generic(datatype) {
        // SAFETY: made by `ucp_dt_create_generic`.
        drop(unsafe { Box::from_raw((datatype & !UCP_DATATYPE_CLASS_MASK) as *mut Generic) });
    }
}

/// Fills the fields of `attr` that its mask names: the packed size of `count` elements at `buffer`.
///
/// # Safety
/// A live datatype; `attr` valid in the fields that its mask names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_dt_query(
    datatype: ucp_datatype_t,
    attr: *mut ucp_datatype_attr_t,
) -> ucs_status_t {
    if attr.is_null() {
        return invalid("ucp_dt_query", "attr is null");
    }
    // SAFETY: each field is used only if its bit is set.
    unsafe {
        let mask = (*attr).field_mask;
        let has = |bit: ucp_datatype_attr_field| mask & bit as u64 != 0;
        if !has(UCP_DATATYPE_ATTR_FIELD_PACKED_SIZE) {
            return UCS_OK;
        }
        let count = if has(UCP_DATATYPE_ATTR_FIELD_COUNT) {
            (*attr).count
        } else {
            1
        };
        let buffer = if has(UCP_DATATYPE_ATTR_FIELD_BUFFER) {
            (*attr).buffer
        } else {
            std::ptr::null()
        };
        if datatype & UCP_DATATYPE_CLASS_MASK == UCP_DATATYPE_CONTIG as u64 {
            (*attr).packed_size = count.saturating_mul((datatype >> 3) as usize);
            return UCS_OK;
        }
        match Data::for_send(buffer, count, datatype) {
            Ok(data) => {
                (*attr).packed_size = data.len();
                data.drop_unused();
                UCS_OK
            }
            Err(status) => status,
        }
    }
}
