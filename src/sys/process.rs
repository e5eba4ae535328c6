//! Whether another process runs, without /proc: that may hide it, or be of another namespace.

use super::descriptor::OwnedDescriptor;
use super::poll::is_readable;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process};
use rustix::thread::gettid;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// A descriptor of a process, readable once it has exited (reaped by its parent or not).
pub struct Process(OwnedDescriptor<OwnedFd>);

impl Process {
    /// The process with this number in our PID namespace.
    ///
    /// # Errors
    /// `ESRCH`: there is none. `EMFILE`; `ENOSYS` before Linux 5.3, and where a filter forbids it.
    pub fn open(pid: u32) -> io::Result<Self> {
        let pid = number(pid).ok_or(Errno::SRCH)?;
        // The kernel sets close-on-exec.
        let fd = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Self(OwnedDescriptor::new(fd)))
    }

    /// Whether it has exited.
    pub fn exited(&self) -> bool {
        is_readable(self.0.as_fd())
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Process {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// As a number that a process can have.
fn number(pid: u32) -> Option<Pid> {
    Pid::from_raw(pid.try_into().ok()?)
}

/// The calling thread's number.
pub fn this_thread() -> i32 {
    gettid().as_raw_pid()
}

/// Whether a process with this number runs in our PID namespace; true if the kernel denies the query.
pub fn is_running(pid: u32) -> bool {
    match Process::open(pid) {
        Ok(process) => !process.exited(),
        Err(e) if Errno::from_io_error(&e) == Some(Errno::SRCH) => false,
        Err(_) => number(pid).is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH)),
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
    use crate::sys::poll::wait_readable;
    use std::process::Command;
    use std::time::Duration;

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
        let soon = Some(Duration::from_secs(10));
        assert_eq!(wait_readable([process.as_fd()], soon).unwrap(), 1);
        assert!(!is_running(child.id()) && process.exited());
        child.wait().unwrap();
        assert!(!is_running(child.id()));
    }
}
