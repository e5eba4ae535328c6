//! The TNI of a worker as the unit that executes atomic operations on memory of this process.

use super::amo::{AmoCaps, TofuAmo};
use super::context::{TofuContext, TofuShared};
use super::iface::TofuIface;
use super::region::TofuRegion;
use super::utofu::code_name;
use super::vcq::RemoteAddr;
use crate::tl::amo::{AmoOp, AmoUnit};
use std::io;
use std::sync::Arc;

/// The TNI of a worker, and the remote address of the word.
struct TofuAmoUnit<'a> {
    iface: &'a TofuIface,
    offered: AmoCaps,
    there: RemoteAddr,
}

impl AmoUnit for TofuAmoUnit<'_> {
    fn step(&mut self, amo: AmoOp) -> Option<io::Result<u64>> {
        let step = TofuAmo::new(amo)?;
        if !self.offered.has(step.verb) {
            return None;
        }
        let done = self.iface.queue.lock().execute(step, self.there);
        Some(done.map_err(|code| io::Error::other(format!("{} ({code})", code_name(code)))))
    }
}

impl TofuContext {
    /// Executes an operation on registered memory by a worker's TNI. `shared`: that of the worker, if it has one;
    /// `region`: the memory's region. `None`: no STADD covers the address.
    ///
    /// # Safety
    /// `addr` points to `amo.size` bytes of the region and is aligned to them.
    pub unsafe fn execute_amo(
        &self,
        shared: Option<&TofuShared>,
        region: impl FnOnce() -> Option<Arc<TofuRegion>>,
        addr: u64,
        amo: AmoOp,
    ) -> Option<io::Result<u64>> {
        let Some(shared) = shared else {
            return (!self.vcq_registry.is_empty()).then(|| {
                Err(io::Error::other(
                    "it arrived at a worker without a virtual control queue, while others of its context have some: \
                     with UCX_ATOMIC_MODE=cpu it could do it",
                ))
            });
        };
        let region = region()?;
        let mut unit = TofuAmoUnit {
            iface: &shared.iface,
            offered: self.offered,
            there: region.locate(addr, &shared.iface)?,
        };
        // SAFETY: the caller's memory is valid.
        Some(unsafe { unit.execute(addr, amo) })
    }
}
