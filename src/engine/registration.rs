//! Registration of a request's data with the adapters of a worker.

use super::datatype::Data;
use super::regions::RegionTable;
use super::worker::Worker;
use crate::sys::cma::Spans;
use crate::tl::TlZcopy;
use crate::tl::registrar::TlRegistrar;
use crate::tl::rma::RmaDevice;

impl Worker {
    /// What registers user memory with the adapters of the worker.
    pub fn registrar(&self) -> TlRegistrar<'_, RegionTable> {
        TlRegistrar {
            context: &self.ctx.tl,
            worker: &self.tl,
            options: &self.ctx.options,
            regions: &self.ctx.regions,
        }
    }

    /// Registers the first `len` bytes of a list of pieces for operations of this side on memory of peers. `reads`: the
    /// operations are gets. `None`: the data are no list, or are better sent by messages; so are empty ones.
    ///
    /// # Safety
    /// The entries of a list are valid until the operation completes.
    pub unsafe fn register_pieces(
        &self,
        device: RmaDevice,
        (data, len): (&Data, usize),
        reads: bool,
    ) -> Option<TlZcopy> {
        let mut spans = Spans::new();
        // SAFETY: the caller's promise.
        let is_list = unsafe { data.spans(0, len, &mut spans) };
        if !is_list || spans.bytes() < len {
            return None;
        }
        self.registrar().pieces(device, spans.as_slice(), reads)
    }

    /// Registers the data of a request from which this side writes a message.
    ///
    /// # Safety
    /// The entries of a list are valid until the operation completes.
    pub unsafe fn register_for_deliver(&self, device: RmaDevice, data: &Data) -> Option<TlZcopy> {
        match data.as_contig() {
            Some(ptr) => self.registrar().for_deliver(device, (ptr, data.len())),
            // SAFETY: the caller's promise.
            None => unsafe { self.register_pieces(device, (data, data.len()), false) },
        }
    }
}
