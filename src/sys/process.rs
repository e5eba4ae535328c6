//! Whether another process runs, without /proc: that may hide it, or be of another namespace.

use super::descriptor::OwnedDescriptor;
use std::io::{self, Error};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A descriptor of a process, readable once it has exited (reaped by its parent or not).
pub struct Process(OwnedDescriptor<OwnedFd>);

impl Process {
    /// The process with this number in our PID namespace.
    ///
    /// # Errors
    /// `ESRCH`: there is none. `EMFILE`; `ENOSYS` before Linux 5.3, and where a filter forbids it.
    pub fn open(pid: u32) -> io::Result<Self> {
        // SAFETY: no memory involved.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
        if fd < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: a fresh descriptor. The kernel sets close-on-exec.
        Ok(Self(OwnedDescriptor::new(unsafe {
            OwnedFd::from_raw_fd(fd as i32)
        })))
    }

    /// Whether it has exited.
    pub fn exited(&self) -> bool {
        let mut fd = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid entry.
        unsafe { libc::poll(&mut fd, 1, 0) > 0 }
    }
}

impl AsRawFd for Process {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// The calling thread's number.
pub fn this_thread() -> i32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::gettid() }
}

/// Whether a process with this number runs in our PID namespace; true if the kernel denies the query.
pub fn is_running(pid: u32) -> bool {
    match Process::open(pid) {
        Ok(process) => !process.exited(),
        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => false,
        // SAFETY: signal 0 is none.
        Err(_) => unsafe {
            libc::kill(pid as libc::pid_t, 0) == 0
                || Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
        },
    }
}

/// A file or a System V block that a process has mapped, as `/proc/PID/maps` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped<'a> {
    /// Of a System V block its number.
    pub inode: u64,
    pub path: &'a str,
}

/// Whether a process has a mapping for which `is` returns true: reads all its mappings, up to a millisecond. False
/// where they are not visible.
pub fn has_mapped(pid: u32, is: impl Fn(Mapped<'_>) -> bool) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/maps"))
        .is_ok_and(|maps| maps.lines().filter_map(mapped).any(is))
}

/// A line of `/proc/PID/maps`: addresses, permissions, offset, device, inode, path.
fn mapped(line: &str) -> Option<Mapped<'_>> {
    let mut fields = line.splitn(6, ' ');
    let inode = fields.nth(4)?.parse().ok()?;
    let path = fields.next()?.trim_start();
    Some(Mapped { inode, path })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn mappings_are_found_by_inode_and_path() {
        let line =
            "7f66d3a00000-7f66d9c00000 rw-s 00000000 00:01 32770      /SYSV00000000 (deleted)";
        let wanted = Mapped {
            inode: 32770,
            path: "/SYSV00000000 (deleted)",
        };
        assert_eq!(mapped(line), Some(wanted));
        assert_eq!(mapped("7f66d3a00000-7f66d9c00000 rw-p"), None);
        let own = std::env::current_exe().unwrap();
        let is_own = |m: Mapped<'_>| m.inode != 0 && m.path == own.to_str().unwrap();
        assert!(has_mapped(std::process::id(), is_own));
        assert!(!has_mapped(std::process::id(), |m| m.path == "/nowhere"));
        assert!(!has_mapped(0, |_| true));
    }

    #[test]
    fn a_zombie_does_not_run() {
        assert!(is_running(std::process::id()));
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::open(child.id()).unwrap();
        assert!(is_running(child.id()) && !process.exited());
        child.kill().unwrap();
        // Readable when it has exited, before it is reaped.
        let mut fd = libc::pollfd {
            fd: process.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid entry.
        assert_eq!(unsafe { libc::poll(&mut fd, 1, 10_000) }, 1);
        assert!(!is_running(child.id()) && process.exited());
        child.wait().unwrap();
        assert!(!is_running(child.id()));
    }
}
