//! Registration of a request's data with the adapters of a worker.

use super::datatype::Data;
use super::regions::RegionTable;
use super::worker::Worker;
use crate::sys::cma::Spans;
use crate::tl::TlZcopy;
use crate::tl::registrar::{MrUse, TlRegistrar};

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

    /// Registers all of a request's data for queue pairs. `None`: the data are sent by messages; so are empty ones.
    ///
    /// # Safety
    /// The entries of a list are valid until the operation completes.
    pub unsafe fn register_data(&self, data: &Data, by: MrUse) -> Option<TlZcopy> {
        if let Some(ptr) = data.as_contig() {
            return self.registrar().contig((ptr, data.len()), by);
        }
        let mut spans = Spans::new();
        // SAFETY: the caller's promise.
        let is_list = unsafe { data.spans(0, data.len(), &mut spans) };
        if !is_list || spans.bytes() < data.len() {
            return None;
        }
        self.registrar().pieces(spans.as_slice(), by)
    }
}
