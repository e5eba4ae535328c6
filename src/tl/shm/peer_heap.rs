//! The shared heap of a peer's process: what this process maps of it, to copy from and to the peer's memory without the
//! kernel.

use super::InboxLocator;
use super::memory::Theirs;
use crate::sys::log;
use crate::sys::mapping::Mapping;
use crate::sys::memfd::{Memfd, MemfdId};
use crate::sys::shared_heap;
use crate::sys::sync::{OnceLock, Ordering};
use rucp_heap_directory::{Directory, MAX_SEGMENTS, Segment};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

/// Where the owner of an inbox publishes by what peers open the directory of its process's heap.
#[derive(Debug, Default)]
pub(super) struct HeapWords {
    fd: AtomicU32,
    /// 0: the process has no heap.
    ino: AtomicU32,
}

impl HeapWords {
    /// Publishes a directory, before the inbox is published.
    pub(super) fn publish(&self, id: MemfdId) {
        // Relaxed: the Release store of the inbox's magic comes after it.
        self.fd.store(id.fd, Ordering::Relaxed);
        self.ino.store(id.ino, Ordering::Relaxed);
    }

    /// The directory of process `pid`.
    fn id(&self, pid: u32) -> Option<MemfdId> {
        // Relaxed: the Acquire load of the inbox's magic came before.
        let (fd, ino) = (
            self.fd.load(Ordering::Relaxed),
            self.ino.load(Ordering::Relaxed),
        );
        (ino != 0).then_some(MemfdId { pid, fd, ino })
    }
}

/// The heap of a peer's process.
pub(super) struct PeerHeap {
    pid: u32,
    /// A [`Directory`], which the peer writes.
    directory: Mapping,
    /// The segments by number, mapped when they are first used. `None`: the system has refused it.
    segments: [OnceLock<Option<MappedSegment>>; MAX_SEGMENTS],
}

struct MappedSegment {
    /// As the directory had it when it was mapped.
    segment: Segment,
    /// All of it.
    memory: Mapping,
}

impl PeerHeap {
    /// The heap of the process that owns an inbox of this host. `None`: it has none that this process can map.
    pub(super) fn open(inbox: InboxLocator) -> Option<Box<PeerHeap>> {
        let theirs = Theirs::open(inbox).ok()?;
        let id = theirs.table().front().heap.id(inbox.id.pid)?;
        let directory = map(id, size_of::<Directory>() as u64)
            .inspect_err(|e| log::debug!("cannot map the heap of process {}: {e}", id.pid))
            .ok()?;
        log::debug!("process {} has a shared heap", id.pid);
        Some(Box::new(PeerHeap {
            pid: id.pid,
            directory,
            segments: [const { OnceLock::new() }; MAX_SEGMENTS],
        }))
    }

    /// Where this process has `len` bytes at an address of the peer. `None`: they are not in a segment of its heap, or
    /// cannot be mapped. The memory stays mapped as long as `self`.
    pub(super) fn local(&self, addr: u64, len: usize) -> Option<NonNull<u8>> {
        // SAFETY: mapped as long as `self`, of that size, and its fields are atomics.
        let directory = unsafe { self.directory.start().cast::<Directory>().as_ref() };
        let (number, segment) = directory.find(addr, len as u64)?;
        let mapped = self.segments[number].get_or_init(|| self.map(segment));
        let mapped = mapped.as_ref()?;
        let at = mapped.segment.offset_of(addr, len as u64)?;
        // A segment does not change. A peer that has changed it all the same is not believed.
        // SAFETY: the offset is inside of the mapping, whose length was checked.
        (mapped.segment == segment).then(|| unsafe { mapped.memory.start().add(at as usize) })
    }

    fn map(&self, segment: Segment) -> Option<MappedSegment> {
        let Segment { file, len, .. } = segment;
        match map(shared_heap::memfd_of(self.pid, file), len) {
            Ok(memory) => Some(MappedSegment { segment, memory }),
            Err(e) => {
                let pid = self.pid;
                log::debug!("cannot map {len} bytes of the heap of process {pid}: {e}");
                None
            }
        }
    }
}

