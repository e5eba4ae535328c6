//! Builds the crate `ucx1-sys` against an installed library, which `UCX_PREFIX` names.
//!
//! The published build script, which is unchanged beside this one, builds UCX from the source in the crate unless the
//! archives and headers are where it would install them. Links to the prefix are put there.

use std::env;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

mod published {
    include!("published.rs");

    pub fn run() {
        main();
    }
}

fn main() {
    println!("cargo:rerun-if-env-changed=UCX_PREFIX");
    let variable = |name| PathBuf::from(env::var_os(name).unwrap_or_else(|| panic!("{name} is not set")));
    let (prefix, out) = (variable("UCX_PREFIX"), variable("OUT_DIR"));
    for archive in ["libucp.a", "libuct.a", "libucs.a", "libucm.a"] {
        let archive = prefix.join("lib").join(archive);
        assert!(archive.exists(), "{} is missing", archive.display());
    }
    for directory in ["include", "lib"] {
        let link = out.join(directory);
        match std::fs::remove_file(&link) {
            Err(error) if error.kind() != ErrorKind::NotFound => panic!("{}: {error}", link.display()),
            _ => symlink(prefix.join(directory), &link).expect("OUT_DIR can be written"),
        }
    }
    published::run();
}
