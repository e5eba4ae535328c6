//! System V shared memory that is marked for removal as soon as it is attached.
//!
//! Linux lets other processes attach a marked segment by its number while one has it attached, and frees it with the
//! last detach, by exit or kill too. It is found across PID namespaces, as long as the IPC namespace is the same: that
//! is the case for containers that share /dev/shm.

use super::mapping::Mapping;
use super::mem_monitor::page_size;
use super::{host, process};
use std::io::{self, Error, ErrorKind};
use std::ptr::NonNull;

/// A segment, attached; detached on drop.
pub struct SysvSegment {
    ptr: NonNull<u8>,
    len: usize,
    number: u32,
}

// SAFETY: a block is plain memory; its users synchronise their accesses.
unsafe impl Send for SysvSegment {}
// SAFETY: a block is plain memory, to which `SysvSegment` only hands out a pointer.
unsafe impl Sync for SysvSegment {}

impl SysvSegment {
    /// A new block of `len` bytes, zero, sparse, for this user only. `place`: at this address, in place of a mapping
    /// that the caller owns.
    ///
    /// # Errors
    /// `ENOSPC` (the system's limits are reached), `ENOMEM`, `ENOSYS`, `EINVAL` (no address for a block).
    pub fn create(len: usize, place: Option<NonNull<u8>>) -> io::Result<Self> {
        // Not reserved: nearly all of an inbox is never touched.
        let flags = libc::IPC_CREAT | libc::IPC_EXCL | libc::SHM_NORESERVE | 0o600;
        // SAFETY: no memory involved.
        let number = unsafe { libc::shmget(libc::IPC_PRIVATE, len, flags) };
        if number < 0 {
            return Err(Error::last_os_error());
        }
        let block = at(number, len, place);
        // Attached or not: from here on only attachments keep it.
        // SAFETY: no memory involved.
        unsafe { libc::shmctl(number, libc::IPC_RMID, std::ptr::null_mut()) };
        block
    }

    /// Attaches another process's block, which must be `len` bytes long and this user's.
    ///
    /// # Errors
    /// `NotFound` when it is gone; `PermissionDenied`; `InvalidData` for one of another length.
    pub fn attach(number: u32, len: usize) -> io::Result<Self> {
        let found = FoundSegment::find(number)?;
        if found.user != host::user() {
            return Err(ErrorKind::PermissionDenied.into());
        }
        found.attach(len)
    }

    /// First byte.
    pub fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The number by which peers attach it.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Converts it into a mapping, of which a part can be unmapped: the block exists as long as a part of it is
    /// attached.
    pub fn into_mapping(self) -> Mapping {
        let block = std::mem::ManuallyDrop::new(self);
        // SAFETY: attached, and not detached elsewhere. An attached block is unmapped like any other memory.
        unsafe { Mapping::from_raw(block.ptr, block.len.next_multiple_of(page_size())) }
    }
}

/// Another process's block as a look-up has found it, to be attached right after.
#[derive(Clone, Copy, Debug)]
pub struct FoundSegment {
    number: u32,
    len: usize,
    user: u32,
    /// No process has detached it yet.
    is_never_detached: bool,
}

impl FoundSegment {
    /// Looks a block up.
    ///
    /// # Errors
    /// `NotFound` when it is gone; `PermissionDenied`: another user's.
    pub fn find(number: u32) -> io::Result<Self> {
        let stat = stat(number)?;
        Ok(Self {
            number,
            len: stat.shm_segsz,
            user: stat.shm_perm.uid,
            is_never_detached: stat.shm_dtime == 0,
        })
    }

    /// The user that it belongs to.
    pub fn user(&self) -> u32 {
        self.user
    }

    /// Whether it is certain that the process that made it still has it attached: that process runs, and has not
    /// executed another program. False once any process has detached it.
    pub fn is_certainly_attached(&self) -> bool {
        self.is_never_detached
    }

    /// Attaches it. The caller has checked the user.
    ///
    /// # Errors
    /// `NotFound` when it is gone; `InvalidData`: it is not `len` bytes long.
    pub fn attach(self, len: usize) -> io::Result<SysvSegment> {
        if self.len != len {
            return Err(Error::new(ErrorKind::InvalidData, "not an inbox"));
        }
        at(self.number as i32, len, None)
    }
}

impl Drop for SysvSegment {
    fn drop(&mut self) {
        // SAFETY: attached once, detached once.
        unsafe { libc::shmdt(self.ptr.as_ptr().cast()) };
    }
}

