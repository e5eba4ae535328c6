//! Checks of this process: namespaces, `/proc`, its own protection.

use crate::finding::Finding;
use crate::system::{self, Namespace};

/// All of them.
pub fn check() -> Vec<Finding> {
    let namespaces = [Namespace::User, Namespace::Pid, Namespace::Ipc];
    let mut findings: Vec<Finding> = namespaces.into_iter().filter_map(namespace).collect();
    findings.extend(foreign_proc());
    findings.extend(protection());
    findings
}

/// A namespace that is not the host's.
fn namespace(kind: Namespace) -> Option<Finding> {
    if kind.is_initial() {
        return None;
    }
    let found = format!(
        "this process is in {} namespace of its own or of its container ({})",
        kind.described(),
        kind.inode()
    );
    Some(match kind {
        Namespace::User => Finding::note(
            "user-namespace",
            found,
            "memory of processes outside of it cannot be copied (cma); long messages to them travel in shared memory \
             or by tcp",
            "run both processes in one user namespace (rootless containers: the same container or pod)",
        ),
        Namespace::Pid => Finding::note(
            "pid-namespace",
            found,
            "memory of processes outside of it cannot be copied (cma)",
            "docker run --pid=host, or --pid=container:NAME; in a pod shareProcessNamespace",
        ),
        Namespace::Ipc => Finding::note(
            "ipc-namespace",
            found,
            "System V segments of processes outside of it cannot be attached: without another way to share memory \
             they are reached by tcp",
            "docker run --ipc=host, or --ipc=container:NAME; or share /dev/shm and set UCX_POSIX_USE_PROC_LINK=n in \
             all of them",
        ),
    })
}

/// `/proc` of another PID namespace.
fn foreign_proc() -> Option<Finding> {
    let link = std::fs::read_link("/proc/self").ok();
    let shown = link.and_then(|link| link.to_str()?.parse::<u32>().ok());
    if shown == Some(std::process::id()) {
        return None;
    }
    let shown = shown.map_or("no process".to_owned(), |pid| format!("process {pid}"));
    Some(Finding::broken(
        "proc-foreign",
        format!(
            "/proc shows {shown} in place of process {}",
            std::process::id()
        ),
        "files in shared memory are opened by /proc/PID/fd: those of other processes are not found there, and \
         rucp_top finds no workers",
        "mount -t proc proc /proc in this PID namespace (unshare --mount-proc)",
    ))
}

/// A process that others may not look into.
fn protection() -> Option<Finding> {
    (!system::is_dumpable()).then(|| {
        Finding::slow(
            "not-dumpable",
            "this program is protected from other processes (not dumpable): its file is not readable, or has set-id \
             bits or capabilities, or the program has asked for it",
            "other processes cannot copy from its memory (cma), nor open its descriptors by /proc/PID/fd",
            "make the file of the program readable (chmod a+r), without set-id bits and capabilities",
        )
    })
}
