//! Registration of a request's data with InfiniBand devices.

use super::datatype::Data;
use super::worker::Worker;
use crate::sys::cma::{IoSpan, Spans};
use crate::sys::regcache::Handle;
use crate::tl::ib::mr::IbMr;
use crate::tl::ib::registration::MrUse;

/// Pieces of a list that are shorter on average are copied, bytes.
const MIN_SGE_BYTES: usize = 4 << 10;

impl Worker {
    /// Registers user memory for devices. `None`: the data are sent by messages; so are empty ones.
    pub fn register_ib(&self, ptr: *mut u8, len: usize, by: MrUse) -> Option<Handle<IbMr>> {
        let registrations = self.ctx.tl.ib.registrations(&self.ctx.options);
        registrations.register(&self.tl.ib.registrations, ptr, len, by)
    }

    /// Registers all pieces of a request's data that are not empty, in their order. `None` for a list of short pieces:
    /// to copy these costs less than to register them.
    ///
    /// # Safety
    /// The entries of a list are valid until the operation completes.
    pub unsafe fn register_ib_all(&self, data: &Data, by: MrUse) -> Option<Vec<Handle<IbMr>>> {
        if let Some(ptr) = data.as_contig() {
            return Some(vec![self.register_ib(ptr, data.len(), by)?]);
        }
        let mut spans = Spans::new();
        // SAFETY: the caller's promise.
        let is_list = unsafe { data.spans(0, data.len(), &mut spans) };
        let pieces = spans.as_slice();
        if !is_list || spans.bytes() < data.len() || data.len() < pieces.len() * MIN_SGE_BYTES {
            return None;
        }
        let pin = |piece: &IoSpan| self.register_ib(piece.addr as *mut u8, piece.len, by);
        pieces.iter().map(pin).collect()
    }
}
