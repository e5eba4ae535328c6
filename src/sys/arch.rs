//! The processor: all that is asked of one and that the language does not say. Nothing else in the library knows which
//! it is.
//!
//! A processor is a directory with
//!
//! - `copy`: hints that a line is about to be read or written, and a copy that gives them, where it has one;
//! - `code`: a jump at the entry of a function, for the hooks of [`mem_monitor`](super::mem_monitor);
//! - `variadic`: a function of C's with `...`, which stable Rust cannot define.
//!
//! What one lacks it takes from `portable`, which is Rust alone and does what can be done without: it gives no hints,
//! changes no code and prints formats as they are. Loom has it, and so has everybody else with the feature `portable`:
//! tests run on it on any processor. What other processes see does not depend on that choice, so [`OwnLine`] goes by
//! what the processor is.

#[cfg_attr(
    all(target_arch = "x86_64", not(any(feature = "portable", loom))),
    path = "arch/x86_64/mod.rs"
)]
#[cfg_attr(
    all(target_arch = "aarch64", not(any(feature = "portable", loom))),
    path = "arch/aarch64/mod.rs"
)]
#[cfg_attr(
    any(
        feature = "portable",
        loom,
        not(any(target_arch = "x86_64", target_arch = "aarch64"))
    ),
    path = "arch/portable/mod.rs"
)]
mod chosen;

pub(crate) use chosen::variadic;
pub use chosen::*;

/// In cache lines of its own: who writes it does not take from others what they use. x86-64 fetches lines of 64 bytes
/// in pairs; those of A64FX are 256 bytes long.
#[repr(C)]
#[cfg_attr(target_arch = "aarch64", repr(align(256)))]
#[cfg_attr(not(target_arch = "aarch64"), repr(align(128)))]
pub struct OwnLine<T>(pub T);
