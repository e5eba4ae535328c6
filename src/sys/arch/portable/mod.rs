//! Any processor.

pub mod code;
pub mod copy;
mod variadic;

pub(crate) use variadic::variadic;
