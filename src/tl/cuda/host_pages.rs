//! Pages of which the driver has said that it does not know them: memory of the host. They are remembered, so that
//! operations on host memory make no call of the driver. What the driver says of other memory is not remembered.
//!
//! Other memory may take the place of such a page, and nothing reports that: no function of libc or of the driver is
//! hooked. What is remembered is therefore checked at each use. The processor cannot read memory of a device: a page
//! that it can read has either stayed the host's, or is memory that the driver shares between host and devices, which
//! the processor may access, too. So a page that is remembered needs one short system call, and never ends in an access
//! that faults.
//!
//! Adapters cannot access managed memory as the processor does: registration caches ask the driver at each new
//! registration.

use crate::options::{Options, Ternary};
use crate::sys::readable::is_readable;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a page: it is the host's as a whole, or the driver's.
pub(super) const PAGE: u64 = 4096;

/// Pages that are remembered; a power of two.
const SLOTS: usize = 2048;

/// The pages that a context remembers.
pub(super) enum HostPages {
    /// None: the options forbid it.
    Unremembered,
    Remembered(PageTable),
}

/// The pages, each at the place of its hash.
pub(super) struct PageTable {
    /// Numbers of pages plus one; 0: none. Relaxed: the number is all that a slot says.
    slots: Box<[AtomicU64]>,
}

impl HostPages {
    /// Remembers nothing yet.
    pub fn new(options: &Options) -> HostPages {
        match options.memtype_cache {
            Ternary::No => HostPages::Unremembered,
            _ => HostPages::Remembered(PageTable::new()),
        }
    }
}

impl PageTable {
    fn new() -> PageTable {
        PageTable {
            slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Whether the processor may access this address, which the driver did not know: by what is remembered, and the
    /// kernel's word that it can read it now.
    pub fn has(&self, addr: u64) -> bool {
        self.slot(addr).load(Ordering::Relaxed) == number(addr) && is_readable(addr)
    }

    /// The driver does not know the address. Remembered if the processor can read it: the driver does not know memory
    /// of a device that was freed either.
    #[cold]
    pub fn insert(&self, addr: u64) {
        if is_readable(addr) {
            self.slot(addr).store(number(addr), Ordering::Relaxed);
        }
    }

    /// The driver knows the address.
    #[cold]
    pub fn remove(&self, addr: u64) {
        let slot = self.slot(addr);
        // Another thread may have stored another page: that one stays.
        let _ = slot.compare_exchange(number(addr), 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn slot(&self, addr: u64) -> &AtomicU64 {
        &self.slots[place(number(addr))]
    }
}

/// Number of the page of an address, plus one.
fn number(addr: u64) -> u64 {
    addr / PAGE + 1
}

/// Place of a page with this number: buffers are often powers of two apart.
fn place(number: u64) -> usize {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    (number.wrapping_mul(MULTIPLIER) >> (u64::BITS - SLOTS.ilog2())) as usize
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sys::mapping::Mapping;
    use rustix::mm::{MapFlags, MprotectFlags, mprotect};

    /// Two pages of the host.
    fn pages() -> Mapping {
        // SAFETY: at an address that the kernel selects.
        unsafe { Mapping::anonymous(2 * PAGE as usize, MapFlags::PRIVATE, None) }.unwrap()
    }

    /// Whether the processor can access the pages from now on.
    fn set_access(pages: &Mapping, access: MprotectFlags) {
        // SAFETY: pages of this test, which hold no object.
        unsafe { mprotect(pages.start().as_ptr().cast(), 2 * PAGE as usize, access) }.unwrap();
    }

    #[test]
    fn a_page_is_known_as_long_as_it_can_be_read() {
        let (pages, table) = (pages(), PageTable::new());
        let addr = pages.start().as_ptr() as u64;
        assert!(!table.has(addr));
        table.insert(addr + 100);
        assert!(table.has(addr) && table.has(addr + PAGE - 1), "one page");
        assert!(!table.has(addr + PAGE), "its neighbour");
        set_access(&pages, MprotectFlags::empty());
        assert!(!table.has(addr), "memory of a device");
        set_access(&pages, MprotectFlags::READ);
        assert!(table.has(addr));
        table.remove(addr + PAGE);
        assert!(table.has(addr), "its neighbour is removed");
        table.remove(addr + 1);
        assert!(!table.has(addr));
    }

    #[test]
    fn unreadable_pages_are_not_remembered() {
        let (pages, table) = (pages(), PageTable::new());
        let addr = pages.start().as_ptr() as u64;
        set_access(&pages, MprotectFlags::empty());
        table.insert(addr);
        set_access(&pages, MprotectFlags::READ);
        assert!(!table.has(addr) && !table.has(0));
    }
}
