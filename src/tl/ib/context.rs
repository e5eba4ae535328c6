//! What a context knows of InfiniBand and RoCE: the ports, and what their devices share among its workers.

use super::keepalive::KeepaliveThread;
use super::port::Port;
use super::registration::IbMrCaches;
use crate::options::Options;
use crate::sys::log;
use crate::sys::sync::OnceLock;
use std::sync::Arc;

/// InfiniBand's part of a context.
pub struct IbContext {
    /// Ports that may be used, in the order of their devices.
    pub ports: Vec<Arc<Port>>,
    /// Responder to liveness probes; made when UD is to carry messages, `None` if it cannot be made.
    keepalive: OnceLock<Option<KeepaliveThread>>,
    /// Registered user memory; made by the first registration.
    registrations: OnceLock<IbMrCaches>,
}

impl IbContext {
    pub fn new(ports: Vec<Arc<Port>>) -> IbContext {
        IbContext {
            ports,
            keepalive: OnceLock::new(),
            registrations: OnceLock::new(),
        }
    }

    /// Registers a worker whose address has this secret with the keepalive responder. Returns the number of the
    /// responder's queue pair at the port with this number; 0: there is no responder.
    pub fn keepalive_qpn(&self, worker: u64, secret: u64, port: usize) -> u32 {
        let keepalive = self.keepalive.get_or_init(|| match KeepaliveThread::new(&self.ports) {
            Ok(keepalive) => Some(keepalive),
            Err(e) => {
                log::warn!(
                    "no keepalive thread: UD peers treat this process as dead if it does not progress for \
                     UCX_UD_TIMEOUT: {e}"
                );
                None
            }
        });
        keepalive
            .as_ref()
            .map_or(0, |p| p.add_worker(worker, secret, port))
    }

    /// Removes a worker from the keepalive responder.
    pub fn forget_worker(&self, worker: u64) {
        if let Some(Some(keepalive)) = self.keepalive.get() {
            keepalive.remove_worker(worker);
        }
    }

    /// The registrations of user memory.
    pub fn registrations(&self, options: &Options) -> &IbMrCaches {
        self.registrations
            .get_or_init(|| IbMrCaches::new(options, &self.ports))
    }

    /// Deregisters memory that has been unmapped. To be called now and then.
    pub fn trim(&self) {
        if let Some(registrations) = self.registrations.get() {
            registrations.trim();
        }
    }
}
