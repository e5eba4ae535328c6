//! Files that a trace may overwrite: those that this user has made, which no other process writes.

use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

/// How often a name that appears and disappears is tried.
const TRIES: u32 = 8;

/// Opens a file and locks it against other processes. `None`: another process has it.
pub fn open_locked(path: &str) -> io::Result<Option<File>> {
    let file = open_own(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        // A file system without locks.
        Err(_) => Ok(Some(file)),
    }
}

/// Makes a file, or opens one that this user has made before: a directory that others write may have a link of this
/// name, by which they choose the file that is overwritten, or a file of theirs.
fn open_own(path: &str) -> io::Result<File> {
    // O_NONBLOCK: a FIFO without a reader is an error, and nothing is waited for.
    let mut options = OpenOptions::new();
    options
        .write(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    for _ in 0..TRIES {
        match options.clone().create_new(true).open(path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made,
        }
        let file = match options.open(path) {
            Ok(file) => file,
            // Removed since.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) if e.raw_os_error() == Some(libc::ELOOP) => {
                return Err(refused("it is a symbolic link: name the file itself"));
            }
            Err(e) => return Err(e),
        };
        let found = file.metadata()?;
        return match () {
            () if !found.is_file() => Err(refused("it is no regular file")),
            () if found.uid() != geteuid().as_raw() => Err(refused(
                "it belongs to another user: remove it, or choose another name",
            )),
            // Removed since.
            () if found.nlink() == 0 => continue,
            () if found.nlink() != 1 => Err(refused(
                "the file has other names, too: remove it, or choose another name",
            )),
            () => Ok(file),
        };
    }
    Err(refused("the name appears and disappears"))
}

/// Why a file is not written.
fn refused(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}
