//! Shared memory's section of a worker address: the inboxes that a worker can map.

use super::InboxLocator;
use super::context::ShmContext;
use super::outbox::{Outbox, WaitingOutbox};
use crate::sys::host;
use crate::sys::memfd::MemfdId;
use crate::wire::address::{ShmLocator, WorkerAddress};
use std::io;

impl InboxLocator {
    /// The inbox that a section names.
    pub fn of(section: &ShmLocator) -> InboxLocator {
        InboxLocator {
            pid_ns: section.pid_ns,
            ipc_ns: section.ipc_ns,
            id: MemfdId {
                pid: section.pid,
                fd: section.fd,
                ino: section.ino,
            },
            key: section.key,
            liveness_place: section.liveness_place,
        }
    }

    /// The section of an inbox of this host.
    pub fn section(&self) -> ShmLocator {
        ShmLocator {
            host: host::place().host,
            pid_ns: self.pid_ns,
            pid: self.id.pid,
            fd: self.id.fd,
            ino: self.id.ino,
            ipc_ns: self.ipc_ns,
            key: self.key,
            liveness_place: self.liveness_place,
            flags: 0,
        }
    }

    /// Maps the inbox before the first message. `None` after a failure: the message tries again. Not where the address
    /// space is limited: endpoints that are not used need no mapping.
    pub fn map_ahead(self) -> Option<Box<WaitingOutbox>> {
        if host::address_space_is_limited() {
            return None;
        }
        Outbox::prepare(self).ok()
    }

    /// Why the inbox of another worker cannot be mapped. Tried in advance only where the address space is limited;
    /// otherwise the first operation maps it. An inbox that does not exist any more is found later.
    pub fn mapping_error(self) -> Option<io::Error> {
        if !host::address_space_is_limited() {
            return None;
        }
        let error = Outbox::probe(self).err();
        error.filter(|e| e.kind() != io::ErrorKind::NotFound)
    }
}

impl ShmContext {
    /// The inbox of the worker at `to`, if the worker at `own` can reach it and is reached by it.
    pub fn target(&self, own: &WorkerAddress, to: &WorkerAddress) -> Option<InboxLocator> {
        if own.uid == to.uid {
            return own.shm.as_ref().map(InboxLocator::of);
        }
        // Without an inbox the peer could not reply.
        own.shm?;
        let shm = to.shm.filter(|_| self.is_allowed)?;
        let here = host::place();
        let inbox = InboxLocator::of(&shm);
        let near = shm.host == here.host && inbox.reachable_from(here);
        (near && !inbox.is_foreign()).then_some(inbox)
    }

    /// Why the worker at `own` reaches none by shared memory, though it is allowed.
    pub fn own_obstacle(&self, own: &WorkerAddress, to: &WorkerAddress) -> Option<&'static str> {
        let lacks_inbox = to.shm.is_some() && self.is_allowed && own.shm.is_none();
        lacks_inbox.then_some(
            "this worker has no shared memory (the log says why), and no other transport leads from one end to the \
             other",
        )
    }
}

/// Why a worker with this address is not reached by shared memory, which is used.
pub fn obstacle(to: &WorkerAddress) -> &'static str {
    let here = host::place();
    match &to.shm {
        None => "its address names no transport that this library has",
        Some(shm) if shm.host != here.host => "it is on another host",
        Some(shm) if InboxLocator::of(shm).reachable_from(here) => {
            "it belongs to another user, whose shared memory cannot be mapped, and tcp is not allowed at both ends \
             (UCX_TLS)"
        }
        Some(_) => {
            "it is in another IPC namespace (UCX_POSIX_USE_PROC_LINK=n reaches across, where /dev/shm is shared)"
        }
    }
}
