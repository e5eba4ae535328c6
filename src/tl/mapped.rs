//! What registration of user memory reads of the layers above.

/// The regions of `ucp_mem_map`.
pub trait MappedRegions {
    /// Start and length of a region that contains these bytes, if one does.
    fn around(&self, addr: u64, len: u64) -> Option<(u64, u64)>;
}
