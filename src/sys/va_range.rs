//! Ranges of virtual addresses.

/// Addresses from `start` up to, and without, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VaRange {
    pub start: usize,
    pub end: usize,
}

impl VaRange {
    /// `len` bytes at `start`, cut at the end of the address space.
    #[inline]
    pub const fn new(addr: usize, len: usize) -> Self {
        let end = addr.saturating_add(len);
        VaRange { start: addr, end }
    }

    /// The range of whole pages of `page` bytes (a power of two) that contain it.
    #[inline]
    pub const fn pages(self, page: usize) -> Self {
        let end = self.end.saturating_add(page - 1);
        VaRange {
            start: self.start & !(page - 1),
            end: end & !(page - 1),
        }
    }

    /// Bytes.
    #[inline]
    pub const fn len(self) -> usize {
        self.end.saturating_sub(self.start)
    }

    #[inline]
    pub const fn contains(self, other: VaRange) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    #[inline]
    pub const fn overlaps(self, other: VaRange) -> bool {
        self.start < other.end && other.start < self.end
    }
}
