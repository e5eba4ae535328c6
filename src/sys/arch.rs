//! Code that depends on the processor: everything that the language does not provide. No other module depends on it.
//!
//! A processor is a directory with
//!
//! - `copy`: prefetch hints, and a copy that uses them, where the processor has one;
//! - `code`: a jump at the entry of a function, for the hooks of [`mem_monitor`](super::mem_monitor);
//! - `variadic`: a C function with `...`, which stable Rust cannot define.
//!
//! What a processor lacks is taken from `portable`, which is plain Rust: it gives no hints, changes no code and prints
//! formats as they are. Loom builds use it, and so do builds with the feature `portable`: tests run with it on any
//! processor. The layout of shared memory does not depend on that choice, so [`OwnLine`] depends on the processor
//! itself.

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

/// Number of the system call shmat. That of ppc64le, which libc has no name for, is the one of Linux 5.1.
#[cfg(target_arch = "powerpc64")]
pub const SYS_SHMAT: libc::c_long = 397;
#[cfg(not(target_arch = "powerpc64"))]
pub const SYS_SHMAT: libc::c_long = libc::SYS_shmat;

/// Number of the system call shmdt. That of ppc64le, which libc has no name for, is the one of Linux 5.1.
#[cfg(target_arch = "powerpc64")]
pub const SYS_SHMDT: libc::c_long = 398;
#[cfg(not(target_arch = "powerpc64"))]
pub const SYS_SHMDT: libc::c_long = libc::SYS_shmdt;

/// A value in cache lines of its own: writes to it do not invalidate the lines of other data. x86-64 fetches lines of
/// 64 bytes in pairs; those of A64FX are 256 bytes long.
#[repr(C)]
#[cfg_attr(target_arch = "aarch64", repr(align(256)))]
#[cfg_attr(not(target_arch = "aarch64"), repr(align(128)))]
pub struct OwnLine<T>(pub T);

/// A value in whole pages of its own: pages of up to 64 KiB on arm64 and on ppc64le, of 4 KiB elsewhere.
#[repr(C)]
#[cfg_attr(
    any(target_arch = "aarch64", target_arch = "powerpc64"),
    repr(align(65536))
)]
#[cfg_attr(
    not(any(target_arch = "aarch64", target_arch = "powerpc64")),
    repr(align(4096))
)]
pub struct OwnPages<T>(pub T);
