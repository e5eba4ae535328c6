//! Where this library was loaded from: its installation's configuration is found from there.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The directory of the file that holds this code, if the loader has it.
pub fn directory() -> Option<PathBuf> {
    let inside = directory as fn() -> Option<PathBuf> as *const libc::c_void;
    // SAFETY: Dl_info is plain data, for which zeros are valid.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is of our code, the pointer of a local Dl_info.
    if unsafe { libc::dladdr(inside, &mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader keeps the name, which ends with a zero, as long as the library is loaded.
    let file = unsafe { CStr::from_ptr(info.dli_fname) };
    Path::new(OsStr::from_bytes(file.to_bytes()))
        .parent()
        .map(Path::to_owned)
}

/// Sets the directory in which the options search their file. To be called before they are first read.
pub fn set_library_dir() {
    if let Some(directory) = directory() {
        crate::options::set_library_dir(directory);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_code_is_in_the_test_program() {
        let exe = std::env::current_exe().expect("a running program has a path");
        let directory = super::directory().expect("the loader knows the program");
        assert_eq!(
            directory.canonicalize().ok(),
            exe.parent().and_then(|dir| dir.canonicalize().ok())
        );
    }
}
