//! What becomes visible at the target behind the data of a put.

use super::{from_raw, ucp_rkey_h};
use std::mem::MaybeUninit;

/// What a signal does at the target.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucpx_signal_op {
    /// Adds an entry to a completion queue of the worker that the endpoint leads to.
    UCPX_SIGNAL_OP_NOTIFY = 0,
    /// Stores the value in the flag.
    UCPX_SIGNAL_OP_SET = 1,
    /// Adds the value to the flag.
    UCPX_SIGNAL_OP_ADD = 2,
}
pub use ucpx_signal_op::*;
from_raw!(ucpx_signal_op: UCPX_SIGNAL_OP_NOTIFY, UCPX_SIGNAL_OP_SET, UCPX_SIGNAL_OP_ADD);
/// What a signal does at the target.
pub type ucpx_signal_op_t = ucpx_signal_op;

/// Which fields of `ucpx_signal_t` are set.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucpx_signal_field {
    /// `op`
    UCPX_SIGNAL_FIELD_OP = 1 << 0,
    /// `cq_id`
    UCPX_SIGNAL_FIELD_CQ_ID = 1 << 1,
    /// `value`
    UCPX_SIGNAL_FIELD_VALUE = 1 << 2,
    /// `flag_addr`
    UCPX_SIGNAL_FIELD_FLAG_ADDR = 1 << 3,
    /// `flag_rkey`
    UCPX_SIGNAL_FIELD_FLAG_RKEY = 1 << 4,
}
pub use ucpx_signal_field::*;

/// A signal.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucpx_signal {
    /// Which fields are set, from `ucpx_signal_field`.
    pub field_mask: u64,
    /// What it does; `UCPX_SIGNAL_OP_NOTIFY` if it is not given.
    pub op: MaybeUninit<ucpx_signal_op_t>,
    /// Which completion queue of the target; 0 if it is not given.
    pub cq_id: u8,
    /// Value of the entry, or operand; 0 if it is not given. Small ones of `UCPX_SIGNAL_OP_NOTIFY` are cheapest.
    pub value: u64,
    /// Where the flag is: 8 bytes, aligned to as many.
    pub flag_addr: u64,
    /// The key for it; that of the data if it is not given.
    pub flag_rkey: ucp_rkey_h,
}
/// A signal.
pub type ucpx_signal_t = ucpx_signal;

const _: () = assert!(size_of::<ucpx_signal>() == 40);
