//! Registration of a request's data with the adapters of a worker.

use super::datatype::Data;
use super::regions::RegionTable;
use super::worker::Worker;
use crate::sys::cma::Spans;
use crate::sys::cuda::{MemoryInfo, MemoryKind};
use crate::tl::TlZcopy;
use crate::tl::cuda::DeviceData;
use crate::tl::registrar::TlRegistrar;
use crate::tl::rma::RmaDevice;

impl Data {
    /// Start of the memory if it is one piece, of the host or of a device. The processor does not access a device's.
    pub fn in_one_piece(&self) -> Option<*mut u8> {
        match *self {
            Data::Contig { ptr, .. } => Some(ptr),
            Data::Device { memory, .. } => {
                // SAFETY: freed by `finish` only.
                let contig = unsafe { (*memory).as_contig() };
                contig.map(|(addr, _)| addr as *mut u8)
            }
            Data::Iov { .. } | Data::Generic { .. } => None,
        }
    }

    /// Their address and what the driver knows of the memory, if they are one piece of a device's.
    pub fn device_piece(&self) -> Option<(u64, MemoryInfo)> {
        match *self {
            // SAFETY: freed by `finish` only.
            Data::Device { memory, .. } => unsafe { (*memory).as_contig() },
            Data::Contig { .. } | Data::Iov { .. } | Data::Generic { .. } => None,
        }
    }

    /// Notes that an adapter writes to them (`is_written`) until the request ends: a device may see that later.
    pub fn note_adapters(&self, is_written: bool) {
        if let Data::Device { memory, .. } = *self
            && is_written
        {
            // SAFETY: freed by `finish` only.
            unsafe { (*memory).note_adapters() };
        }
    }
}

impl Worker {
    /// What registers user memory with the adapters of the worker.
    pub fn registrar(&self) -> TlRegistrar<'_, RegionTable> {
        TlRegistrar {
            context: &self.ctx.tl,
            worker: &self.tl,
            options: &self.ctx.options,
            regions: &self.ctx.regions,
            gpu: None,
        }
    }

    /// What registers data with the adapters of the worker, and where they begin: data in one piece, of the host or of
    /// a GPU. `None`: adapters cannot access them in place.
    pub fn registrar_of(&self, data: &Data) -> Option<(TlRegistrar<'_, RegionTable>, *mut u8)> {
        match *data {
            Data::Contig { ptr, .. } => Some((self.registrar(), ptr)),
            Data::Device { memory, .. } => self.gpu_registrar(memory),
            Data::Iov { .. } | Data::Generic { .. } => None,
        }
    }

    #[cold]
    #[inline(never)]
    fn gpu_registrar(
        &self,
        data: *const DeviceData,
    ) -> Option<(TlRegistrar<'_, RegionTable>, *mut u8)> {
        if !self.ctx.tl.takes_gpu_memory() {
            return None;
        }
        // SAFETY: freed when the request completes, whose data they are.
        let (addr, memory, len) = unsafe {
            let (addr, memory) = (*data).as_contig()?;
            (addr, memory, (*data).len())
        };
        let end = addr.checked_add(len as u64)?;
        let is_inside = memory.contains(addr) && end <= memory.start + memory.len;
        if memory.kind != MemoryKind::Device || !is_inside {
            return None;
        }
        let registrar = TlRegistrar {
            gpu: Some(memory),
            ..self.registrar()
        };
        Some((registrar, addr as *mut u8))
    }

    /// Whether adapters may access data in place, as far as is known before they are registered.
    pub fn is_for_adapters(&self, data: &Data) -> bool {
        match data {
            Data::Contig { .. } => true,
            Data::Device { .. } => self.registrar_of(data).is_some(),
            Data::Iov { .. } | Data::Generic { .. } => false,
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
        match self.registrar_of(data) {
            Some((registrar, ptr)) => registrar.for_deliver(device, (ptr, data.len())),
            // SAFETY: the caller's promise.
            None => unsafe { self.register_pieces(device, (data, data.len()), false) },
        }
    }
}
