//! Libraries that are opened at run time, because a host may be without them: tables of their functions.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// One that is open, and stays so.
#[derive(Clone, Copy, Debug)]
pub struct Library(NonNull<c_void>);

impl Library {
    /// `None`: the host does not have it.
    pub fn open(name: &CStr) -> Option<Library> {
        // SAFETY: a string; what a library does when it is loaded is what every program that is linked to it has it do.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(library).map(Library)
    }

    /// Where something of it is, if it has that.
    pub fn symbol(self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: an open library, and a string.
        let found = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        (!found.is_null()).then_some(found)
    }
}

/// Writes the table of functions that are called, and how it is filled: all of them, or none. Those behind a question
/// mark may be missing each by itself.
macro_rules! functions {
    (
        $(#[$about:meta])* pub struct $table:ident;
        $($field:ident = $name:literal: fn($($argument:ty),*) $(-> $result:ty)?;)+
        $(? $maybe:ident = $other:literal: fn($($given:ty),*) -> $answer:ty;)*
    ) => {
        $(#[$about])*
        pub struct $table {
            $(pub $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)+
            $(pub $maybe: Option<unsafe extern "C" fn($($given),*) -> $answer>,)*
        }

        impl $table {
            /// # Safety
            /// `library` is the one that this is the table of.
            unsafe fn resolve(library: $crate::sys::library::Library) -> Option<$table> {
                use ::std::{ffi::c_void, mem::transmute};
                Some($table {
                    // SAFETY: the library's own function of this name, whose type its manual tells.
                    $($field: unsafe {
                        transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                            library.symbol($name)?
                        )
                    },)+
                    $(
                        // SAFETY: as above.
                        $maybe: library.symbol($other).map(|f| unsafe {
                            transmute::<*mut c_void, unsafe extern "C" fn($($given),*) -> $answer>(f)
                        }),
                    )*
                })
            }
        }
    };
}

pub(crate) use functions;
