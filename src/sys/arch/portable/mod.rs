//! Any processor.

pub mod code;
pub mod copy;
mod variadic;

pub use variadic::copy_list;
pub(crate) use variadic::variadic;
