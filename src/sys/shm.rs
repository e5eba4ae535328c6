//! Memory that peers can map, of either kind: a System V block where it can be had, else a memfd.

use super::host::HostId;
use super::mapping::Mapping;
use super::memfd::{Memfd, MemfdId};
use super::sysv::SysvSegment;
use std::io;
use std::ptr::NonNull;

/// Identity by which peers find it. Not trusted when a peer sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ShmId {
    /// By number, in the IPC namespace.
    Block(u32),
    /// By descriptor of its owner, in the PID namespace.
    File(MemfdId),
}

/// Shared memory, mapped here; unmapped on drop.
pub enum ShmSegment {
    Block(SysvSegment),
    /// The owner keeps the file open for its peers.
    File {
        map: Mapping,
        _file: Option<Memfd>,
    },
}

impl ShmSegment {
    /// `len` new bytes, zero, sparse, a multiple of the page size. `at`: at this address, in place of a mapping that
    /// the caller owns.
    ///
    /// # Errors
    /// The error of the system calls for the second kind.
    pub fn create(len: usize, at: Option<NonNull<u8>>) -> io::Result<(ShmSegment, ShmId)> {
        if let Ok(block) = SysvSegment::create(len, at) {
            let id = ShmId::Block(block.number());
            return Ok((ShmSegment::Block(block), id));
        }
        let file = Memfd::create(len)?;
        let (map, id) = (file.map(0, len, at)?, ShmId::File(file.id()));
        Ok((
            ShmSegment::File {
                map,
                _file: Some(file),
            },
            id,
        ))
    }

    /// Maps a peer's memory of `len` bytes.
    ///
    /// # Errors
    /// `NotFound` when it does not exist any more, `PermissionDenied` for another user's, `InvalidData` for any other
    /// file or block.
    pub fn open(id: ShmId, len: usize) -> io::Result<ShmSegment> {
        match id {
            ShmId::Block(number) => Ok(ShmSegment::Block(SysvSegment::attach(number, len)?)),
            ShmId::File(id) => {
                let file = Memfd::open(id, len as u64)?;
                Ok(ShmSegment::File {
                    map: file.map(0, len, None)?,
                    _file: None,
                })
            }
        }
    }

    /// First byte.
    pub fn start(&self) -> NonNull<u8> {
        match self {
            ShmSegment::Block(block) => block.ptr(),
            ShmSegment::File { map, .. } => map.start(),
        }
    }
}

impl ShmId {
    /// Whether a process at `here` can find what one at `owner` made.
    pub fn reachable(&self, owner: (u32, u32), here: HostId) -> bool {
        let (pid_ns, ipc_ns) = owner;
        match self {
            ShmId::Block(_) => ipc_ns == here.ipc_ns,
            ShmId::File(_) => pid_ns == here.pid_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::memfd::PAGE;
    use super::*;
    use rustix::mm::MapFlags;

    /// Three pages of this process's, filled with 7.
    fn reserve() -> Mapping {
        // SAFETY: a fresh mapping, then its three pages.
        unsafe {
            let map = Mapping::anonymous(3 * PAGE, MapFlags::PRIVATE, None).unwrap();
            map.ptr().write_bytes(7, 3 * PAGE);
            map
        }
    }

    #[test]
    fn either_kind_takes_the_place_of_what_is_mapped() {
        for file in [false, true] {
            let reserved = reserve();
            let place = reserved.start();
            // SAFETY: the second of three pages.
            let middle = unsafe { place.add(PAGE) };
            let shared = if file {
                let file = Memfd::create(PAGE).unwrap();
                let map = file.map(0, PAGE, Some(middle)).unwrap();
                ShmSegment::File {
                    map,
                    _file: Some(file),
                }
            } else {
                ShmSegment::Block(SysvSegment::create(PAGE, Some(middle)).unwrap())
            };
            assert_eq!(shared.start(), middle);
            // SAFETY: three pages; the one in the middle is the shared one.
            let at = |page: usize| unsafe { place.add(page * PAGE).read() };
            assert_eq!([at(0), at(1), at(2)], [7, 0, 7]);
            drop(shared);
        }
    }
}
