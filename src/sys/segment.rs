//! Shared memory segments that vanish with their processes.
//!
//! A segment is a memfd: it has no name, so nothing is left behind when its last user is killed.
//! A peer in the same PID namespace opens it as `/proc/PID/fd/FD`, which the kernel allows to the
//! same user only, without ptrace capabilities. For peers in other PID namespaces that share
//! /dev/shm a segment gets a name there (random, mode 0600); such a name is the one thing that a
//! kill can leave, so every owner locks its file and [`sweep`] removes those without a holder.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Error, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::OnceLock;

/// Bytes of a page, the unit of mappings. x86-64's; larger pages are multiples of it, and
/// mappings are made of multiples of 64 KiB where it matters.
pub const PAGE: usize = 4096;

const DIR: &str = "/dev/shm";
const PREFIX: &str = "rucp-";

/// How a peer finds a segment. Plain data from an address, an rkey or shared memory: not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentId {
    /// Owner, in the PID namespace of owner and opener.
    pub pid: u32,
    /// The owner's descriptor.
    pub fd: u32,
    /// Low 32 bits of the file's inode number: descriptors and pids are reused, inodes are not soon.
    pub ino: u32,
    /// Random part of the name in /dev/shm, 0 where it has none.
    pub key: u64,
}

/// A file in memory that can be mapped by this process and its peers.
pub struct Segment {
    file: File,
    len: usize,
    id: SegmentId,
}

impl Segment {
    /// A new segment of `len` bytes, zero, sparse. `named`: also reachable by name.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`, or what /dev/shm answers for a named one.
    pub fn create(len: usize, named: bool) -> io::Result<Self> {
        let key = if named {
            super::machine::random_u64()
        } else {
            0
        };
        let file = if named {
            create_named(key)?
        } else {
            create_memfd()?
        };
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        file.set_len(len as u64)?;
        if !named {
            // A peer that could shrink the file would make our accesses fault.
            // SAFETY: fcntl on an open memfd with constant flags.
            unsafe {
                libc::fcntl(
                    file.as_raw_fd(),
                    libc::F_ADD_SEALS,
                    libc::F_SEAL_SHRINK | libc::F_SEAL_GROW,
                )
            };
        }
        let id = SegmentId {
            pid: std::process::id(),
            fd: file.as_raw_fd() as u32,
            ino: file.metadata()?.ino() as u32,
            key,
        };
        Ok(Self { file, len, id })
    }

    /// Opens a peer's segment, at most `max_len` bytes long.
    ///
    /// # Errors
    /// `NotFound` when the owner is gone or the identity does not fit; `PermissionDenied` for
    /// another user's; `InvalidData` for a file that is not a segment.
    pub fn open(id: SegmentId, max_len: u64) -> io::Result<Self> {
        let path = path_of(id);
        // Look before opening: opening a device or a FIFO can have effects.
        check(&std::fs::metadata(&path)?, id, max_len)?;
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK)
            .open(&path)?;
        let meta = file.metadata()?;
        check(&meta, id, max_len)?;
        // SAFETY: fcntl on an open file.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if id.key == 0 && (seals < 0 || seals & libc::F_SEAL_SHRINK == 0) {
            return Err(Error::new(ErrorKind::InvalidData, "not a sealed segment"));
        }
        Ok(Self {
            file,
            len: meta.len() as usize,
            id,
        })
    }

    /// How peers find it.
    pub fn id(&self) -> SegmentId {
        self.id
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Maps `len` bytes from `offset` (both multiples of [`PAGE`]) for reading and writing, shared.
    /// `at`: exactly there, replacing nothing.
    ///
    /// # Errors
    /// `ENOMEM`; `InvalidInput` outside the segment; `AlreadyExists` when `at` is taken.
    pub fn map(&self, offset: usize, len: usize, at: Option<NonNull<u8>>) -> io::Result<Mapping> {
        if len == 0
            || offset % PAGE != 0
            || offset.checked_add(len).is_none_or(|end| end > self.len)
        {
            return Err(Error::from(ErrorKind::InvalidInput));
        }
        let fixed = if at.is_some() {
            libc::MAP_FIXED_NOREPLACE
        } else {
            0
        };
        let hint = at.map_or(std::ptr::null_mut(), |p| p.as_ptr().cast());
        // SAFETY: a fresh mapping of our own file; MAP_FIXED_NOREPLACE never replaces one.
        let ptr = unsafe {
            libc::mmap(
                hint,
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | fixed,
                self.file.as_raw_fd(),
                offset as i64,
            )
        };
        if ptr == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        let mapping = Mapping {
            ptr: NonNull::new(ptr.cast()).ok_or(ErrorKind::InvalidInput)?,
            len,
        };
        // A kernel before 4.17 takes MAP_FIXED_NOREPLACE for a hint.
        if at.is_some_and(|p| p != mapping.ptr) {
            return Err(Error::from(ErrorKind::AlreadyExists));
        }
        Ok(mapping)
    }

    /// Makes sure that `len` bytes from `offset` have memory behind them. Only /dev/shm can run
    /// out (its size is limited, in containers to 64 MB), and would then fault on access.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn reserve(&self, offset: usize, len: usize) -> io::Result<()> {
        if self.id.key == 0 {
            return Ok(());
        }
        // SAFETY: fallocate on an open file with a range checked by the kernel.
        match unsafe { libc::posix_fallocate(self.file.as_raw_fd(), offset as i64, len as i64) } {
            0 => Ok(()),
            errno => Err(Error::from_raw_os_error(errno)),
        }
    }

    /// Gives the memory of a range back; it reads as zero afterwards.
    pub fn discard(&self, offset: usize, len: usize) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: as in `reserve`. It cannot fail on tmpfs for a range inside the file.
        unsafe { libc::fallocate(self.file.as_raw_fd(), mode, offset as i64, len as i64) };
    }

    /// Takes the name away, where there is one. Only the owner calls it.
    pub fn unlink(&self) {
        if self.id.key != 0 {
            let _ = std::fs::remove_file(name_of(self.id.key));
        }
    }
}

