//! Another UCX in this process: the libraries of a genuine UCX that are loaded beside this one.
//!
//! A preloaded library comes first in the search for every symbol. The functions of libuct that it has only so that
//! programs load would hide those of a genuine libuct from programs that use it. Therefore they pass each call on. The
//! log is common to both: a genuine libucs hands its lines to the handlers of this library.

use super::dl_objects::{self, LoadedObject};
use std::ffi::{CStr, CString, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function that no other library has: with it an object is this library, or a copy of it.
const OURS: &CStr = c"ucpx_cq_create";

/// The loaded libraries of another UCX whose file name begins like this, as the loader lists them. They stay loaded.
pub fn libraries(prefix: &str) -> impl Iterator<Item = (CString, LoadedObject)> {
    let named = dl_objects::named(prefix).into_iter();
    let kept = named.filter_map(|path| Some((path.clone(), LoadedObject::keep(&path)?)));
    kept.filter(|(_, object)| object.symbol(OURS) == 0)
}

/// The paths of the libucp and libuct of another UCX.
pub fn paths() -> Vec<String> {
    let all = ["libucp", "libuct"].into_iter().flat_map(libraries);
    all.map(|(path, _)| path.to_string_lossy().into_owned())
        .collect()
}

/// Whether the function at this address is the log handler of another UCX that prints.
pub fn prints(handler: usize) -> bool {
    libraries("libucs").any(|(_, libucs)| libucs.symbol(c"ucs_log_default_handler") == handler)
}

/// A function of another UCX which this library hides by one of the same name.
pub struct HiddenFn {
    name: &'static CStr,
    /// The beginning of the file name of the library that has it. Packages may add a hash to it.
    library: &'static str,
    /// NULL: not found yet. A library that was found stays loaded.
    found: AtomicPtr<c_void>,
}

impl HiddenFn {
    pub const fn new(name: &'static CStr, library: &'static str) -> Self {
        HiddenFn {
            name,
            library,
            found: AtomicPtr::new(null_mut()),
        }
    }

    /// Its address. `None`: no other UCX in this process has it, up to now.
    pub fn get(&self) -> Option<NonNull<c_void>> {
        // Relaxed: an address of code that was there before it was found; pairs with the store below.
        if let Some(found) = NonNull::new(self.found.load(Ordering::Relaxed)) {
            return Some(found);
        }
        let found = self.find()?;
        // Relaxed: as said.
        self.found.store(found.as_ptr(), Ordering::Relaxed);
        Some(found)
    }

    /// The next one in the order of the loader's search, as if this library were not there; otherwise that of a library
    /// which was opened for itself.
    fn find(&self) -> Option<NonNull<c_void>> {
        // SAFETY: a terminated name.
        let next = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if let Some(next) = NonNull::new(next) {
            // It stays loaded. The program itself does anyway.
            if let Some(path) = dl_objects::library_of(next.as_ptr().addr()) {
                LoadedObject::keep(&path)?;
            }
            return Some(next);
        }
        let mut others = libraries(self.library);
        others.find_map(|(_, object)| {
            NonNull::new(std::ptr::with_exposed_provenance_mut(
                object.symbol(self.name),
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_another_library_is_found_and_kept() {
        // Not this library, which has no such function, but the C library.
        let hidden = HiddenFn::new(c"getpid", "libc");
        assert_eq!(hidden.get(), hidden.get());
        assert!(hidden.get().is_some());
        let nowhere = HiddenFn::new(c"rucp_no_such_function", "libc");
        assert!(nowhere.get().is_none());
    }
}
