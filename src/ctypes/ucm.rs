//! Memory events, which a program that hooks `munmap` itself reports to the library.

/// Memory events.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucm_event_type {
    /// Nothing.
    UCM_EVENT_NONE = 0,
    /// mmap
    UCM_EVENT_MMAP = 1 << 0,
    /// munmap
    UCM_EVENT_MUNMAP = 1 << 1,
    /// mremap
    UCM_EVENT_MREMAP = 1 << 2,
    /// shmat
    UCM_EVENT_SHMAT = 1 << 3,
    /// shmdt
    UCM_EVENT_SHMDT = 1 << 4,
    /// sbrk
    UCM_EVENT_SBRK = 1 << 5,
    /// madvise
    UCM_EVENT_MADVISE = 1 << 6,
    /// brk
    UCM_EVENT_BRK = 1 << 7,
    /// Address space was mapped, by any call.
    UCM_EVENT_VM_MAPPED = 1 << 16,
    /// Address space was unmapped, by any call.
    UCM_EVENT_VM_UNMAPPED = 1 << 17,
    /// Device memory was allocated.
    UCM_EVENT_MEM_TYPE_ALLOC = 1 << 20,
    /// Device memory was freed.
    UCM_EVENT_MEM_TYPE_FREE = 1 << 21,
    /// Do not install hooks.
    UCM_EVENT_FLAG_NO_INSTALL = 1 << 24,
    /// Also report memory that exists already.
    UCM_EVENT_FLAG_EXISTING_ALLOC = 1 << 25,
}
pub use ucm_event_type::*;
/// Memory events.
pub type ucm_event_type_t = ucm_event_type;
