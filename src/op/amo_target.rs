//! Execution of atomic operations on memory of this process, for peers that send them by message and for the worker
//! itself. One unit executes all operations on a region: the processor, the HCA (through a loopback queue pair) or the
//! TNI of a worker.

use super::amo::{self, ADD, AND, AmoOp, CSWAP, OR, XOR};
use crate::ctypes::*;
use crate::engine::context::Context;
use crate::engine::peer::Peer;
use crate::engine::worker::Worker;
use crate::sys::log;
use crate::tl::ib::loopback::LoopbackQp;
use crate::tl::ib::port::Port;
use crate::tl::ib::rc::{AmoDesc, RemoteMem};
use crate::tl::tofu::amo::{AmoCaps, TofuAmo};
use crate::tl::tofu::iface::TofuIface;
use crate::tl::tofu::utofu::code_name;
use crate::tl::tofu::vcq::RemoteAddr;
use crate::wire::address::MAX_PORTS;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A unit that executes some operations in one step, at least compare-and-swap.
trait AmoUnit {
    /// Executes an operation and waits for its result, the previous value. `None`: the unit does not have the
    /// operation.
    fn step(&mut self, amo: AmoOp) -> Option<io::Result<u64>>;
}

/// An HCA, and the address and key of the 8 bytes.
struct IbAmoUnit<'a> {
    device: &'a mut LoopbackQp,
    at: RemoteMem,
}

impl AmoUnit for IbAmoUnit<'_> {
    fn step(&mut self, amo: AmoOp) -> Option<io::Result<u64>> {
        let step = match amo.op {
            ADD => AmoDesc::Add(amo.value),
            CSWAP => AmoDesc::CompareSwap {
                compare: amo.compare,
                swap: amo.value,
            },
            _ => return None,
        };
        Some(self.device.execute(step, self.at))
    }
}

/// The TNI of a worker.
struct TofuAmoUnit<'a> {
    iface: &'a TofuIface,
    offered: AmoCaps,
    there: RemoteAddr,
}

impl AmoUnit for TofuAmoUnit<'_> {
    fn step(&mut self, amo: AmoOp) -> Option<io::Result<u64>> {
        let step = TofuAmo::new(amo.op, amo.size, amo.value, amo.compare)?;
        if !self.offered.has(step.verb) {
            return None;
        }
        let done = self.iface.queue.lock().execute(step, self.there);
        Some(done.map_err(|code| io::Error::other(format!("{} ({code})", code_name(code)))))
    }
}

/// The value that an operation leaves where `old` was; of 4 bytes the lower half counts.
fn outcome(amo: AmoOp, old: u64) -> u64 {
    match amo.op {
        ADD => old.wrapping_add(amo.value),
        AND => old & amo.value,
        OR => old | amo.value,
        XOR => old ^ amo.value,
        CSWAP if old != amo.compare => old,
        _ => amo.value,
    }
}

/// Executes an operation and returns the previous value. Operations that the unit does not have are done by repeated
/// compare-and-swap.
///
/// # Errors
/// The unit failed, or it is unknown whether the operation was executed.
///
/// # Safety
/// `addr` points to `amo.size` valid bytes and is aligned to them.
unsafe fn execute_by(executor: &mut impl AmoUnit, addr: u64, amo: AmoOp) -> io::Result<u64> {
    if let Some(done) = executor.step(amo) {
        return done;
    }
    // SAFETY: the caller's memory is valid. Relaxed: a first guess for the compare-and-swap.
    let mut expected = unsafe {
        match amo.size {
            4 => AtomicU32::from_ptr(addr as *mut u32)
                .load(Ordering::Relaxed)
                .into(),
            _ => AtomicU64::from_ptr(addr as *mut u64).load(Ordering::Relaxed),
        }
    };
    loop {
        let attempt = AmoOp {
            op: CSWAP,
            value: outcome(amo, expected),
            compare: expected,
            ..amo
        };
        let old = executor
            .step(attempt)
            .unwrap_or_else(|| Err(io::ErrorKind::Unsupported.into()))?;
        if old == expected {
            return Ok(old);
        }
        expected = old;
    }
}

