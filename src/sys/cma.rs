//! Cross-memory attach: one process copies from or to the memory of another (`process_vm_*`).

use std::io;
use std::sync::Once;

/// One piece of memory: address and bytes. The address may be another process's.
#[derive(Clone, Copy)]
pub struct Span {
    pub addr: u64,
    pub len: usize,
}

impl Span {
    fn iov(self) -> libc::iovec {
        libc::iovec {
            iov_base: self.addr as *mut libc::c_void,
            iov_len: self.len,
        }
    }
}

/// Copies from `remote` of process `pid` to `local` of this one; returns the bytes copied, which
/// can be fewer than asked when the remote range ends.
///
/// # Errors
/// `EPERM` (no right to attach: containers, Yama, another user), `ESRCH` (the process is gone),
/// `EFAULT` (an address is not mapped), `ENOSYS` (seccomp).
///
/// # Safety
/// `local` must be writable memory of this process.
pub unsafe fn read(pid: u32, local: Span, remote: Span) -> io::Result<usize> {
    // SAFETY: the caller vouches for `local`; the kernel checks `remote` in the other process.
    count(unsafe { libc::process_vm_readv(pid as i32, &local.iov(), 1, &remote.iov(), 1, 0) })
}

/// Copies from `local` of this process to `remote` of process `pid`; else as [`read`].
///
/// # Safety
/// `local` must be readable memory of this process.
pub unsafe fn write(pid: u32, local: Span, remote: Span) -> io::Result<usize> {
    // SAFETY: as in `read`.
    count(unsafe { libc::process_vm_writev(pid as i32, &local.iov(), 1, &remote.iov(), 1, 0) })
}

fn count(ret: isize) -> io::Result<usize> {
    if ret < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(ret as usize)
    }
}

/// Where Yama restricts attaching to descendants (`ptrace_scope` 1), declares that processes of
/// this user may attach to this one, as the original library does. Without Yama it does nothing.
pub fn allow_peers() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let scope =
            std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
        if scope.trim() == "1" {
            // SAFETY: prctl with integer arguments only.
            unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
        }
    });
}
