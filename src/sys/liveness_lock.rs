//! Whether an owner in any PID namespace lives: while it does it holds a lock on a byte of /dev/shm, the directory.
//!
//! The kernel releases the lock with the owner's descriptor, however the owner ends, and no file is left behind.
//! A forked child does not keep it: it gets an inert descriptor in its place ([`super::fork`]).

use crate::sys::descriptor::OwnedDescriptor;
use crate::sys::sync::OnceLock;
use std::fs::{File, OpenOptions};
use std::io::{self, Error};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

const DIR: &str = "/dev/shm";

/// The owner's lock, released on drop.
pub struct LivenessLock {
    _held: OwnedDescriptor<File>,
}

impl LivenessLock {
    /// Acquires the lock that `key` names.
    ///
    /// # Errors
    /// There is no /dev/shm, or its file system has no such locks.
    pub fn hold(key: u64) -> io::Result<Self> {
        let dir = open()?;
        // A read lock: a directory cannot be opened for writing.
        // rustix locks only whole files.
        let mut lock = lock_of(key, libc::F_RDLCK);
        // SAFETY: an open file and a valid structure.
        match unsafe { libc::fcntl(dir.as_raw_fd(), libc::F_OFD_SETLK, &mut lock) } {
            0 => Ok(Self {
                _held: OwnedDescriptor::new(dir),
            }),
            _ => Err(Error::last_os_error()),
        }
    }
}

/// Id of the directory, equal for all processes of this host that see the same one; 0 if there is none.
pub fn place() -> u32 {
    static PLACE: OnceLock<u32> = OnceLock::new();
    *PLACE.get_or_init(|| {
        // Devices without hardware have numbers of 20 bits; the root of a file system has a small inode.
        std::fs::metadata(DIR).map_or(0, |m| (m.dev() as u32).rotate_left(16) ^ m.ino() as u32)
    })
}

/// Whether a process holds the lock that `key` names; true if that cannot be determined.
pub fn is_held(key: u64) -> bool {
    let Ok(dir) = open() else {
        return true;
    };
    let mut lock = lock_of(key, libc::F_WRLCK);
    // SAFETY: an open file and a valid structure, which is written.
    let asked = unsafe { libc::fcntl(dir.as_raw_fd(), libc::F_OFD_GETLK, &mut lock) } == 0;
    !asked || lock.l_type != libc::F_UNLCK as libc::c_short
}

fn open() -> io::Result<File> {
    let flags = libc::O_DIRECTORY | libc::O_CLOEXEC;
    OpenOptions::new().read(true).custom_flags(flags).open(DIR)
}

fn lock_of(key: u64, kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        // Offsets have no sign bit to spare.
        l_start: (key & i64::MAX as u64) as i64,
        l_len: 1,
        // The kernel requires 0 for locks of descriptors.
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::host::random_u64;

    #[test]
    fn held_until_dropped() {
        let (a, b) = (random_u64(), u64::MAX);
        let (held, other) = (
            LivenessLock::hold(a).unwrap(),
            LivenessLock::hold(b).unwrap(),
        );
        assert!(is_held(a) && is_held(b) && !is_held(a ^ 1));
        drop(held);
        assert!(!is_held(a) && is_held(b));
        drop(other);
        assert!(!is_held(b) && place() != 0);
    }
}
