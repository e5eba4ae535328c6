//! Read-only published memory: this process writes it, other processes of the same user can only read it.
//!
//! It is a memfd that is sealed against resizing and against new writers, found by its name among the descriptors of a
//! process (`/proc/PID/fd`). Readers copy it with `pread`: whatever a writer does or fails to do, they do not fault.

use super::descriptor::OwnedDescriptor;
use super::fork;
use std::fs::{self, File};
use std::io::{self, Error, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// Link target of such a descriptor in `/proc/PID/fd`.
const LINK: &str = "/memfd:rucp-stats (deleted)";

/// The writer's side.
pub struct RoMemfd {
    ptr: NonNull<u8>,
    len: usize,
    /// Keeps it findable; `None` for private memory.
    _file: Option<OwnedDescriptor<File>>,
    /// Forked children get private memory in its place.
    in_children: Option<fork::PrivateInChild>,
}

// SAFETY: a mapping is plain memory; its users synchronise their accesses.
unsafe impl Send for RoMemfd {}
// SAFETY: a mapping is plain memory, to which `RoMemfd` only hands out a pointer.
unsafe impl Sync for RoMemfd {}

impl RoMemfd {
    /// `len` bytes, zero, sparse. Private memory if not `visible`, or if it cannot be published.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn create(len: usize, visible: bool) -> io::Result<Self> {
        let file = if visible { memfd(len).ok() } else { None };
        let (flags, fd) = match &file {
            Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
            None => (
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
            ),
        };
        // SAFETY: a fresh mapping, of our own file or anonymous.
        let ptr = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                fd,
                0,
            )
        };
        if ptr == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        if let Some(file) = &file {
            // Ours stays the only writable mapping. Kernels before 5.1 do not have this seal: another process of this
            // user could then modify its own view.
            seal(file, libc::F_SEAL_FUTURE_WRITE);
        }
        let ptr = NonNull::new(ptr.cast()).ok_or(ErrorKind::InvalidInput)?;
        Ok(Self {
            ptr,
            len,
            _file: file.map(OwnedDescriptor::new),
            // SAFETY: mapped above, whole pages as mappings are, until it is dropped.
            in_children: Some(unsafe { fork::PrivateInChild::new(ptr, len) }),
        })
    }

    /// First byte; aligned to a page.
    pub fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }
}

impl Drop for RoMemfd {
    fn drop(&mut self) {
        // Before munmap: another mapping may get the addresses at once.
        self.in_children = None;
        // SAFETY: mapped in `create`, unmapped once.
        unsafe { libc::munmap(self.ptr.as_ptr().cast(), self.len) };
    }
}

fn memfd(len: usize) -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: a constant NUL-terminated name and constant flags.
    let fd = unsafe { libc::memfd_create(c"rucp-stats".as_ptr(), flags) };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: a fresh descriptor without another owner.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    file.set_len(len as u64)?;
    seal(&file, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW);
    Ok(file)
}

fn seal(file: &File, seals: i32) {
    // SAFETY: fcntl on an open memfd. Readers do not depend on it.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) };
}

/// The published memories of a process, as far as they are visible.
pub fn of_process(pid: u32) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return Vec::new();
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths
        .filter(|path| fs::read_link(path).is_ok_and(|target| target == Path::new(LINK)))
        .collect()
}

/// A copy of published memory, at most `max` bytes.
///
/// # Errors
/// The errors of opening and reading; `InvalidData` if it is no regular file.
pub fn read(path: &Path, max: usize) -> io::Result<Vec<u8>> {
    // Checked before opening: opening a device can have effects.
    if !fs::metadata(path)?.is_file() {
        return Err(Error::from(ErrorKind::InvalidData));
    }
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(Error::from(ErrorKind::InvalidData));
    }
    let mut bytes = vec![0; meta.size().min(max as u64) as usize];
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], done as u64) {
            // It became shorter since.
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 8192;

    fn mine() -> Vec<Vec<u8>> {
        let paths = of_process(std::process::id());
        paths
            .iter()
            .filter_map(|path| read(path, LEN).ok())
            .collect()
    }

    #[test]
    fn others_read_and_cannot_write() {
        let page = RoMemfd::create(LEN, true).unwrap();
        // SAFETY: inside of the mapping.
        unsafe { page.ptr().as_ptr().add(100).write(77) };
        assert!(
            mine()
                .iter()
                .any(|bytes| bytes.len() == LEN && bytes[100] == 77)
        );
        for path in of_process(std::process::id()) {
            let Ok(file) = fs::OpenOptions::new().read(true).write(true).open(path) else {
                continue;
            };
            assert!(file.write_at(&[1], 100).is_err(), "a write");
            assert!(file.set_len(0).is_err(), "a cut");
        }
    }

    #[test]
    fn private_memory_is_not_found() {
        let page = RoMemfd::create(LEN, false).unwrap();
        // SAFETY: inside of the mapping.
        unsafe { page.ptr().as_ptr().add(100).write(55) };
        assert!(mine().iter().all(|bytes| bytes[100] != 55));
    }

    #[test]
    fn other_descriptors_are_refused() {
        assert!(read(Path::new("/dev/zero"), LEN).is_err());
        assert!(read(Path::new("/proc/self/fd"), LEN).is_err());
        assert!(read(Path::new("/nowhere"), LEN).is_err());
        assert!(of_process(0).is_empty());
    }
}
