//! Memory of GPUs that a context's devices access in place, registered by a descriptor of the driver (dma-buf).
//!
//! Whole allocations are registered, and stay so for later operations. A registration is used again only if the driver
//! says that the allocation at its address is the same one, which the caller has asked it for. It keeps the memory of
//! one that the program has freed: such registrations are found, and ended, once a second, and some of them when
//! another allocation is registered, which asks the driver about as many as were freed, and a few more.

use super::mr::{Devices, IbMr};
use crate::sys::clock;
use crate::sys::cuda::{CuDevice, Cuda, MemoryInfo};
use crate::sys::log;
use crate::sys::regcache::Handle;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::io;

/// Most allocations whose registrations are kept, and refusals that are remembered.
const MAX_KEPT: usize = 256;

/// Allocations that still exist, at most, about which the driver is asked when another one is registered.
const MAX_LIVE_ASKED: usize = 2;

/// Time between two looks for memory that the program has freed, milliseconds.
const LOOK_MS: u64 = 1000;

/// Registrations of memory of GPUs.
pub struct DmaBufMrs {
    devices: Devices,
    /// Registrations outlive the operations that use them.
    keeps: bool,
    state: Mutex<DmaBufState>,
}

#[derive(Default)]
struct DmaBufState {
    /// By the first byte of the allocation.
    known: BTreeMap<u64, KnownMemory>,
    /// Whether adapters can register memory of a GPU, as far as was asked.
    gpus: HashMap<CuDevice, bool>,
    /// Number of lookups: the time in which uses are compared.
    clock: u64,
    /// When freed memory was last looked for everywhere, coarse milliseconds.
    looked_at: u64,
    /// The address from which on the next registration looks for freed memory.
    next_asked: u64,
}

/// What is known of an allocation.
struct KnownMemory {
    /// That of the allocation: a later one at the address has another.
    buffer_id: u64,
    /// Bytes.
    len: u64,
    /// `None`: it cannot be registered, and is not tried again.
    registered: Option<Handle<IbMr>>,
    last_use: u64,
}

impl KnownMemory {
    fn is(&self, memory: &MemoryInfo) -> bool {
        self.buffer_id == memory.buffer_id && self.len == memory.len
    }

    /// Whether the driver still has the allocation, whose first byte is at `start`.
    fn exists(&self, cuda: &Cuda, start: u64) -> bool {
        let memory = cuda.memory_at(start);
        memory.start == start && self.is(&memory)
    }
}

impl DmaBufMrs {
    /// Nothing is registered. `keeps`: registrations outlive the operations that use them.
    pub fn new(devices: Devices, keeps: bool) -> DmaBufMrs {
        DmaBufMrs {
            devices,
            keeps,
            state: Mutex::default(),
        }
    }

    /// The registration of an allocation of a GPU, as the driver knows it now. `None`: adapters cannot access it.
    pub fn get(&self, memory: &MemoryInfo) -> Option<Handle<IbMr>> {
        let cuda = Cuda::opened().filter(|_| memory.buffer_id != 0)?;
        let mut state = self.state.lock();
        state.clock += 1;
        let now = state.clock;
        if let Some(known) = state.known.get_mut(&memory.start).filter(|k| k.is(memory)) {
            known.last_use = now;
            return known.registered.clone();
        }
        let is_supported = state.gpus.entry(memory.device);
        if !*is_supported.or_insert_with(|| cuda.has_dmabuf(memory.device)) {
            return None;
        }
        state.drop_replaced(memory);
        state.drop_some_freed(|start, known| known.exists(cuda, start));
        // It can take long. Another thread may register the same allocation: both registrations are good.
        let register = || register(&self.devices, cuda, memory);
        let registered = MutexGuard::unlocked(&mut state, register);
        if let Err(e) = &registered {
            note_refusal(memory, e);
            if e.is_final() {
                state.gpus.insert(memory.device, false);
                return None;
            }
        }
        let registered = registered.ok();
        if self.keeps || registered.is_none() {
            state.keep(memory, registered.clone(), now);
        }
        registered
    }

