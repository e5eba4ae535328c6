//! The HCA as the unit that executes atomic operations on memory of this process, through a loopback queue pair: they
//! are atomic with those that peers post to it.

use super::context::{IbContext, IbShared};
use super::loopback::LoopbackQp;
use super::port::Port;
use super::rc::{AmoDesc, RemoteMem};
use crate::tl::amo::{AmoOp, AmoUnit};
use crate::wire::ib_port::MAX_PORTS;
use std::io;

/// An HCA, and the address and key of the 8 bytes.
struct IbAmoUnit<'a> {
    device: &'a mut LoopbackQp,
    at: RemoteMem,
}

impl AmoUnit for IbAmoUnit<'_> {
    fn step(&mut self, amo: AmoOp) -> Option<io::Result<u64>> {
        let step = AmoDesc::new(amo)?;
        Some(self.device.execute(step, self.at))
    }
}

impl IbContext {
    /// Executes an operation on registered memory by the HCA, for a peer. `key`: the memory's key for atomic
    /// operations, if it has one; `fails_over`: the peer may use any port. `None`: processors execute operations on
    /// this memory.
    ///
    /// # Safety
    /// `addr` points to `amo.size` bytes of the memory and is aligned to them.
    pub unsafe fn execute_amo(
        &self,
        shared: &IbShared,
        key: impl FnOnce() -> Option<u32>,
        fails_over: bool,
        addr: u64,
        amo: AmoOp,
    ) -> Option<io::Result<u64>> {
        if !self.atomics.alone || amo.size != 8 {
            return None;
        }
        let key = key()?;
        let port = self.executing_port(fails_over)?;
        let mut loopback = shared.loopback.lock();
        let mut attempt = || {
            let device = match &mut *loopback {
                Some(device) if device.is_on(port) => device,
                other => other.insert(LoopbackQp::new(port)?),
            };
            let at = RemoteMem { addr, key };
            // SAFETY: the caller's memory is valid; the key is that of the region for the HCA of this port.
            unsafe { IbAmoUnit { device, at }.execute(addr, amo) }
        };
        Some(attempt().map_err(|e| {
            // A queue pair in error is unusable: the next operation creates another.
            *loopback = None;
            io::Error::new(e.kind(), format!("{}: {e}", port.name))
        }))
    }

    /// The port whose HCA executes atomic operations. For a peer with failover one that is active; without an active
    /// port no peer can use the HCA, and the processor may execute operations.
    fn executing_port(&self, fails_over: bool) -> Option<&Port> {
        let ports = self.ports.iter().take(MAX_PORTS).enumerate();
        let mut behind = ports.filter(|(i, _)| self.atomics.port_mask >> i & 1 == 1);
        let usable = |port: &Port| !fails_over || port.is_active();
        behind.find_map(|(_, port)| usable(port).then_some(&**port))
    }
}
