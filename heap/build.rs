//! Link options of the library.

fn main() {
    // Its constructor runs before those of all other libraries: handlers of forks are called in the order in which they
    // were registered.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    println!("cargo:rerun-if-changed=build.rs");
}
