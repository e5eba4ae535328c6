//! AArch64: code of its own, for the rest what is portable.

pub mod code;
#[path = "../portable/copy.rs"]
pub mod copy;
mod variadic;

pub(crate) use variadic::variadic;
pub use variadic::{SavedRegisters, VaList, copy_list};
