//! This process as the kernel sees it: namespaces, filters of system calls, processors.

use procfs::process::{Process, Status};
use std::os::unix::fs::MetadataExt;

/// The kind of a namespace that decides which processes reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    User,
    Pid,
    Ipc,
}

impl Namespace {
    /// Its file in `/proc/self/ns`.
    fn file(self) -> &'static str {
        match self {
            Namespace::User => "user",
            Namespace::Pid => "pid",
            Namespace::Ipc => "ipc",
        }
    }

    /// Its name in a sentence, with the article.
    pub fn described(self) -> &'static str {
        match self {
            Namespace::User => "a user",
            Namespace::Pid => "a PID",
            Namespace::Ipc => "an IPC",
        }
    }

    /// Inode of the host's own namespace: constants of the kernel (include/uapi/linux/nsfs.h, linux/proc_ns.h).
    fn initial(self) -> u64 {
        match self {
            Namespace::Ipc => 0xEFFF_FFFF,
            Namespace::Pid => 0xEFFF_FFFC,
            Namespace::User => 0xEFFF_FFFD,
        }
    }

    /// Inode of this process's namespace; 0 if it cannot be read.
    pub fn inode(self) -> u64 {
        std::fs::metadata(format!("/proc/self/ns/{}", self.file())).map_or(0, |m| m.ino())
    }

    /// Whether this process is in the host's own namespace.
    pub fn is_initial(self) -> bool {
        [0, self.initial()].contains(&self.inode())
    }
}

/// `/proc/self/status`, if it can be read.
pub fn status() -> Option<Status> {
    Process::myself().ok()?.status().ok()
}

/// Whether a seccomp filter judges the system calls of this process.
pub fn is_filtered() -> bool {
    const SECCOMP_MODE_FILTER: u32 = 2;
    status().and_then(|status| status.seccomp) == Some(SECCOMP_MODE_FILTER)
}

/// A right of a process that root has, by its bit (linux/capability.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// To lock more memory than the limit.
    IpcLock = 14,
    /// To trace processes that are not its own.
    SysPtrace = 19,
}

/// Whether this process has a capability.
pub fn is_capable(capability: Capability) -> bool {
    status().is_some_and(|status| status.capeff & 1 << capability as u64 != 0)
}

/// Yama's restriction of ptrace, 0 to 3. `None`: the kernel has no Yama.
pub fn ptrace_scope() -> Option<u32> {
    let text = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?;
    text.trim().parse().ok()
}

/// Whether other processes of this user may read this process's memory and descriptors.
pub fn is_dumpable() -> bool {
    // SAFETY: PR_GET_DUMPABLE has no further arguments and no effect.
    unsafe { libc::prctl(libc::PR_GET_DUMPABLE) == 1 }
}

/// The processors that this process may run on.
pub fn processors() -> Vec<u32> {
    let Some(list) = status().map(|status| status.cpus_allowed_list.unwrap_or_default()) else {
        return Vec::new();
    };
    list.into_iter()
        .flat_map(|(first, last)| first..=last)
        .collect()
}

/// Number of processors of this machine, whether or not this process may run on them.
pub fn online_processors() -> usize {
    // SAFETY: sysconf has no effect.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(online).unwrap_or(1)
}
