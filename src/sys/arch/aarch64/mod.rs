//! AArch64: code of its own, for the rest what is portable.

pub mod code;
#[path = "../portable/copy.rs"]
pub mod copy;
#[path = "../portable/variadic.rs"]
mod variadic;

pub use variadic::copy_list;
pub(crate) use variadic::variadic;