    /// Whether it is known that adapters cannot access an allocation of a GPU, as the driver knows it now.
    pub fn is_refused(&self, memory: &MemoryInfo) -> bool {
        self.state.lock().is_refused(memory)
    }

    /// Ends the registrations of allocations that the program has freed. To be called now and then.
    pub fn trim(&self) {
        let (Some(cuda), Some(mut state)) = (Cuda::opened(), self.state.try_lock()) else {
            return;
        };
        let now = clock::coarse_ms();
        if !state.known.is_empty() && now >= state.looked_at.saturating_add(LOOK_MS) {
            state.looked_at = now;
            state.drop_freed(cuda);
        }
    }
}

impl DmaBufState {
    /// Whether adapters have refused this allocation, or all memory of its GPU.
    fn is_refused(&self, memory: &MemoryInfo) -> bool {
        let known = self.known.get(&memory.start).filter(|k| k.is(memory));
        memory.buffer_id == 0
            || self.gpus.get(&memory.device) == Some(&false)
            || known.is_some_and(|known| known.registered.is_none())
    }

    /// Ends the registrations of allocations that the program has freed, as soon as no operation uses them.
    fn drop_freed(&mut self, cuda: &Cuda) {
        self.known.retain(|&start, known| known.exists(cuda, start));
    }

    /// Ends the registrations of allocations whose addresses are those of a later one.
    fn drop_replaced(&mut self, memory: &MemoryInfo) {
        let end = memory.start.saturating_add(memory.len);
        // Allocations that exist do not overlap, so those that begin below it and reach into it are the last ones.
        loop {
            let last = self.known.range(..end).next_back();
            match last.filter(|(start, known)| start.saturating_add(known.len) > memory.start) {
                Some((&start, _)) => self.known.remove(&start),
                None => return,
            };
        }
    }

    /// Ends registrations of freed allocations, from the one on at which the last call has ended, until
    /// [`MAX_LIVE_ASKED`] were found that still exist.
    fn drop_some_freed(&mut self, exists: impl Fn(u64, &KnownMemory) -> bool) {
        let mut live = 0;
        for _ in 0..self.known.len() {
            let next = self.known.range(self.next_asked..).next();
            let Some((&start, known)) = next.or_else(|| self.known.first_key_value()) else {
                return;
            };
            self.next_asked = start.saturating_add(1);
            match exists(start, known) {
                true => live += 1,
                false => drop(self.known.remove(&start)),
            }
            if live == MAX_LIVE_ASKED {
                return;
            }
        }
    }

    /// Remembers an allocation, in place of the one that was used least recently if there are too many.
    fn keep(&mut self, memory: &MemoryInfo, registered: Option<Handle<IbMr>>, now: u64) {
        if self.known.len() >= MAX_KEPT {
            let oldest = self.known.iter().min_by_key(|(_, known)| known.last_use);
            if let Some(start) = oldest.map(|(&start, _)| start) {
                self.known.remove(&start);
            }
        }
        let known = KnownMemory {
            buffer_id: memory.buffer_id,
            len: memory.len,
            registered,
            last_use: now,
        };
        self.known.insert(memory.start, known);
    }
}

/// Why memory of a GPU is not registered.
enum Refusal {
    /// The driver has no descriptor of this memory.
    Memory(crate::sys::cuda::CudaError),
    /// An adapter does not register it.
    Adapter(io::Error),
}

impl Refusal {
    /// Whether no memory of the GPU can be registered.
    fn is_final(&self) -> bool {
        matches!(self, Refusal::Adapter(e) if is_unsupported(e))
    }
}

/// Whether a library or a device registers no memory by descriptors.
fn is_unsupported(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::Unsupported || e.raw_os_error() == Some(libc::EOPNOTSUPP)
}

