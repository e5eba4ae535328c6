//! Objects that the dynamic loader has loaded: lookup by address and name, and whether one may be unloaded.

use super::va_range::VaRange;
use std::ffi::{CStr, CString, c_int, c_void};

/// A loaded object, as `dl_iterate_phdr` describes it.
struct ObjectInfo<'a> {
    name: &'a CStr,
    base: usize,
    headers: &'a [libc::Elf64_Phdr],
}

impl ObjectInfo<'_> {
    fn maps_any_of(&self, extent: VaRange) -> bool {
        let loaded = |header: &&libc::Elf64_Phdr| header.p_type == libc::PT_LOAD;
        self.headers.iter().filter(loaded).any(|header| {
            let start = self.base.wrapping_add(header.p_vaddr as usize);
            VaRange::new(start, header.p_memsz as usize).overlaps(extent)
        })
    }
}

/// Calls `each` for all objects, in the order in which they were loaded, until it returns false. The loader's lock is
/// held.
fn for_each(mut each: impl FnMut(ObjectInfo<'_>) -> bool) {
    unsafe extern "C" fn visit<F: FnMut(ObjectInfo<'_>) -> bool>(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        each: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a valid description, and the pointer that `dl_iterate_phdr` was given below.
        let (info, each) = unsafe { (&*info, &mut *each.cast::<F>()) };
        let name = if info.dlpi_name.is_null() {
            c""
        } else {
            // SAFETY: a terminated name, as long as the object is loaded.
            unsafe { CStr::from_ptr(info.dlpi_name) }
        };
        let headers = if info.dlpi_phdr.is_null() {
            &[]
        } else {
            // SAFETY: so many headers, as long as the object is loaded.
            unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize) }
        };
        let base = info.dlpi_addr as usize;
        let goes_on = each(ObjectInfo {
            name,
            base,
            headers,
        });
        c_int::from(!goes_on)
    }
    fn visitor<F: FnMut(ObjectInfo<'_>) -> bool>(
        _: &F,
    ) -> unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int {
        visit::<F>
    }
    // SAFETY: the callback is of the type of `each`, which lives until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(visitor(&each)), (&raw mut each).cast()) };
}

/// Whether any of these addresses belong to a library that `dlclose` may unmap: the loader does so by itself, without a
/// call of a hooked function. Objects that were loaded with the program are never unmapped: in the loader's list these
/// are all up to the loader itself.
pub fn may_be_closed(extent: VaRange) -> bool {
    // SAFETY: no arguments but a constant.
    let loader = unsafe { libc::getauxval(libc::AT_BASE) } as usize;
    let (mut stays, mut found) = (true, false);
    for_each(|object| {
        found = !stays && object.maps_any_of(extent);
        // The program is the first. Without an interpreter it is the only object that is known to stay.
        stays = stays && loader != 0 && object.base != loader;
        !found
    });
    found
}

/// The path of the object that holds this address; `None` for the program itself and for an address of no object.
pub fn library_of(addr: usize) -> Option<CString> {
    let (mut first, mut path) = (true, None);
    for_each(|object| {
        let holds = object.maps_any_of(VaRange::new(addr, 1));
        if holds && !first {
            path = Some(object.name.to_owned());
        }
        first = false;
        !holds
    });
    path
}

/// Whether the object with this address is the program itself, and not a library.
pub fn is_program(addr: usize) -> bool {
    let mut holds = false;
    for_each(|object| {
        holds = object.maps_any_of(VaRange::new(addr, 1));
        false
    });
    holds
}

/// The paths of the objects whose file name has this prefix.
pub fn named(prefix: &str) -> Vec<CString> {
    let mut found = Vec::new();
    for_each(|object| {
        let path = object.name.to_bytes();
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        if name.starts_with(prefix.as_bytes()) {
            found.push(object.name.to_owned());
        }
        true
    });
    found
}

/// An open library that is never closed.
pub struct LoadedObject(*mut c_void);

impl LoadedObject {
    /// Opens the library with this path or name for good. `None` if it is not loaded yet.
    pub fn keep(path: &CStr) -> Option<Self> {
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
        // SAFETY: a terminated path; the initialisers of a loaded library do not run again.
        let handle = unsafe { libc::dlopen(path.as_ptr(), flags) };
        (!handle.is_null()).then_some(LoadedObject(handle))
    }

    /// A symbol of it or of its dependencies; 0 where there is none.
    pub fn symbol(&self, name: &CStr) -> usize {
        // SAFETY: an open handle and a terminated name.
        unsafe { libc::dlsym(self.0, name.as_ptr()) as usize }
    }
}

/// A symbol in the global scope; 0 where there is none.
pub fn global_symbol(name: &CStr) -> usize {
    // SAFETY: a terminated name.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) as usize }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_the_program_stay_loaded() {
        static MINE: u8 = 1;
        let here = &raw const MINE as usize;
        assert!(!may_be_closed(VaRange::new(here, 1)));
        assert!(!may_be_closed(VaRange::new(here, 1 << 20)));
        assert!(is_program(here) && library_of(here).is_none());
        let heap = Box::new([0u8; 64]);
        assert!(!may_be_closed(VaRange::new(heap.as_ptr() as usize, 64)));
        let libc = LoadedObject::keep(c"libc.so.6").expect("a dynamic program");
        let inside = libc.symbol(c"__curbrk");
        assert!(inside != 0 && !may_be_closed(VaRange::new(inside, 8)));
        assert!(!is_program(inside));
        assert!(library_of(inside).is_some_and(|path| path.to_bytes().ends_with(b"libc.so.6")));
        assert_eq!(named("libc.so").len(), 1);
    }

    #[test]
    fn objects_opened_later_may_be_unloaded() {
        // Not a dependency of a test program, but part of every C library.
        let path = c"libBrokenLocale.so.1";
        // SAFETY: the library's initialisers have no effect on the test.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null());
        let mut extent = None;
        for_each(|object| {
            if object.name.to_bytes().ends_with(path.to_bytes()) {
                extent = Some(VaRange::new(object.base + 64, 1));
            }
            true
        });
        assert!(may_be_closed(extent.expect("it is loaded")));
        // SAFETY: opened above.
        unsafe { libc::dlclose(handle) };
        assert!(!may_be_closed(extent.expect("it was")));
    }
}
