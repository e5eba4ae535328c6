//! Shared memory with a name in /dev/shm, for processes that share nothing else: containers with
//! PID and IPC namespaces of their own. Only on request (`UCX_POSIX_USE_PROC_LINK=n`).
//!
//! Names are random and files mode 0600. A killed process leaves its names behind, so every owner holds a lock on its
//! file, and [`sweep`] removes the names of files without an owner.

use super::descriptor::OwnedDescriptor;
use super::mapping::Mapping;
use super::{host, process};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Error, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

const DIR: &str = "/dev/shm";
const PREFIX: &str = "rucp-";
/// What every owner does to its file.
const LOCK: FlockOperation = FlockOperation::NonBlockingLockExclusive;

/// A named file; unlinked by its owner on drop.
pub struct PosixShm {
    file: OwnedDescriptor<File>,
    key: u64,
    owner: bool,
}

impl PosixShm {
    /// `len` new bytes, zero, sparse, under a random name.
    ///
    /// # Errors
    /// The errors of /dev/shm.
    pub fn create(len: usize) -> io::Result<Self> {
        sweep();
        let key = host::random_u64();
        let file = options().create_new(true).mode(0o600).open(path(key))?;
        // A sweep between creation and lock finds a file of length 0, and ignores it.
        flock(&file, LOCK)?;
        file.set_len(len as u64)?;
        Ok(Self {
            file: OwnedDescriptor::new(file),
            key,
            owner: true,
        })
    }

    /// Opens a peer's file, which must be `len` bytes long and this user's.
    ///
    /// # Errors
    /// `NotFound` when it is gone; `PermissionDenied`; `InvalidData` for one of another length.
    pub fn open(key: u64, len: usize) -> io::Result<Self> {
        let file = options().open(path(key))?;
        let meta = file.metadata()?;
        if meta.uid() != host::user() {
            return Err(ErrorKind::PermissionDenied.into());
        }
        if !meta.is_file() || meta.len() != len as u64 {
            return Err(Error::new(ErrorKind::InvalidData, "not an inbox"));
        }
        Ok(Self {
            file: OwnedDescriptor::new(file),
            key,
            owner: false,
        })
    }

    /// Maps `len` bytes from `offset`, both whole pages, for reading and writing, shared. Inside of the file.
    ///
    /// # Errors
    /// `ENOMEM`; `EBADF`: the program has closed the file.
    pub fn map(&self, offset: usize, len: usize) -> io::Result<Mapping> {
        self.check()?;
        // SAFETY: at an address that the kernel chooses.
        unsafe { Mapping::of_file(&self.file, offset as u64, len, None) }
    }

    /// Whether the descriptor still names the file: not where the program has closed all descriptors.
    fn check(&self) -> io::Result<()> {
        if self.file.is_intact() {
            Ok(())
        } else {
            Err(Errno::BADF.into())
        }
    }

    /// The number in the name, by which peers open it.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Makes sure that a range has memory behind it: /dev/shm is limited, in containers to 64 MB,
    /// and an access beyond would fault.
    ///
    /// # Errors
    /// `ENOSPC`; `EBADF`: the program has closed the file.
    pub fn reserve(&self, offset: usize, len: usize) -> io::Result<()> {
        self.check()?;
        let fd = self.file.as_raw_fd();
        // rustix has only fallocate(2), which some file systems do not support; this function then writes the range.
        // SAFETY: a range of an open file, which the kernel checks.
        match unsafe { libc::posix_fallocate(fd, offset as i64, len as i64) } {
            0 => Ok(()),
            errno => Err(Error::from_raw_os_error(errno)),
        }
    }
}

impl Drop for PosixShm {
    fn drop(&mut self) {
        if self.owner {
            let _ = std::fs::remove_file(path(self.key));
        }
    }
}

/// Whether a file belongs to another user than this one.
pub fn is_foreign(key: u64, user: u32) -> bool {
    std::fs::symlink_metadata(path(key)).is_ok_and(|meta| meta.uid() != user)
}

/// Whether the owner still has it open; true if that cannot be determined.
pub fn is_alive(key: u64) -> bool {
    match options().open(path(key)) {
        Ok(file) => flock(&file, LOCK).is_err(),
        Err(e) => e.kind() != ErrorKind::NotFound,
    }
}

/// Whether a process has a file mapped, as far as its mappings are visible.
pub fn is_mapped_by(key: u64, pid: u32) -> bool {
    let path = path(key);
    process::has_mapped(pid, |m| Some(m.path) == path.to_str())
}

/// Removes the names of this user's files whose owners have exited.
pub fn sweep() {
    let Ok(dir) = std::fs::read_dir(DIR) else {
        return;
    };
    for entry in dir.flatten() {
        let ours = entry
            .file_name()
            .to_str()
            .is_some_and(|n| n.starts_with(PREFIX));
        // Another user's file cannot be opened; a file whose lock is free has no owner.
        let dead = |file: File| {
            file.metadata().is_ok_and(|m| m.is_file() && m.len() > 0) && flock(&file, LOCK).is_ok()
        };
        if ours && options().open(entry.path()).is_ok_and(dead) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
    options.read(true).write(true).custom_flags(flags);
    options
}

fn path(key: u64) -> PathBuf {
    PathBuf::from(format!("{DIR}/{PREFIX}{key:016x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_by_name_and_swept_when_the_owner_is_gone() {
        let (a, dead) = (
            PosixShm::create(8192).unwrap(),
            PosixShm::create(8192).unwrap(),
        );
        let b = PosixShm::open(a.key(), 8192).unwrap();
        a.reserve(4096, 4096).unwrap();
        let (here, there) = (a.map(0, 8192).unwrap(), b.map(4096, 4096).unwrap());
        // SAFETY: 8192 bytes, and the last 4096 of them.
        unsafe {
            here.ptr().add(5000).write(7);
            assert_eq!(there.ptr().add(5000 - 4096).read(), 7);
        }
        assert!(is_alive(a.key()) && PosixShm::open(a.key(), 4096).is_err());
        // An owner that is killed does not unlink.
        let mut killed = std::mem::ManuallyDrop::new(dead);
        // SAFETY: the value is not used afterwards; only its descriptor is closed.
        unsafe { std::ptr::drop_in_place(&mut killed.file) };
        let key = killed.key;
        assert!(path(key).exists() && !is_alive(key));
        sweep();
        assert!(!path(key).exists() && path(a.key()).exists());
        let key = a.key();
        drop((a, b));
        assert!(!path(key).exists());
    }
}
