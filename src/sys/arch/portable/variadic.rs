//! C functions with `...`, without access to the arguments behind the named ones, whose location depends on the ABI.

use std::ffi::c_void;

/// A `va_list` without arguments, of zeros: long enough for each ABI.
///
/// # Safety
/// `_list` is NULL.
pub unsafe fn copy_list(_list: *mut c_void) -> [u64; 4] {
    [0; 4]
}

/// Defines an exported C function with six named parameters and `...`, which its body gets as a `va_list`: `pub unsafe
/// fn name(...) with list { ... }`. Here that is null.
macro_rules! variadic {
    (
        $(#[$about:meta])*
        pub unsafe fn $name:ident($($a:ident: $t:ty),* $(,)?) with $list:ident $body:block
    ) => {
        $(#[$about])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($a: $t),*) {
            let $list = std::ptr::null_mut();
            $body
        }
    };
}

pub(crate) use variadic;