/// Maps a peer's file of exactly `len` bytes.
fn map(id: MemfdId, len: u64) -> io::Result<Mapping> {
    let file = Memfd::open(id, len)?;
    if file.len() as u64 != len {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(file.map(0, file.len(), None)?.without_children())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sys::memfd::PAGE;
    use rucp_heap_directory::FileId;

    /// A heap of this process with one segment, as peers see it, and what keeps it.
    fn heap(segment: impl FnOnce(&Memfd) -> Segment) -> (PeerHeap, Memfd) {
        let directory = Memfd::create(size_of::<Directory>()).unwrap();
        let memory = Memfd::create(4 * PAGE).unwrap();
        let mapped = directory.map(0, directory.len(), None).unwrap();
        // SAFETY: mapped as long as `mapped`, zeroed, and its fields are atomics.
        let table = unsafe { mapped.start().cast::<Directory>().as_ref() };
        table.publish(0, segment(&memory));
        let heap = PeerHeap {
            pid: std::process::id(),
            directory: mapped,
            segments: [const { OnceLock::new() }; MAX_SEGMENTS],
        };
        (heap, memory)
    }

    fn segment_of(memory: &Memfd, base: u64, len: usize) -> Segment {
        let (fd, ino) = (memory.id().fd, memory.id().ino);
        let (file, len) = (FileId { fd, ino }, len as u64);
        Segment { file, base, len }
    }

    fn table(heap: &PeerHeap) -> &Directory {
        // SAFETY: as in `PeerHeap::local`.
        unsafe { heap.directory.start().cast().as_ref() }
    }

    #[test]
    fn an_address_of_the_peer_leads_to_the_same_memory() {
        let (heap, memory) = heap(|memory| segment_of(memory, 0x10_0000, 4 * PAGE));
        let own = memory.map(0, 4 * PAGE, None).unwrap();
        let there = heap.local(0x10_0000 + PAGE as u64, 8).unwrap();
        // SAFETY: both mappings have that byte.
        unsafe {
            own.ptr().add(PAGE).write(7);
            assert_eq!(there.read(), 7);
        }
        assert!(heap.local(0x10_0000 + 4 * PAGE as u64 - 8, 8).is_some());
        assert!(heap.local(0x10_0000 + 4 * PAGE as u64 - 8, 9).is_none());
        table(&heap).withdraw(0);
        assert!(heap.local(0x10_0000, 8).is_none());
    }

    #[test]
    fn a_directory_that_lies_leads_nowhere() {
        let longer = |memory: &Memfd| segment_of(memory, 0x10_0000, 64 * PAGE);
        assert!(
            heap(longer).0.local(0x10_0000, 8).is_none(),
            "longer than its file"
        );
        let shorter = |memory: &Memfd| segment_of(memory, 0x10_0000, PAGE);
        assert!(
            heap(shorter).0.local(0x10_0000, 8).is_none(),
            "shorter than its file"
        );
        let huge = |memory: &Memfd| segment_of(memory, u64::MAX - 10, usize::MAX);
        assert!(
            heap(huge).0.local(u64::MAX - 5, 2).is_none(),
            "more than there is"
        );
        let stale = |memory: &Memfd| Segment {
            file: FileId {
                fd: memory.id().fd,
                ino: memory.id().ino ^ 1,
            },
            ..segment_of(memory, 0x10_0000, 4 * PAGE)
        };
        assert!(heap(stale).0.local(0x10_0000, 8).is_none(), "another file");
    }

    #[test]
    fn a_segment_that_changes_is_not_believed() {
        let (heap, memory) = heap(|memory| segment_of(memory, 0x10_0000, 4 * PAGE));
        assert!(heap.local(0x10_0000, 8).is_some());
        table(&heap).publish(0, segment_of(&memory, 0x20_0000, 4 * PAGE));
        assert!(heap.local(0x10_0000, 8).is_none() && heap.local(0x20_0000, 8).is_none());
    }
}
