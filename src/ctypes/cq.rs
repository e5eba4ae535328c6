//! Completion queues: parameters and entries.

use super::ucs_status_t;
use std::ffi::c_void;

/// A completion queue of a worker.
/// cbindgen:no-export
#[repr(C)]
pub struct ucpx_cq {
    _private: [u8; 0],
}
/// A completion queue of a worker.
pub type ucpx_cq_h = *mut ucpx_cq;

/// Which fields of `ucpx_cq_params_t` are set.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucpx_cq_params_field {
    /// `id`
    UCPX_CQ_PARAM_FIELD_ID = 1 << 0,
}
pub use ucpx_cq_params_field::*;

/// Parameters of `ucpx_cq_create`.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucpx_cq_params {
    /// Which fields are set, from `ucpx_cq_params_field`.
    pub field_mask: u64,
    /// The number that signals name; 0 if it is not given.
    pub id: u8,
}
/// Parameters of `ucpx_cq_create`.
pub type ucpx_cq_params_t = ucpx_cq_params;

/// The kind of an entry.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucpx_cq_entry_kind {
    /// A signal has arrived: the data in front of it are visible.
    UCPX_CQ_ENTRY_SIGNAL = 0,
    /// An operation of this process is complete: its callback is one of `ucpx_cq_push_*`.
    UCPX_CQ_ENTRY_COMPLETION = 1,
}
pub use ucpx_cq_entry_kind::*;
/// The kind of an entry.
pub type ucpx_cq_entry_kind_t = ucpx_cq_entry_kind;

/// Fields of an entry that not every transport supplies.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucpx_cq_entry_field {
    /// `address`
    UCPX_CQ_ENTRY_FIELD_ADDRESS = 1 << 0,
}
pub use ucpx_cq_entry_field::*;

/// An entry of a completion queue. Fields that do not belong to its kind are 0.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ucpx_cq_entry {
    /// The kind of the entry.
    pub kind: ucpx_cq_entry_kind_t,
    /// Status of an operation; `UCS_OK` for a signal.
    pub status: ucs_status_t,
    /// Fields that are set of those in `ucpx_cq_entry_field`.
    pub field_mask: u64,
    /// The signal's value; tag of a received message.
    pub value: u64,
    /// Bytes of data in front of the signal; bytes received.
    pub length: usize,
    /// Address of the signal's data in this process.
    pub address: u64,
    /// The worker that the signal comes from: `worker_uid` of `ucp_worker_address_query`.
    pub peer_uid: u64,
    /// The operation's request, to be freed by its user.
    pub request: *mut c_void,
    /// `user_data` of the operation.
    pub user_data: *mut c_void,
}
/// An entry of a completion queue.
pub type ucpx_cq_entry_t = ucpx_cq_entry;

const _: () = assert!(size_of::<ucpx_cq_entry>() == 64);
