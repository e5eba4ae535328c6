//! The exported functions: handles to references, one call, one conversion. No logic.
#![allow(clippy::not_unsafe_ptr_arg_deref)]

pub mod address;
pub mod am;
pub mod amo;
pub mod compat_am;
pub mod compat_amo;
pub mod compat_endpoint;
pub mod compat_params;
pub mod compat_rma;
pub mod compat_stream;
pub mod compat_tag;
pub mod compat_worker;
pub mod config;
pub mod context;
pub mod cq;
pub mod datatype;
pub mod device;
pub mod endpoint;
pub mod lib_info;
pub mod listener;
pub mod memory;
pub mod output;
pub mod request;
pub mod rkey;
pub mod rma;
pub mod signal;
pub mod socket_address;
pub mod stream;
pub mod tag;
pub mod ucm;
pub mod ucs;
pub mod ucs_log;
pub mod ucs_memtype;
pub mod uct;
pub mod wakeup;
pub mod worker;
