//! Memory that peers can map, of either kind: a System V block where it can be had, else a memfd.

use super::machine::Place;
use super::segment::{Mapping, Segment, SegmentId};
use super::sysv::Block;
use std::io;
use std::ptr::NonNull;

/// How peers find it. Not trusted when it comes from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SharedId {
    /// By number, in the IPC namespace.
    Block(u32),
    /// By descriptor of its owner, in the PID namespace.
    File(SegmentId),
}

/// Shared memory, mapped here; unmapped on drop.
pub enum Shared {
    Block(Block),
    /// The owner keeps the file open for its peers.
    File {
        map: Mapping,
        _file: Option<Segment>,
    },
}

impl Shared {
    /// `len` new bytes, zero, sparse, a multiple of the page size. `at`: exactly there, instead of what is mapped
    /// there, which the caller owns.
    ///
    /// # Errors
    /// What the system says about the second kind.
    pub fn create(len: usize, at: Option<NonNull<u8>>) -> io::Result<(Shared, SharedId)> {
        if let Ok(block) = Block::create(len, at) {
            let id = SharedId::Block(block.number());
            return Ok((Shared::Block(block), id));
        }
        let file = Segment::create(len)?;
        let (map, id) = (file.map(0, len, at)?, SharedId::File(file.id()));
        Ok((
            Shared::File {
                map,
                _file: Some(file),
            },
            id,
        ))
    }

    /// Maps a peer's memory of `len` bytes.
    ///
    /// # Errors
    /// `NotFound` when it is gone, `PermissionDenied` for another user's, `InvalidData` for what is
    /// something else.
    pub fn open(id: SharedId, len: usize) -> io::Result<Shared> {
        match id {
            SharedId::Block(number) => Ok(Shared::Block(Block::attach(number, len)?)),
            SharedId::File(id) => {
                let file = Segment::open(id, len as u64)?;
                Ok(Shared::File {
                    map: file.map(0, len, None)?,
                    _file: None,
                })
            }
        }
    }

    /// First byte.
    pub fn start(&self) -> NonNull<u8> {
        match self {
            Shared::Block(block) => block.ptr(),
            Shared::File { map, .. } => map.start(),
        }
    }
}

impl SharedId {
    /// Whether a process at `here` can find what one at `owner` made.
    pub fn reachable(&self, owner: (u32, u32), here: Place) -> bool {
        let (pid_ns, ipc_ns) = owner;
        match self {
            SharedId::Block(_) => ipc_ns == here.ipc_ns,
            SharedId::File(_) => pid_ns == here.pid_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::segment::PAGE;
    use super::*;

    /// Three pages of this process's, filled with 7.
    fn reserve() -> NonNull<u8> {
        let (prot, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a fresh mapping, then its three pages.
        unsafe {
            let ptr = libc::mmap(std::ptr::null_mut(), 3 * PAGE, prot, flags, -1, 0).cast::<u8>();
            ptr.write_bytes(7, 3 * PAGE);
            NonNull::new(ptr).unwrap()
        }
    }

    #[test]
    fn either_kind_takes_the_place_of_what_is_mapped() {
        for file in [false, true] {
            let place = reserve();
            // SAFETY: the second of three pages.
            let middle = unsafe { place.add(PAGE) };
            let shared = if file {
                let file = Segment::create(PAGE).unwrap();
                let map = file.map(0, PAGE, Some(middle)).unwrap();
                Shared::File {
                    map,
                    _file: Some(file),
                }
            } else {
                Shared::Block(Block::create(PAGE, Some(middle)).unwrap())
            };
            assert_eq!(shared.start(), middle);
            // SAFETY: three pages; the one in the middle is the shared one.
            let at = |page: usize| unsafe { place.add(page * PAGE).read() };
            assert_eq!([at(0), at(1), at(2)], [7, 0, 7]);
            drop(shared);
            // SAFETY: mapped above, unmapped once; nothing is in the middle any more.
            unsafe { libc::munmap(place.as_ptr().cast(), 3 * PAGE) };
        }
    }
}
