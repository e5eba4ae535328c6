//! Libraries that are opened at run time, because a host may not have them: tables of their functions.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// An open library, which is never closed.
#[derive(Clone, Copy, Debug)]
pub struct Library(NonNull<c_void>);

impl Library {
    /// `None`: the host does not have it.
    pub fn open(name: &CStr) -> Option<Library> {
        // SAFETY: a string; the library's initialisers are those that run in every program that is linked to it.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(library).map(Library)
    }

    /// The library, if the process has it already.
    pub fn loaded(name: &CStr) -> Option<Library> {
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NOLOAD;
        // SAFETY: a string; nothing is loaded.
        let library = unsafe { libc::dlopen(name.as_ptr(), flags) };
        NonNull::new(library).map(Library)
    }

    /// Address of a symbol, if the library has it.
    pub fn symbol(self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: an open library, and a string.
        let found = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        (!found.is_null()).then_some(found)
    }
}

/// Defines the table of a library's functions, and a function that fills it: with all of them, or not at all. Those
/// behind a question mark may be missing individually.
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
            /// `library` is the one whose functions the table declares.
            unsafe fn resolve(library: $crate::sys::library::Library) -> Option<$table> {
                use ::std::{ffi::c_void, mem::transmute};
                Some($table {
                    // SAFETY: the library's function of this name, of the type that its manual declares.
                    $($field: unsafe {
                        transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                            library.symbol($name)?
                        )
                    },)+
                    $(
                        // SAFETY: the library's function of this name, of the type that its manual declares.
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
