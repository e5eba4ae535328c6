//! Checks of what shared memory is made of: System V segments, memory files, `/dev/shm`.

use crate::finding::Finding;
use crate::system;
use std::io;
use ucp::options::Options;
use ucp::sys::memfd::Memfd;
use ucp::sys::sysv::SysvSegment;

/// Bytes of the first part of an inbox, rounded up.
const INBOX_BYTES: usize = 4 << 20;
/// Free bytes of `/dev/shm` below which it is about to be full.
const MIN_FREE_BYTES: u64 = 64 << 20;

/// All of them. `options`: `None` if they are invalid.
pub fn check(options: Option<&Options>) -> Vec<Finding> {
    let named = options.is_some_and(|options| !options.shm.posix_use_proc_link);
    let mut findings = directory(named);
    if !named {
        let segments = SysvSegment::create(INBOX_BYTES, None).err();
        findings.extend(segments.map(|error| segments_refused(&error)));
        let files = Memfd::create(INBOX_BYTES).err();
        findings.extend(files.map(|error| files_refused(&error)));
    }
    findings
}

/// What is known of the reason for a refused system call.
pub fn cause(error: &io::Error) -> String {
    let filtered = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES | libc::ENOSYS) if system::is_filtered() => {
            "; a seccomp filter judges the system calls of this process"
        }
        _ => "",
    };
    format!("{error}{filtered}")
}

fn segments_refused(error: &io::Error) -> Finding {
    let limit = |name| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
        format!("kernel.{name} {}", text.trim())
    };
    let limits = ["shmmax", "shmall", "shmmni"].map(limit).join(", ");
    Finding::slow(
        "sysv-refused",
        format!(
            "a System V segment of {} MiB is refused: {} ({limits})",
            INBOX_BYTES >> 20,
            cause(error)
        ),
        "shared memory is made of files instead, which processes of other PID namespaces cannot open: they are \
         reached by tcp",
        "sysctl -w kernel.shmmax=... kernel.shmall=... kernel.shmmni=4096; allow shmget, shmat and shmctl in the \
         container's seccomp profile",
    )
}

fn files_refused(error: &io::Error) -> Finding {
    Finding::broken(
        "memfd-refused",
        format!("a file in memory is refused: {}", cause(error)),
        "the inbox of a worker has such a file: without it shared memory is not used, or long messages have no \
         buffers",
        "allow memfd_create in the container's seccomp profile; raise ulimit -f and ulimit -n",
    )
}

/// `/dev/shm`. `named`: inboxes are files in it.
fn directory(named: bool) -> Vec<Finding> {
    const PATH: &str = "/dev/shm";
    let change = "docker run --shm-size=1g; mount -o remount,size=50% /dev/shm; remove files that dead programs left";
    let effect = if named {
        "inboxes are files in it (UCX_POSIX_USE_PROC_LINK=n): workers have no shared memory"
    } else {
        "MPI libraries keep their own shared memory in it; rucp keeps only locks there"
    };
    let finding = if named {
        Finding::broken
    } else {
        Finding::slow
    };
    if let Err(error) = tempfile::tempfile_in(PATH) {
        let full = [Some(libc::ENOSPC), Some(libc::EDQUOT)].contains(&error.raw_os_error());
        let id = if full { "shm-full" } else { "shm-unwritable" };
        let found = format!("no file can be made in {PATH}: {error}");
        let change = if full {
            change
        } else {
            "mount a tmpfs on /dev/shm with mode 1777"
        };
        return vec![finding(id, found, effect, change)];
    }
    match free_bytes(c"/dev/shm") {
        Some(free) if free < MIN_FREE_BYTES => {
            let found = format!("{PATH} has {} KiB left", free >> 10);
            vec![finding("shm-full", found, effect, change)]
        }
        _ => Vec::new(),
    }
}

/// Bytes that are free in a file system. `None`: unlimited or not known.
fn free_bytes(path: &std::ffi::CStr) -> Option<u64> {
    // SAFETY: an all-zero statvfs is a valid value.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a terminated path; `found` is valid for writes.
    let known = unsafe { libc::statvfs(path.as_ptr(), &mut found) } == 0;
    (known && found.f_blocks > 0).then(|| found.f_bavail * found.f_frsize)
}