fn register(devices: &Devices, cuda: &Cuda, memory: &MemoryInfo) -> Result<Handle<IbMr>, Refusal> {
    // What a synchronous copy of the program has written is there for adapters.
    cuda.synchronize_memops(memory.start);
    let pages = cuda
        .dmabuf(memory, memory.start, memory.len)
        .map_err(Refusal::Memory)?;
    devices.register_dmabuf(&pages).map_err(Refusal::Adapter)
}

fn note_refusal(memory: &MemoryInfo, refusal: &Refusal) {
    let (device, start, len) = (memory.device, memory.start, memory.len);
    match refusal {
        Refusal::Memory(e) => log::diag!(
            "{len} bytes of GPU {device} at {start:#x} have no descriptor for adapters, and are copied: {e}"
        ),
        Refusal::Adapter(e) if is_unsupported(e) => log::diag!(
            "adapters cannot register memory of GPU {device}, which is copied through host memory: {e}"
        ),
        Refusal::Adapter(e) => log::diag!(
            "{len} bytes of GPU {device} at {start:#x} are not registered with an adapter, and are copied: {e}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const LEN: u64 = 0x1000;

    /// Allocations of [`LEN`] bytes, one behind another, none of them registered.
    fn state(count: u64) -> DmaBufState {
        let mut state = DmaBufState::default();
        for i in 0..count {
            state.keep(&allocation(i * LEN, LEN, i + 1), None, i);
        }
        state
    }

    fn allocation(start: u64, len: u64, buffer_id: u64) -> MemoryInfo {
        MemoryInfo {
            start,
            len,
            buffer_id,
            ..MemoryInfo::HOST
        }
    }

    #[test]
    fn a_registration_asks_about_what_was_freed_and_little_more() {
        let mut state = state(100);
        let asked = Cell::new(0);
        // The last ten were freed.
        let exists = |start, _: &KnownMemory| {
            asked.set(asked.get() + 1);
            start < 90 * LEN
        };
        let mut turns = 0;
        while state.known.len() > 90 {
            let (before, len) = (asked.get(), state.known.len());
            state.drop_some_freed(exists);
            let freed = len - state.known.len();
            assert!(asked.get() - before <= freed + MAX_LIVE_ASKED);
            turns += 1;
            assert!(turns <= 100, "freed allocations are found");
        }
        assert_eq!(turns, 46);
    }

    #[test]
    fn all_are_freed_at_once_and_none_of_none() {
        let mut state = state(10);
        state.next_asked = 5 * LEN;
        state.drop_some_freed(|_, _| false);
        assert!(state.known.is_empty());
        state.drop_some_freed(|_, _| unreachable!());
    }

    #[test]
    fn refusals_are_those_of_an_allocation_or_of_a_gpu() {
        let mut state = state(2);
        let (first, other) = (allocation(0, LEN, 1), allocation(8 * LEN, LEN, 9));
        assert!(state.is_refused(&first) && !state.is_refused(&other));
        assert!(!state.is_refused(&allocation(0, LEN, 7)), "a later one");
        assert!(
            state.is_refused(&allocation(8 * LEN, LEN, 0)),
            "without an id"
        );
        state.gpus.insert(other.device, false);
        assert!(state.is_refused(&other));
    }

    #[test]
    fn an_allocation_replaces_those_whose_addresses_it_has() {
        let mut state = state(10);
        // From inside of the third to inside of the fifth.
        state.drop_replaced(&allocation(2 * LEN + 8, 2 * LEN, 100));
        let left: Vec<u64> = state.known.keys().map(|start| start / LEN).collect();
        assert_eq!(left, [0, 1, 5, 6, 7, 8, 9]);
        state.drop_replaced(&allocation(3 * LEN, LEN, 101));
        assert_eq!(state.known.len(), 7);
    }
}
