//! Atomic operations on memory of this process, for peers that cannot have them done and for itself: by whoever
//! executes all of them there, which is a processor, a device (by a connection to itself) or the adapter of a worker's
//! queue.

use super::amo::{self, ADD, AND, AmoOp, CSWAP, OR, XOR};
use crate::ctypes::*;
use crate::engine::context::Context;
use crate::engine::peer::Peer;
use crate::engine::worker::Worker;
use crate::proto::tx::rma_tofu;
use crate::sys::log;
use crate::tl::ib::loopback::LoopbackQp;
use crate::tl::ib::port::Port;
use crate::tl::ib::rc::{AmoDesc, RemoteMem};
use crate::tl::tofu::amo::AmoCaps;
use crate::tl::tofu::iface::TofuIface;
use crate::tl::tofu::utofu::code_name;
use crate::tl::tofu::vcq::RemoteAddr;
use crate::wire::address::MAX_PORTS;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What does some operations in one step, compare-and-swap at least.
trait AmoUnit {
    /// Has one done and waits for it: what was there. `None`: it is not one step.
    fn step(&mut self, amo: AmoOp) -> Option<io::Result<u64>>;
}

/// A device, and where it finds the 8 bytes.
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

/// The adapter of a worker's queue.
struct TofuAmoUnit<'a> {
    iface: &'a TofuIface,
    offered: AmoCaps,
    there: RemoteAddr,
}

impl AmoUnit for TofuAmoUnit<'_> {
    fn step(&mut self, amo: AmoOp) -> Option<io::Result<u64>> {
        let step = rma_tofu::step(amo.op, amo.size, amo.value, amo.compare)?;
        if !self.offered.has(step.verb) {
            return None;
        }
        let done = self.iface.queue.lock().execute(step, self.there);
        Some(done.map_err(|code| io::Error::other(format!("{} ({code})", code_name(code)))))
    }
}

/// What the memory holds after an operation on what it held; of 4 bytes the lower half counts.
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

/// Has it done, and returns what was there. What is not one step is tried until nobody was between.
///
/// # Errors
/// The executor does not, or does not say whether it did.
///
/// # Safety
/// `addr` is an address of as many live bytes as the operation is for, aligned to as many.
unsafe fn execute_by(executor: &mut impl AmoUnit, addr: u64, amo: AmoOp) -> io::Result<u64> {
    if let Some(done) = executor.step(amo) {
        return done;
    }
    // SAFETY: the caller's memory. Relaxed: a guess.
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

/// Does it on registered memory: by what peers have such things done by, where a processor must not.
///
/// # Errors
/// `UCS_ERR_IO_ERROR`: nobody knows whether it was done.
///
/// # Safety
/// `addr` is registered memory of this process, aligned.
pub(super) unsafe fn execute(
    worker: &Worker,
    peer: &Peer,
    addr: u64,
    amo: AmoOp,
) -> Result<u64, ucs_status_t> {
    // SAFETY: the caller's memory.
    unsafe {
        let done = match worker.ctx.by_adapter {
            true => tofu_unit(worker, addr, amo),
            false => ib_unit(worker, peer, addr, amo),
        };
        done.unwrap_or_else(|| Ok(amo::execute(addr as *mut u8, amo)))
    }
}

/// `None`: no adapter reaches it.
unsafe fn tofu_unit(worker: &Worker, addr: u64, amo: AmoOp) -> Option<Result<u64, ucs_status_t>> {
    let ctx = worker.ctx;
    let Some(iface) = worker.tofu_iface.as_deref() else {
        return (!ctx.roster.is_empty()).then(|| {
            log::error!(
                "an atomic operation came to a worker without a virtual control queue, while others of \
                 its context have some: with \
                 UCX_ATOMIC_MODE=cpu it could do it"
            );
            Err(UCS_ERR_IO_ERROR)
        });
    };
    let mut adapter = TofuAmoUnit {
        iface,
        offered: ctx.offered,
        there: ctx.regions.locate(addr, amo.size.into(), iface)?,
    };
    // SAFETY: the caller's memory.
    let done = unsafe { execute_by(&mut adapter, addr, amo) };
    Some(done.map_err(|e| {
        log::error!("an atomic operation for a peer: {e}");
        UCS_ERR_IO_ERROR
    }))
}

/// `None`: no device does such ones.
unsafe fn ib_unit(
    worker: &Worker,
    peer: &Peer,
    addr: u64,
    amo: AmoOp,
) -> Option<Result<u64, ucs_status_t>> {
    let ctx = worker.ctx;
    let alone = ctx.atomics.alone && amo.size == 8;
    let key = alone.then(|| ctx.regions.atomic_key(addr)).flatten()?;
    let port = executing_port(ctx, peer)?;
    let mut loopback = worker.loopback.lock();
    let mut attempt = || {
        let device = match &mut *loopback {
            Some(device) if device.is_on(port) => device,
            other => other.insert(LoopbackQp::new(port)?),
        };
        let at = RemoteMem { addr, key };
        // SAFETY: the caller's memory; the key of the region for the device of this port.
        unsafe { execute_by(&mut IbAmoUnit { device, at }, addr, amo) }
    };
    Some(attempt().map_err(|e| {
        log::error!("{}: an atomic operation for a peer: {e}", port.name);
        // Of no use after an error: the next one gets another.
        *loopback = None;
        UCS_ERR_IO_ERROR
    }))
}

/// The port of the device that executes atomic operations. For a peer that comes by any port one that has a link; with
/// none nobody else can have the device execute anything, and a processor may.
fn executing_port<'a>(ctx: &'a Context, peer: &Peer) -> Option<&'a Port> {
    let ports = ctx.ports.iter().take(MAX_PORTS).enumerate();
    let mut behind = ports.filter(|(i, _)| ctx.atomics.ports >> i & 1 == 1);
    let usable = |port: &Port| !peer.fails_over() || port.is_active();
    behind.find_map(|(_, port)| usable(port).then_some(&**port))
}
