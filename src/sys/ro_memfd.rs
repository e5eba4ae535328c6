//! Read-only published memory: this process writes it, other processes of the same user can only read it.
//!
//! It is a memfd that is sealed against resizing and against new writers, found by its name among the descriptors of a
//! process (`/proc/PID/fd`). Readers copy it with `pread`: whatever a writer does or fails to do, they do not fault.

use super::descriptor::OwnedDescriptor;
use super::mapping::Mapping;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::mm::MapFlags;
use std::fs::{self, File};
use std::io::{self, Error, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// Link target of such a descriptor in `/proc/PID/fd`.
const LINK: &str = "/memfd:rucp-stats (deleted)";

/// The writer's side.
pub struct RoMemfd {
    /// Forked children get private memory in its place.
    map: Mapping,
    /// Keeps it findable; `None` for private memory.
    _file: Option<OwnedDescriptor<File>>,
}

impl RoMemfd {
    /// `len` bytes, zero, sparse. Private memory if not `visible`, or if it cannot be published.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn create(len: usize, visible: bool) -> io::Result<Self> {
        let file = if visible { memfd(len).ok() } else { None };
        // SAFETY: at an address that the kernel chooses.
        let map = unsafe {
            match &file {
                Some(file) => Mapping::of_file(file, 0, len, None),
                None => Mapping::anonymous(len, MapFlags::PRIVATE | MapFlags::NORESERVE, None),
            }
        }?;
        if let Some(file) = &file {
            // Ours stays the only writable mapping. Kernels before 5.1 do not have this seal: another process of this
            // user could then modify its own view. Readers do not depend on it.
            let _ = fcntl_add_seals(file, SealFlags::FUTURE_WRITE);
        }
        Ok(Self {
            map: map.without_children(),
            _file: file.map(OwnedDescriptor::new),
        })
    }

    /// First byte; aligned to a page.
    pub fn ptr(&self) -> NonNull<u8> {
        self.map.start()
    }
}

fn memfd(len: usize) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(memfd_create("rucp-stats", flags)?);
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    file.set_len(len as u64)?;
    // Readers do not depend on it.
    let _ = fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW);
    Ok(file)
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