/// The process that made a block, if it is visible from here.
pub fn creator(number: u32) -> Option<u32> {
    stat(number)
        .ok()
        .filter(|s| s.shm_cpid > 0)
        .map(|s| s.shm_cpid as u32)
}

/// Whether the process that made a block still exists; `None` if it is not visible from here (it is in a PID namespace
/// that is not below ours).
pub fn creator_alive(number: u32) -> Option<bool> {
    match stat(number) {
        Ok(s) if s.shm_cpid > 0 => Some(process::is_running(s.shm_cpid as u32)),
        Ok(_) => None,
        Err(e) => (e.kind() == ErrorKind::NotFound).then_some(false),
    }
}

/// Whether a process has a block attached, as far as its mappings are visible.
pub fn is_attached_by(number: u32, pid: u32) -> bool {
    process::has_mapped(pid, |m| {
        m.inode == u64::from(number) && m.path.starts_with("/SYSV")
    })
}

fn at(number: i32, len: usize, place: Option<NonNull<u8>>) -> io::Result<SysvSegment> {
    let flags = if place.is_some() { libc::SHM_REMAP } else { 0 };
    let place = place.map_or(std::ptr::null(), |p| p.as_ptr().cast_const().cast());
    // SAFETY: a fresh mapping. It replaces nothing without `place`, and there only what the caller owns.
    let ptr = unsafe { libc::shmat(number, place, flags) };
    if ptr as isize == -1 {
        return Err(gone(Error::last_os_error()));
    }
    let ptr = NonNull::new(ptr.cast()).ok_or(ErrorKind::InvalidInput)?;
    Ok(SysvSegment {
        ptr,
        len,
        number: number as u32,
    })
}

fn stat(number: u32) -> io::Result<libc::shmid_ds> {
    // SAFETY: an all-zero structure is a valid value.
    let mut stat: libc::shmid_ds = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is valid for writes.
    if unsafe { libc::shmctl(number as i32, libc::IPC_STAT, &mut stat) } < 0 {
        return Err(gone(Error::last_os_error()));
    }
    Ok(stat)
}

/// Maps errors for a number that names no block any more to `NotFound`.
fn gone(e: Error) -> Error {
    match e.raw_os_error() {
        Some(libc::EINVAL | libc::EIDRM) => ErrorKind::NotFound.into(),
        _ => e,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block lives as long as one page of it is attached.
    #[test]
    fn a_page_keeps_a_block() {
        let block = SysvSegment::create(3 * 4096, None).unwrap();
        let number = block.number();
        let page = block.into_mapping().cut(4096..8192);
        assert_eq!(creator_alive(number), Some(true));
        // SAFETY: one page, twice.
        unsafe {
            page.ptr().write(7);
            let again = SysvSegment::attach(number, 3 * 4096).unwrap();
            assert_eq!(again.ptr().add(4096).read(), 7);
        }
        drop(page);
        assert_eq!(creator_alive(number), Some(false));
    }

    /// That the process which made a block has it attached is certain until any process detaches it.
    #[test]
    fn a_look_up_shows_that_the_maker_is_alive() {
        let block = SysvSegment::create(4096, None).unwrap();
        let number = block.number();
        let find = || FoundSegment::find(number).unwrap();
        assert_eq!(find().user(), host::user());
        assert!(find().is_certainly_attached());
        assert!(find().attach(8192).is_err(), "another length");
        let again = find().attach(4096).unwrap();
        assert!(find().is_certainly_attached());
        drop(again);
        assert!(!find().is_certainly_attached());
    }

    #[test]
    fn attached_by_number_and_gone_with_the_last() {
        let a = SysvSegment::create(8192, None).unwrap();
        let b = SysvSegment::attach(a.number(), 8192).unwrap();
        // SAFETY: both are 8192 bytes long.
        unsafe {
            a.ptr().add(5000).write(7);
            assert_eq!(b.ptr().add(5000).read(), 7);
        }
        assert!(
            SysvSegment::attach(a.number(), 4096).is_err(),
            "another length"
        );
        assert_eq!(creator_alive(a.number()), Some(true));
        let number = a.number();
        drop((a, b));
        assert_eq!(
            SysvSegment::attach(number, 8192).err().map(|e| e.kind()),
            Some(ErrorKind::NotFound)
        );
        assert_eq!(creator_alive(number), Some(false));
    }
}
