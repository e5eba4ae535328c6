//! How the elements of a buffer are laid out.

use super::{ucp_datatype_t, ucp_mem_h, ucp_rkey_h, ucs_status_t};
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// Classes of datatypes: the low bits of a `ucp_datatype_t`.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_dt_type {
    /// Elements of one size, without gaps.
    UCP_DATATYPE_CONTIG = 0,
    /// Elements with gaps; not offered.
    UCP_DATATYPE_STRIDED = 1,
    /// An array of `ucp_dt_iov_t`.
    UCP_DATATYPE_IOV = 2,
    /// A scatter-gather list.
    UCP_DATATYPE_SGL = 4,
    /// The program packs and unpacks.
    UCP_DATATYPE_GENERIC = 7,
    /// Number of low bits.
    UCP_DATATYPE_SHIFT = 3,
}
pub use ucp_dt_type::*;

/// Mask of the low bits.
pub const UCP_DATATYPE_CLASS_MASK: u64 = 7;

/// The datatype of elements of `size` bytes without gaps.
pub const fn ucp_dt_make_contig(size: usize) -> ucp_datatype_t {
    ((size as u64) << UCP_DATATYPE_SHIFT as u32) | UCP_DATATYPE_CONTIG as u64
}

/// The datatype of an array of `ucp_dt_iov_t`.
pub const fn ucp_dt_make_iov() -> ucp_datatype_t {
    UCP_DATATYPE_IOV as u64
}

/// The datatype of a scatter-gather list.
pub const fn ucp_dt_make_sgl() -> ucp_datatype_t {
    UCP_DATATYPE_SGL as u64
}

/// One piece of a buffer.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_dt_iov {
    /// First byte.
    pub buffer: *mut c_void,
    /// Number of bytes.
    pub length: usize,
}
/// One piece of a buffer.
pub type ucp_dt_iov_t = ucp_dt_iov;

/// Which fields of `ucp_dt_local_sgl_t` are set.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_dt_local_sgl_field {
    /// `buffers`
    UCP_DT_LOCAL_SGL_FIELD_BUFFERS = 1 << 0,
    /// `lengths`
    UCP_DT_LOCAL_SGL_FIELD_LENGTHS = 1 << 1,
    /// `memhs`
    UCP_DT_LOCAL_SGL_FIELD_MEMHS = 1 << 2,
    /// `counts`
    UCP_DT_LOCAL_SGL_FIELD_COUNTS = 1 << 3,
    /// `strides`
    UCP_DT_LOCAL_SGL_FIELD_STRIDES = 1 << 4,
}
pub use ucp_dt_local_sgl_field::*;

/// Pieces of local memory, in arrays as long as the operation's count. rucp reads the arrays during the call only.
///
/// Other implementations of UCP may read them until the operation has completed. The memory of the pieces and their
/// handles are in use until then.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_dt_local_sgl {
    /// Which fields are set, from `ucp_dt_local_sgl_field`.
    pub field_mask: u64,
    /// First byte of each piece.
    pub buffers: *const *mut c_void,
    /// Bytes of each piece, once.
    pub lengths: *const usize,
    /// Handle of each piece's memory.
    pub memhs: *const ucp_mem_h,
    /// How often each piece repeats; needs `strides`.
    pub counts: *const usize,
    /// Bytes from one repetition to the next.
    pub strides: *const usize,
}
/// Pieces of local memory.
pub type ucp_dt_local_sgl_t = ucp_dt_local_sgl;

/// Which fields of `ucp_dt_remote_sgl_t` are set.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_dt_remote_sgl_field {
    /// `remote_addrs`
    UCP_DT_REMOTE_SGL_FIELD_REMOTE_ADDRS = 1 << 0,
    /// `lengths`
    UCP_DT_REMOTE_SGL_FIELD_LENGTHS = 1 << 1,
    /// `rkeys`
    UCP_DT_REMOTE_SGL_FIELD_RKEYS = 1 << 2,
}
pub use ucp_dt_remote_sgl_field::*;

/// Pieces of remote memory, in arrays as long as the operation's count. rucp reads the arrays during the call only.
///
/// Other implementations of UCP may read them until the operation has completed. The memory of the pieces and their
/// keys are in use until then.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_dt_remote_sgl {
    /// Which fields are set, from `ucp_dt_remote_sgl_field`.
    pub field_mask: u64,
    /// Address of each piece.
    pub remote_addrs: *const u64,
    /// Bytes of each piece, with all its repetitions.
    pub lengths: *const usize,
    /// Key of each piece.
    pub rkeys: *const ucp_rkey_h,
}
/// Pieces of remote memory.
pub type ucp_dt_remote_sgl_t = ucp_dt_remote_sgl;

/// The functions of a datatype that the program packs and unpacks.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_generic_dt_ops {
    /// Begins a send and returns its state.
    pub start_pack: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            buffer: *const c_void,
            count: usize,
        ) -> *mut c_void,
    >,
    /// Begins a receive and returns its state.
    pub start_unpack: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            buffer: *mut c_void,
            count: usize,
        ) -> *mut c_void,
    >,
    /// Bytes of the packed data.
    pub packed_size: Option<unsafe extern "C" fn(state: *mut c_void) -> usize>,
    /// Packs up to `max_length` bytes from `offset` and returns how many.
    pub pack: Option<
        unsafe extern "C" fn(
            state: *mut c_void,
            offset: usize,
            dest: *mut c_void,
            max_length: usize,
        ) -> usize,
    >,
    /// Unpacks `length` bytes that belong at `offset`.
    pub unpack: Option<
        unsafe extern "C" fn(
            state: *mut c_void,
            offset: usize,
            src: *const c_void,
            length: usize,
        ) -> MaybeUninit<ucs_status_t>,
    >,
    /// Ends a send or receive.
    pub finish: Option<unsafe extern "C" fn(state: *mut c_void)>,
}
/// The functions of a datatype that the program packs and unpacks.
pub type ucp_generic_dt_ops_t = ucp_generic_dt_ops;

/// Which fields of `ucp_datatype_attr_t` are set or requested.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_datatype_attr_field {
    /// `packed_size`, requested
    UCP_DATATYPE_ATTR_FIELD_PACKED_SIZE = 1 << 0,
    /// `buffer`, given
    UCP_DATATYPE_ATTR_FIELD_BUFFER = 1 << 1,
    /// `count`, given
    UCP_DATATYPE_ATTR_FIELD_COUNT = 1 << 2,
}
pub use ucp_datatype_attr_field::*;

/// Attributes of a datatype.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_datatype_attr {
    /// Which fields are set or requested, from `ucp_datatype_attr_field`.
    pub field_mask: u64,
    /// Bytes of the packed data.
    pub packed_size: usize,
    /// The buffer to pack.
    pub buffer: *const c_void,
    /// Its number of elements.
    pub count: usize,
}
/// Attributes of a datatype.
pub type ucp_datatype_attr_t = ucp_datatype_attr;

const _: () = {
    assert!(size_of::<ucp_generic_dt_ops>() == 48);
    assert!(size_of::<ucp_dt_local_sgl>() == 48);
    assert!(size_of::<ucp_dt_remote_sgl>() == 32);
    assert!(size_of::<ucp_datatype_attr>() == 32);
};