/// Whether the owner of a segment still has it open: a file system look-up, 1 to 2 us.
pub fn is_alive(id: SegmentId) -> bool {
    let path = path_of(id);
    if id.key == 0 {
        return std::fs::metadata(path).is_ok_and(|m| m.ino() as u32 == id.ino);
    }
    let Ok(file) = File::open(path) else {
        return false;
    };
    !try_lock(&file)
}

/// Removes the names of segments in /dev/shm that belong to this user and whose owners are gone.
pub fn sweep() {
    let Ok(dir) = std::fs::read_dir(DIR) else {
        return;
    };
    for entry in dir.flatten() {
        let ours = entry
            .file_name()
            .to_str()
            .is_some_and(|n| n.starts_with(PREFIX));
        if !ours {
            continue;
        }
        let path = entry.path();
        // Another user's file cannot be opened; a file whose lock is free has no owner.
        let file = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(&path);
        if file.is_ok_and(|f| f.metadata().is_ok_and(|m| m.is_file()) && try_lock(&f)) {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// Memory of a segment in this process's address space, unmapped on drop.
pub struct Mapping {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is memory; who may touch which part of it is decided by its users.
unsafe impl Send for Mapping {}
// SAFETY: as above: `Mapping` itself hands out only a pointer.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// First byte.
    pub fn ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `Segment::map` and is unmapped once.
        unsafe { libc::munmap(self.ptr.as_ptr().cast(), self.len) };
    }
}

fn create_memfd() -> io::Result<File> {
    // SAFETY: a constant NUL-terminated name and constant flags.
    let fd = unsafe {
        libc::memfd_create(
            c"rucp".as_ptr(),
            libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING,
        )
    };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// The file is locked before it gets its name, so that no [`sweep`] finds it free.
fn create_named(key: u64) -> io::Result<File> {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC)
        .open(DIR)?;
    if !try_lock(&file) {
        return Err(Error::last_os_error());
    }
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = CString::new(name_of(key).into_os_string().into_encoded_bytes())?;
    // SAFETY: two NUL-terminated paths.
    let linked = unsafe {
        libc::linkat(
            libc::AT_FDCWD,
            from.as_ptr(),
            libc::AT_FDCWD,
            to.as_ptr(),
            libc::AT_SYMLINK_FOLLOW,
        )
    };
    if linked == 0 {
        Ok(file)
    } else {
        Err(Error::last_os_error())
    }
}

fn try_lock(file: &File) -> bool {
    // SAFETY: flock on an open file.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

fn name_of(key: u64) -> PathBuf {
    PathBuf::from(format!("{DIR}/{PREFIX}{key:016x}"))
}

fn path_of(id: SegmentId) -> PathBuf {
    if id.key == 0 {
        PathBuf::from(format!("/proc/{}/fd/{}", id.pid, id.fd))
    } else {
        name_of(id.key)
    }
}

fn check(meta: &std::fs::Metadata, id: SegmentId, max_len: u64) -> io::Result<()> {
    if meta.ino() as u32 != id.ino {
        return Err(Error::from(ErrorKind::NotFound));
    }
    // SAFETY: no arguments, cannot fail.
    if meta.uid() != unsafe { libc::geteuid() } {
        return Err(Error::from(ErrorKind::PermissionDenied));
    }
    if !meta.is_file()
        || meta.len() > max_len
        || (id.key == 0 && Some(meta.dev()) != memfd_device())
    {
        return Err(Error::new(ErrorKind::InvalidData, "not a segment"));
    }
    Ok(())
}

/// The device number of the kernel's own memory file system, where all memfds live.
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
        for named in [false, true] {
            let owner = Segment::create(2 * PAGE, named).unwrap();
            let peer = Segment::open(owner.id(), 1 << 20).unwrap();
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
            owner.unlink();
            let id = owner.id();
            drop((owner, peer));
            assert!(!is_alive(id));
        }
    }

    #[test]
    fn a_foreign_file_is_refused() {
        let file = File::open("/proc/self/exe").unwrap();
        let id = SegmentId {
            pid: std::process::id(),
            fd: file.as_raw_fd() as u32,
            ino: file.metadata().unwrap().ino() as u32,
            key: 0,
        };
        assert_eq!(
            Segment::open(id, u64::MAX).err().map(|e| e.kind()),
            Some(ErrorKind::InvalidData)
        );
        let seg = Segment::create(PAGE, false).unwrap();
        let stale = SegmentId {
            ino: seg.id().ino ^ 1,
            ..seg.id()
        };
        assert_eq!(
            Segment::open(stale, u64::MAX).err().map(|e| e.kind()),
            Some(ErrorKind::NotFound)
        );
        assert!(Segment::open(seg.id(), 100).is_err(), "longer than allowed");
    }

    #[test]
    fn sweep_removes_only_names_without_an_owner() {
        let live = Segment::create(PAGE, true).unwrap();
        let dead = Segment::create(PAGE, true).unwrap();
        let (live_name, dead_name) = (name_of(live.id().key), name_of(dead.id().key));
        drop(dead);
        sweep();
        assert!(live_name.exists() && !dead_name.exists());
        live.unlink();
        assert!(!live_name.exists());
    }
}
