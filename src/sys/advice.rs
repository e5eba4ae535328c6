//! What a user can do about an error of the system.

use rustix::io::Errno;
use std::io;

/// Behind the text of an error that prevented shared memory; empty: there is none.
pub fn on_shared_memory(e: &io::Error) -> &'static str {
    match Errno::from_io_error(e) {
        Some(Errno::NOMEM) => " (ulimit -v)",
        Some(Errno::MFILE) => " (ulimit -n)",
        Some(Errno::NFILE) => " (sysctl fs.file-max)",
        Some(Errno::NOSPC) => " (the size of /dev/shm; sysctl kernel.shmmni kernel.shmall)",
        Some(Errno::ROFS | Errno::ACCESS | Errno::PERM) => {
            " (the mount and the rights of /dev/shm)"
        }
        Some(Errno::FBIG) => " (ulimit -f)",
        _ => "",
    }
}

/// What to do about the error of a connection by a network; none: its peer has not answered.
pub fn on_connection(e: Option<&io::Error>) -> &'static str {
    match e.and_then(Errno::from_io_error) {
        Some(Errno::MFILE) => "raise the limit of open files of this process (ulimit -n)",
        Some(Errno::NFILE) => "raise the limit of open files of this host (sysctl fs.file-max)",
        Some(Errno::CONNREFUSED | Errno::CONNRESET) => {
            "find out whether its process has ended, or a firewall rejects the connection"
        }
        _ => ON_CONNECTION,
    }
}

/// What to do about a peer to which there is no connection, for an unknown cause.
pub const ON_CONNECTION: &str = "find out whether its host and its network are up, and whether UCX_NET_DEVICES names \
                                 devices that reach it";

/// What to do about a peer that has not acknowledged what was sent to it.
pub const ON_SILENCE: &str = "its process, its host or the network between has failed: see its output, and the state \
                              of the ports";

/// What to do about a peer that does not answer, and may still do so.
pub const ON_WAITING: &str =
    "waiting for its process, which has to call ucp_worker_progress, or has ended";

/// What to do about an access that the device of the peer has refused.
pub const ON_REFUSED_ACCESS: &str =
    "ucp_mem_map was not called for all of the memory, or ucp_mem_unmap too early";

/// What to do about a connection that the peer has ended.
pub const ON_END: &str = "its process has ended or its worker was destroyed: its own output, and dmesg if memory ran \
                          out, show why";

/// What to do about a connection that has ended while an access to the peer's memory was outstanding.
pub const ON_END_AMID_ACCESS: &str = "its process has ended or its worker was destroyed, as its own output shows, and \
                                      dmesg if memory ran out; or its host or the network between has failed; or it \
                                      has refused an access: ucp_mem_map was not called for all of the memory, or \
                                      ucp_mem_unmap too early";

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_advice_of_its_cause() {
        let advice = |errno: Errno| on_shared_memory(&errno.into());
        assert!(advice(Errno::NOMEM).contains("ulimit -v"));
        assert!(advice(Errno::NOSPC).contains("/dev/shm"));
        assert_eq!(advice(Errno::IO), "");
        assert_eq!(on_shared_memory(&io::ErrorKind::NotFound.into()), "");
        let advice = |errno: Errno| on_connection(Some(&errno.into()));
        assert!(advice(Errno::MFILE).contains("ulimit -n"));
        assert!(advice(Errno::CONNREFUSED).contains("firewall"));
        assert_eq!(advice(Errno::HOSTUNREACH), on_connection(None));
    }
}
