//! Shared memory's section of a worker address: the inboxes that a worker can map.
#![forbid(unsafe_code)]

use super::context::ShmContext;
use super::outbox::{Outbox, WaitingBox};
use super::{FoundInbox, InboxKind, InboxLocator};
use crate::sys::host::{self, RecentLimit};
use crate::sys::memfd::MemfdId;
use crate::wire::le_struct::packed;
use std::io;

packed! {
    /// Locator of the worker's shared memory segment for processes of the same host.
    ShmLocator, 41 {
        /// Hash of the boot id, equal for one boot of one kernel.
        host: u64,
        /// Inode of the PID namespace, in which `pid` is valid.
        pid_ns: u32,
        /// Process that owns the segment.
        pid: u32,
        /// The owner's descriptor of the segment.
        fd: u32,
        /// Inode of the segment: a file that is opened must have it.
        ino: u32,
        /// Inode of the IPC namespace, in which `key` is valid.
        ipc_ns: u32,
        /// System V number of the memory and the value that must be written in it; 0 if `fd` is the memory.
        key: u64,
        /// Id of the /dev/shm with the owner's lock of `key`, or with its named file; 0: there is neither.
        shm_place: u32,
        /// Reserved: 0.
        flags: u8,
    }
}

/// The limit of address space when an endpoint was created.
static ENDPOINTS: RecentLimit = RecentLimit::new();

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
            shm_place: section.shm_place,
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
            shm_place: self.shm_place,
            flags: 0,
        }
    }

    /// Why the inbox of another worker cannot be mapped. Tried in advance only where the address space is limited;
    /// otherwise the first operation maps it. An inbox that does not exist any more is found later.
    pub fn mapping_error(self) -> Option<io::Error> {
        if !ENDPOINTS.is_limited() {
            return None;
        }
        let error = Outbox::probe(self).err();
        error.filter(|e| e.kind() != io::ErrorKind::NotFound)
    }
}

impl FoundInbox {
    /// Maps the inbox before the first message. `None` after a failure: the message tries again. Not where the address
    /// space is limited: endpoints that are not used need no mapping.
    pub fn map_ahead(self) -> Option<WaitingBox> {
        if ENDPOINTS.is_limited() {
            return None;
        }
        Outbox::prepare(self).ok()
    }
}

impl ShmContext {
    /// The inbox at `to`, if a worker with the section `own`, whose inbox belongs to `user`, can map it and is reached
    /// in return.
    pub fn target(
        &self,
        user: u32,
        own: Option<&ShmLocator>,
        to: Option<&ShmLocator>,
    ) -> Option<FoundInbox> {
        // Without an inbox the peer could not reply.
        own?;
        let shm = to.filter(|_| self.is_allowed)?;
        let here = host::place();
        let inbox = InboxLocator::of(shm);
        let is_near = shm.host == here.host && inbox.reachable_from(here);
        if is_near { inbox.find(user) } else { None }
    }

    /// Why a worker with the section `own` reaches none by shared memory, though it is allowed.
    pub fn own_obstacle(
        &self,
        own: Option<&ShmLocator>,
        to: Option<&ShmLocator>,
    ) -> Option<&'static str> {
        let lacks_inbox = to.is_some() && self.is_allowed && own.is_none();
        lacks_inbox.then_some(
            "this worker has no shared memory (the log says why), and no other transport leads from one end to the \
             other",
        )
    }
}

/// Why a worker with this section is not reached by shared memory, which is used.
pub fn obstacle(to: Option<&ShmLocator>) -> &'static str {
    let here = host::place();
    match to {
        None => "its address names no transport that this library has",
        Some(shm) if shm.host != here.host => "it is on another host",
        Some(shm) if InboxLocator::of(shm).reachable_from(here) => {
            "it belongs to another user, whose shared memory cannot be mapped, and tcp is not allowed at both ends \
             (UCX_TLS)"
        }
        Some(shm) if InboxLocator::of(shm).kind() == InboxKind::Named => {
            "it has another /dev/shm, where its shared memory is (UCX_POSIX_USE_PROC_LINK=n)"
        }
        Some(_) => {
            "it is in another IPC namespace (UCX_POSIX_USE_PROC_LINK=n reaches across, where /dev/shm is shared)"
        }
    }
}
