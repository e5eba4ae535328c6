//! The machine: everything that asks the kernel or the processor, nothing that knows a message.

pub mod loaded_from;
pub mod log;
