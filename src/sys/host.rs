//! Identity of this process: host, namespaces, user, library path, limits; random numbers.

use crate::sys::clock;
use crate::sys::sync::OnceLock;
use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Identifiers by which two processes decide whether they can share memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostId {
    /// Hash of the kernel's boot id: equal on one host between two reboots, and nowhere else.
    pub host: u64,
    /// Inode of the PID namespace: pids are comparable only where it is equal.
    pub pid_ns: u32,
    /// Inode of the IPC namespace: System V numbers are comparable only where it is equal.
    pub ipc_ns: u32,
    /// Inode of the network namespace: the loopback address names the same host only where it is equal.
    pub net_ns: u32,
    /// Process id in that namespace.
    pub pid: u32,
}

/// This process. The pid is read each time (a fork changes it), the rest once.
pub fn place() -> HostId {
    static FIXED: OnceLock<(u64, u32, u32, u32)> = OnceLock::new();
    let &(host, pid_ns, ipc_ns, net_ns) = FIXED.get_or_init(|| {
        (
            host_hash(),
            namespace("pid"),
            namespace("ipc"),
            namespace("net"),
        )
    });
    HostId {
        host,
        pid_ns,
        ipc_ns,
        net_ns,
        pid: std::process::id(),
    }
}

/// Effective user id of this process.
pub fn user() -> u32 {
    geteuid().as_raw()
}

/// Whether the address space of this process is limited (`ulimit -v`).
pub fn address_space_is_limited() -> bool {
    limit(libc::RLIMIT_AS).is_some()
}

/// Whether the address space of this process was limited a few milliseconds ago, or is: for many calls in a row.
pub fn address_space_was_limited() -> bool {
    /// Coarse milliseconds of the last query, and in bit 0 its result.
    static KNOWN: AtomicU64 = AtomicU64::new(0);
    let now = clock::coarse_ms() << 1;
    // Relaxed: one word; no other data are published by it.
    let known = KNOWN.load(Ordering::Relaxed);
    if known & !1 == now {
        return known & 1 != 0;
    }
    let is_limited = address_space_is_limited();
    KNOWN.store(now | u64::from(is_limited), Ordering::Relaxed);
    is_limited
}

/// Longest file that this process may write (`ulimit -f`), bytes, if that is limited.
pub fn max_file_size() -> Option<u64> {
    limit(libc::RLIMIT_FSIZE)
}

/// Limit of a resource (`RLIMIT_*`); `None` for no limit.
pub fn limit(resource: libc::__rlimit_resource_t) -> Option<u64> {
    soft_limit(resource).filter(|&limit| limit != libc::RLIM_INFINITY)
}

/// Limit of a resource as `getrlimit` returns it, `RLIM_INFINITY` included; `None` on an error.
pub fn soft_limit(resource: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // Not by rustix, which does not check for an error: a filter of system calls may cause one.
    // SAFETY: `limit` is valid for writes.
    let known = unsafe { libc::getrlimit(resource, &raw mut limit) } == 0;
    known.then_some(limit.rlim_cur)
}

fn host_hash() -> u64 {
    let id = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    // FNV-1a: the boot id is random already, its 36 characters only need folding to 64 bits.
    id.iter().fold(0xcbf2_9ce4_8422_2325, |h, &b| {
        (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn namespace(kind: &str) -> u32 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(format!("/proc/self/ns/{kind}")).map_or(0, |m| m.ino() as u32)
}

/// A random number from the kernel, never 0 (0 means "none" in identifiers).
pub fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    loop {
        let got = getrandom(&mut bytes, GetRandomFlags::empty());
        let value = u64::from_ne_bytes(bytes);
        if got == Ok(bytes.len()) && value != 0 {
            return value;
        }
    }
}

/// Path of the file that this code was loaded from; `?` when the loader does not know.
pub fn library_path() -> String {
    // SAFETY: an all-zero Dl_info is a valid value (null pointers).
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is that of a function in this library; `info` is valid for writes.
    let found = unsafe { libc::dladdr(library_path as *const libc::c_void, &mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return "?".to_owned();
    }
    // SAFETY: dladdr returned a NUL-terminated string owned by the loader.
    unsafe { CStr::from_ptr(info.dli_fname) }
        .to_string_lossy()
        .into_owned()
}

/// Name of this host, for logs.
pub fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "?".to_owned(), |s| s.trim_end().to_owned())
}
