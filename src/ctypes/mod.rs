//! Types that C sees: the types, masks, enums, status codes and callbacks of UCX 1.22's public headers.
//!
//! Names are C's names. `include/` is generated from these files by `scripts/gen-headers`, one or more
//! files a header, and each is read alone: a file names the types of another only by their C typedef
//! (`ucs_status_t`, `ucp_ep_h`), never by their tag.
//!
//! An enum that C passes (an argument, a field under a mask bit, a callback's result) is a `MaybeUninit<E>`, because C
//! may pass any number, or an uninitialised one; [`enum_raw`] and [`status_raw`] read it.
//! Enums in attribute structs are plain: the library only writes them, through raw pointers.
#![allow(non_camel_case_types, non_snake_case)]

use std::mem::MaybeUninit;

mod am;
mod atomic;
mod callback;
mod compat;
mod config_types;
mod context;
mod cpu_set;
mod cq;
mod datatype;
mod device;
mod endpoint;
mod handle;
mod listener;
mod log;
mod memory;
mod memory_type;
mod memtype_cache;
mod request;
mod signal;
mod status;
mod stream;
mod thread_mode;
mod topo;
mod ucm;
mod uct;
mod version;
mod wakeup;
mod worker;

pub use am::*;
pub use atomic::*;
pub use callback::*;
pub use compat::*;
pub use config_types::*;
pub use context::*;
pub use cpu_set::*;
pub use cq::*;
pub use datatype::*;
pub use device::*;
pub use endpoint::*;
pub use handle::*;
pub use listener::*;
pub use log::*;
pub use memory::*;
pub use memory_type::*;
pub use memtype_cache::*;
pub use request::*;
pub use signal::*;
pub use status::*;
pub use stream::*;
pub use thread_mode::*;
pub use topo::*;
pub use ucm::*;
pub use uct::*;
pub use version::*;
pub use wakeup::*;
pub use worker::*;

/// A `va_list` as the argument of a function, which is an address on the supported processors.
pub type va_list = *mut std::ffi::c_void;

/// The number in an enum field, argument or result from C.
///
/// # Safety
/// `value` must be initialised: for a field, its bit in the struct's mask is set.
pub unsafe fn enum_raw<E: Copy>(value: MaybeUninit<E>) -> u32 {
    const { assert!(size_of::<E>() == size_of::<u32>()) };
    // SAFETY: the sizes agree, the caller promises initialised bytes, and every u32 is a valid u32.
    unsafe { std::mem::transmute_copy(&value) }
}

/// The status code in a status argument or result from C.
///
/// # Safety
/// `value` must be initialised.
pub unsafe fn status_raw(value: MaybeUninit<ucs_status_t>) -> i8 {
    // SAFETY: both are one byte, the caller promises an initialised one, and every i8 is a valid i8.
    unsafe { std::mem::transmute::<MaybeUninit<ucs_status_t>, i8>(value) }
}

/// Gives an enum `from_raw`, which turns a number from C into the variant, if there is one.
macro_rules! from_raw {
    ($name:ident: $($variant:ident),+ $(,)?) => {
        impl $name {
            /// The variant with this number, `None` when C sent a number that is not one.
            pub const fn from_raw(raw: u32) -> Option<Self> {
                match raw {
                    $(x if x == Self::$variant as u32 => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}
use from_raw;
