//! Checks of resource limits and of the processors that this process may use.

use crate::finding::Finding;
use crate::system::{self, Capability};
use ucp::sys::host;

/// Fewest descriptors that leave room for some hundred TCP connections.
const MIN_DESCRIPTORS: u64 = 1024;
/// Bytes of the file that holds a worker's inbox with all its parts, rounded up: see docs/LIMITS.md.
const INBOX_FILE_BYTES: u64 = 128 << 20;
/// Bytes of registered memory below which an adapter runs short.
const MIN_LOCKED_BYTES: u64 = 64 << 20;

/// Checks for any machine.
pub fn check() -> Vec<Finding> {
    let all = [descriptors(), address_space(), file_size(), one_processor()];
    all.into_iter().flatten().collect()
}

fn descriptors() -> Option<Finding> {
    let limit = host::limit(libc::RLIMIT_NOFILE).filter(|&limit| limit < MIN_DESCRIPTORS)?;
    Some(Finding::slow(
        "nofile-low",
        format!("this process may have {limit} descriptors"),
        "each peer by tcp takes one, and shared memory and wakeup take some: when they run out, connections fail, \
         and an MPI may wait for ever",
        "ulimit -n 65536, in the job's script or in /etc/security/limits.conf",
    ))
}

fn address_space() -> Option<Finding> {
    let limit = host::limit(libc::RLIMIT_AS)?;
    Some(Finding::slow(
        "address-space-limited",
        format!("the address space is limited to {} MiB", limit >> 20),
        "a worker maps 3.2 MB, and up to 0.7 MB for each peer; peers whose memory cannot be mapped are reached by \
         tcp, and endpoints are not mapped ahead",
        "ulimit -v unlimited; limit the job's memory by its cgroup instead",
    ))
}

fn file_size() -> Option<Finding> {
    let limit = host::max_file_size().filter(|&limit| limit < INBOX_FILE_BYTES)?;
    Some(Finding::slow(
        "file-size-limited",
        format!("files are limited to {} KiB", limit >> 10),
        "memory that is shared as a file counts: inboxes have no big buffers, and long messages are slower where cma \
         is not permitted",
        "ulimit -f unlimited",
    ))
}

fn one_processor() -> Option<Finding> {
    let allowed = system::processors();
    let online = system::online_processors();
    (allowed.len() == 1 && online > 1).then(|| {
        Finding::slow(
            "one-processor",
            format!(
                "this process may run on processor {} only, of {online}",
                allowed[0]
            ),
            "two processes that are bound to one processor take turns: a message waits until the receiver runs",
            "bind each process to a processor of its own (mpirun --bind-to core), and check the job's cpuset",
        )
    })
}

/// The limit of locked memory, where an adapter registers memory.
pub fn locked_memory() -> Option<Finding> {
    if system::is_capable(Capability::IpcLock) {
        return None;
    }
    let limit = host::limit(libc::RLIMIT_MEMLOCK).filter(|&limit| limit < MIN_LOCKED_BYTES)?;
    Some(Finding::broken(
        "memlock-low",
        format!("{} KiB of memory may be locked", limit >> 10),
        "adapters access registered memory, which counts as locked: queues cannot be made, or long messages are \
         copied",
        "ulimit -l unlimited: in /etc/security/limits.conf, LimitMEMLOCK=infinity of the batch system's service, \
         docker run --ulimit memlock=-1",
    ))
}
