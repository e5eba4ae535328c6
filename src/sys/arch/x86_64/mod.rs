//! x86-64.

pub mod code;
pub mod copy;
mod variadic;

pub(crate) use variadic::variadic;
pub use variadic::{SavedRegisters, StackArguments, VaList, copy_list};
