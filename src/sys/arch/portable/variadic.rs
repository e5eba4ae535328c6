//! Functions with `...` without knowing where an ABI puts what is behind the named arguments: nobody looks there.

use std::ffi::c_void;

/// A `va_list` without arguments: there are none that this processor's functions know of. Zeros are long enough for
/// each ABI.
///
/// # Safety
/// `_list` is NULL.
pub unsafe fn copy_list(_list: *mut c_void) -> [u64; 4] {
    [0; 4]
}

/// Defines an exported function of C's with six named parameters and `...` behind them, which its body has as a
/// `va_list`: `pub unsafe fn name(...) with list { ... }`. Here that is null: what the further arguments are is not
/// known.
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
