//! Shared memory segments without a name: a memfd, freed when the last process unmaps it.
//!
//! A peer in the same PID namespace opens it as `/proc/PID/fd/FD`, which the kernel permits to the same user without
//! ptrace capabilities, and to no other.

use super::descriptor::OwnedDescriptor;
use super::mapping::Mapping;
use super::{host, process};
use crate::sys::sync::OnceLock;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Error, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::ptr::NonNull;

/// Bytes of a page, the unit of mappings: that of x86-64. Larger pages are multiples of it, and mappings are made of
/// multiples of 64 KiB where it matters.
pub const PAGE: usize = 4096;

/// Identity by which a peer opens a segment. Plain data from an address, an rkey or shared memory: not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemfdId {
    /// Owner, in the PID namespace of owner and opener.
    pub pid: u32,
    /// The owner's descriptor.
    pub fd: u32,
    /// Low 32 bits of the file's inode number: descriptors and pids are reused, inodes are not soon.
    pub ino: u32,
}

/// A file in memory that can be mapped by this process and its peers.
pub struct Memfd {
    file: OwnedDescriptor<File>,
    len: usize,
    id: MemfdId,
}

impl Memfd {
    /// A new segment of `len` bytes, zero, sparse.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub fn create(len: usize) -> io::Result<Self> {
        let file = create_memfd()?;
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        file.set_len(len as u64)?;
        // With seals against shrinking: a peer that shrinks the file would make our accesses fault.
        let _ = fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW);
        let id = MemfdId {
            pid: std::process::id(),
            fd: file.as_raw_fd() as u32,
            ino: file.metadata()?.ino() as u32,
        };
        let file = OwnedDescriptor::new(file);
        Ok(Self { file, len, id })
    }

    /// Opens a peer's segment, at most `max_len` bytes long.
    ///
    /// # Errors
    /// `NotFound` when the owner is gone or the identity does not fit; `PermissionDenied` for
    /// another user's; `InvalidData` for a file that is not a segment.
    pub fn open(id: MemfdId, max_len: u64) -> io::Result<Self> {
        let path = path_of(id);
        // Checked before opening: opening a device or a FIFO can have effects.
        check(&std::fs::metadata(&path)?, id, max_len)?;
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK)
            .open(&path)?;
        let meta = file.metadata()?;
        check(&meta, id, max_len)?;
        if !fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
            return Err(Error::new(ErrorKind::InvalidData, "not a sealed segment"));
        }
        Ok(Self {
            file: OwnedDescriptor::new(file),
            len: meta.len() as usize,
            id,
        })
    }

    /// The identity by which peers open it.
    pub fn id(&self) -> MemfdId {
        self.id
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Maps `len` bytes from `offset` (both multiples of [`PAGE`]) for reading and writing, shared. `at`: at this
    /// address, in place of a mapping that the caller owns.
    ///
    /// # Errors
    /// `ENOMEM`; `InvalidInput` outside the segment; `EBADF`: the program has closed the file.
    pub fn map(&self, offset: usize, len: usize, at: Option<NonNull<u8>>) -> io::Result<Mapping> {
        if len == 0
            || offset % PAGE != 0
            || offset.checked_add(len).is_none_or(|end| end > self.len)
        {
            return Err(Error::from(ErrorKind::InvalidInput));
        }
        if !self.file.is_intact() {
            return Err(Errno::BADF.into());
        }
        // SAFETY: `at` is the place of a mapping that the caller owns.
        unsafe { Mapping::of_file(&self.file, offset as u64, len, at) }
    }
}

/// Whether a segment belongs to another user than this one. True for that of a process whose descriptors are not
/// visible.
pub fn is_foreign(id: MemfdId, user: u32) -> bool {
    match std::fs::metadata(path_of(id)) {
        Ok(meta) => meta.uid() != user,
        Err(e) => e.kind() == ErrorKind::PermissionDenied,
    }
}

/// Whether the owner of a segment still has it open: a file system lookup, 1 to 2 us. If the owner's descriptors are
/// not visible (it is not dumpable, /proc hides it or is of another namespace) it counts as alive as long as its
/// process is.
pub fn is_alive(id: MemfdId) -> bool {
    match std::fs::metadata(path_of(id)) {
        Ok(meta) if meta.ino() as u32 == id.ino => true,
        _ if !process::is_running(id.pid) => false,
        Err(e) if e.kind() != ErrorKind::NotFound => true,
        _ => !sees_descriptors(id.pid),
    }
}

/// Whether a descriptor that /proc does not show is closed: /proc is of our PID namespace and shows the process.
fn sees_descriptors(pid: u32) -> bool {
    let ours = std::fs::read_link("/proc/self").is_ok_and(|me| {
        me.to_str()
            .is_some_and(|me| me == std::process::id().to_string())
    });
    ours && std::fs::read_dir(format!("/proc/{pid}/fd")).is_ok()
}

fn create_memfd() -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    Ok(memfd_create("rucp", flags)?.into())
}

fn path_of(id: MemfdId) -> PathBuf {
    PathBuf::from(format!("/proc/{}/fd/{}", id.pid, id.fd))
}

fn check(meta: &std::fs::Metadata, id: MemfdId, max_len: u64) -> io::Result<()> {
    if meta.ino() as u32 != id.ino {
        return Err(Error::from(ErrorKind::NotFound));
    }
    if meta.uid() != host::user() {
        return Err(Error::from(ErrorKind::PermissionDenied));
    }
    if !meta.is_file() || meta.len() > max_len || Some(meta.dev()) != memfd_device() {
        return Err(Error::new(ErrorKind::InvalidData, "not a segment"));
    }
    Ok(())
}

/// The device number of the kernel's internal memory file system, which holds all memfds.
fn memfd_device() -> Option<u64> {
    static DEVICE: OnceLock<Option<u64>> = OnceLock::new();
    *DEVICE.get_or_init(|| {
        create_memfd()
            .and_then(|f| f.metadata())
            .map(|m| m.dev())
            .ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_opening_sees_the_same_memory() {
        let owner = Memfd::create(2 * PAGE).unwrap();
        let peer = Memfd::open(owner.id(), 1 << 20).unwrap();
        let (a, b) = (
            owner.map(PAGE, PAGE, None).unwrap(),
            peer.map(PAGE, PAGE, None).unwrap(),
        );
        // SAFETY: both mappings are a page long.
        unsafe {
            a.ptr().write(42);
            assert_eq!(b.ptr().read(), 42);
        }
        assert!(is_alive(owner.id()));
        let id = owner.id();
        drop((owner, peer));
        assert!(!is_alive(id));
    }

    #[test]
    fn a_foreign_file_is_refused() {
        let file = File::open("/proc/self/exe").unwrap();
        let ino = file.metadata().unwrap().ino() as u32;
        let id = MemfdId {
            pid: std::process::id(),
            fd: file.as_raw_fd() as u32,
            ino,
        };
        let kind = |id| Memfd::open(id, u64::MAX).err().map(|e| e.kind());
        assert_eq!(kind(id), Some(ErrorKind::InvalidData));
        let seg = Memfd::create(PAGE).unwrap();
        let stale = MemfdId {
            ino: seg.id().ino ^ 1,
            ..seg.id()
        };
        assert_eq!(kind(stale), Some(ErrorKind::NotFound));
        assert!(Memfd::open(seg.id(), 100).is_err(), "longer than allowed");
    }
}
