//! Identity of this process: host, namespaces, user, library path, limits; random numbers.

use crate::sys::clock;
use crate::sys::sync::OnceLock;
use fnv::FnvHasher;
use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};
use std::ffi::CStr;
use std::hash::Hasher;
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
}

/// This process. Read once.
pub fn place() -> HostId {
    static PLACE: OnceLock<HostId> = OnceLock::new();
    *PLACE.get_or_init(|| HostId {
        host: host_hash(),
        pid_ns: namespace("pid"),
        ipc_ns: namespace("ipc"),
        net_ns: namespace("net"),
    })
}

/// Effective user id of this process.
pub fn user() -> u32 {
    geteuid().as_raw()
}

/// Whether the address space of this process is limited (`ulimit -v`).
pub fn address_space_is_limited() -> bool {
    limit(libc::RLIMIT_AS).is_some()
}

/// Whether the address space of this process was limited a few milliseconds ago, or is: for many queries in a row. Each
/// place that asks has its own, so that its first query is up to date.
pub struct RecentLimit {
    /// Coarse milliseconds of the last query, and in bit 0 its result.
    known: AtomicU64,
}

impl RecentLimit {
    #[expect(clippy::new_without_default, reason = "it is a static variable")]
    pub const fn new() -> Self {
        Self {
            known: AtomicU64::new(0),
        }
    }

    /// [`address_space_is_limited`], as the last query of the same few milliseconds has found.
    pub fn is_limited(&self) -> bool {
        let now = clock::coarse_ms() << 1;
        // Relaxed: one word; no other data are published by it.
        let known = self.known.load(Ordering::Relaxed);
        if known & !1 == now {
            return known & 1 != 0;
        }
        let is_limited = address_space_is_limited();
        let known = now | u64::from(is_limited);
        self.known.store(known, Ordering::Relaxed);
        is_limited
    }
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
    let mut hasher = FnvHasher::default();
    hasher.write(&id);
    hasher.finish()
}

/// The number of a namespace of this process. Without /proc it is not known: such processes count as of one namespace,
/// whose number no real one has.
fn namespace(kind: &str) -> u32 {
    use std::os::unix::fs::MetadataExt;
    const UNKNOWN: u32 = 1;
    std::fs::metadata(format!("/proc/self/ns/{kind}")).map_or(UNKNOWN, |m| m.ino() as u32)
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
