//! Names the library: programs that were linked against UCX ask the loader for `libucp.so.0`.
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libucp.so.0");
    // A preloaded library is mapped into every process of a job: resolve nothing lazily on the hot path.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
}