/// Executes an operation on registered memory by the unit that executes those of the peers.
///
/// # Errors
/// `UCS_ERR_IO_ERROR`: it is unknown whether the operation was executed.
///
/// # Safety
/// `addr` points to `amo.size` bytes of registered memory of this process and is aligned to them.
pub(super) unsafe fn execute(
    worker: &Worker,
    peer: &Peer,
    addr: u64,
    amo: AmoOp,
) -> Result<u64, ucs_status_t> {
    // SAFETY: the caller's memory is valid.
    unsafe {
        let done = if worker.ctx.tl.tofu.amo_by_tni {
            tofu_unit(worker, addr, amo)
        } else {
            ib_unit(worker, peer, addr, amo)
        };
        done.unwrap_or_else(|| Ok(amo::execute(addr as *mut u8, amo)))
    }
}

/// Executes an operation by the worker's TNI. `None`: no STADD covers the address.
unsafe fn tofu_unit(worker: &Worker, addr: u64, amo: AmoOp) -> Option<Result<u64, ucs_status_t>> {
    let ctx = worker.ctx;
    let Some(tofu) = &worker.tl.tofu else {
        return (!ctx.tl.tofu.vcq_registry.is_empty()).then(|| {
            log::error!(
                "an atomic operation arrived at a worker without a virtual control queue, while others of \
                 its context have some: with \
                 UCX_ATOMIC_MODE=cpu it could do it"
            );
            Err(UCS_ERR_IO_ERROR)
        });
    };
    let len = amo.size.into();
    let region = (ctx.regions).tl(addr, len, |region| region.tofu.clone())?;
    let mut adapter = TofuAmoUnit {
        iface: &tofu.iface,
        offered: ctx.tl.tofu.offered,
        there: region.locate(addr, &tofu.iface)?,
    };
    // SAFETY: the caller's memory is valid.
    let done = unsafe { execute_by(&mut adapter, addr, amo) };
    Some(done.map_err(|e| {
        log::error!("an atomic operation for a peer: {e}");
        UCS_ERR_IO_ERROR
    }))
}

/// Executes an operation by the HCA. `None`: the processor executes operations on this memory.
unsafe fn ib_unit(
    worker: &Worker,
    peer: &Peer,
    addr: u64,
    amo: AmoOp,
) -> Option<Result<u64, ucs_status_t>> {
    let ctx = worker.ctx;
    let alone = ctx.tl.ib.atomics.alone && amo.size == 8;
    let key = alone.then(|| {
        ctx.regions
            .tl(addr, amo.size.into(), |tl| tl.ib.as_ref()?.atomic_key())
    })??;
    let port = executing_port(ctx, peer)?;
    let mut loopback = worker.loopback.lock();
    let mut attempt = || {
        let device = match &mut *loopback {
            Some(device) if device.is_on(port) => device,
            other => other.insert(LoopbackQp::new(port)?),
        };
        let at = RemoteMem { addr, key };
        // SAFETY: the caller's memory is valid; the key is that of the region for the HCA of this port.
        unsafe { execute_by(&mut IbAmoUnit { device, at }, addr, amo) }
    };
    Some(attempt().map_err(|e| {
        log::error!("{}: an atomic operation for a peer: {e}", port.name);
        // A queue pair in error is unusable: the next operation creates another.
        *loopback = None;
        UCS_ERR_IO_ERROR
    }))
}

/// The port whose HCA executes atomic operations. For a peer with failover, which may use any port, one that is active;
/// without an active port no peer can use the HCA, and the processor may execute operations.
fn executing_port<'a>(ctx: &'a Context, peer: &Peer) -> Option<&'a Port> {
    let ports = ctx.tl.ib.ports.iter().take(MAX_PORTS).enumerate();
    let mut behind = ports.filter(|(i, _)| ctx.tl.ib.atomics.port_mask >> i & 1 == 1);
    let usable = |port: &Port| !peer.fails_over() || port.is_active();
    behind.find_map(|(_, port)| usable(port).then_some(&**port))
}
