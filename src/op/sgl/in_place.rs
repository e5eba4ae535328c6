//! Pieces of a list in memory of devices that adapters access where it is, at both sides. The driver is called for the
//! first registration of an allocation, and for a flush after each piece of a get where the device needs one.

use super::SglOp;
use super::device::DevicePiece;
use crate::ctypes::UCP_OP_ATTR_FLAG_FAST_CMPL;
use crate::engine::datatype::Data;
use crate::proto::tx::{rma, zcopy};
use crate::sys::cma::CmaDirection;
use crate::tl::TlZcopy;
use crate::tl::cuda::{CudaContext, DeviceData, DevicePieces, Lookup};
use crate::tl::rma::{RmaDevice, RmaKey};
use std::sync::Arc;

/// Shortest piece of a get of several that an adapter writes to memory of a device that has to be flushed after it,
/// bytes: a flush takes a call of the driver for each piece.
const MIN_FLUSHED: usize = 8 << 10;

impl SglOp<'_> {
    /// Whether HCAs may access memory of devices in place for this list.
    pub(super) fn is_in_place(&self) -> bool {
        self.worker.ctx.tl.takes_gpu_memory() && zcopy::is_possible(self.peer)
    }

    /// Whether an adapter had better access a piece by way of host memory, as far as there is room for it. `is_one`:
    /// the list has no other piece in memory of devices.
    pub(super) fn is_better_copied(
        &self,
        cuda: &CudaContext,
        piece: &DevicePiece,
        is_one: bool,
    ) -> bool {
        match self.direction {
            // It completes before an adapter has read the memory.
            CmaDirection::Write => self.p.has(UCP_OP_ATTR_FLAG_FAST_CMPL),
            CmaDirection::Read => {
                !is_one && piece.len < MIN_FLUSHED && cuda.traits_of(&piece.memory).needs_flush
            }
        }
    }

    /// Posts a piece by an HCA that accesses its memory in place. Returns the piece if it cannot.
    ///
    /// # Safety
    /// The memory of the piece is valid until the request completes.
    pub(super) unsafe fn post_in_place(
        &mut self,
        cuda: &Arc<CudaContext>,
        piece: DevicePiece,
    ) -> Option<DevicePiece> {
        let reads = self.direction == CmaDirection::Read;
        let Some(key @ RmaKey::Rkeys(_)) = piece.key else {
            return Some(piece);
        };
        let whole = (DevicePieces::Contig { addr: piece.here }, piece.len);
        let known = Lookup::knowing(piece.memory);
        let data = Data::of_device(DeviceData::new(cuda, whole, known, piece.memory));
        let Some(memory) = self.registered(&data) else {
            // SAFETY: made in this call, and not used again.
            unsafe { data.drop_unused() };
            return Some(piece);
        };
        data.note_adapters(reads);
        // SAFETY: the caller's promise; all fields of the child are set before it is posted.
        unsafe {
            let child = self.child(data);
            let c = &mut *child;
            rma::set_rma(c, self.direction, piece.there, key);
            rma::in_place(c, piece.there, key, memory);
            self.post(child);
        }
        None
    }

    /// Registers memory of a device, for reads and writes alike.
    fn registered(&self, data: &Data) -> Option<TlZcopy> {
        let (registrar, ptr) = self.worker.registrar_of(data)?;
        registrar.for_deliver(RmaDevice::Ib, (ptr, data.len()))
    }
}
