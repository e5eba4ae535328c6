//! Whether the owner of an inbox is alive.

use super::memory::Theirs;
use super::{InboxKind, InboxLocator};
use crate::sys::host::HostId;
use crate::sys::{liveness_lock, memfd, posix_shm, sysv};

impl InboxLocator {
    /// Whether the owner's liveness lock is free. False if the lock is at another place than the locks of this process.
    fn is_liveness_lock_free(&self) -> bool {
        self.shm_place != 0
            && self.shm_place == liveness_lock::place()
            && !liveness_lock::is_held(self.key)
    }

    /// Whether the owner, in this PID namespace, still has the memory mapped, though its file is closed: a program that
    /// closes all descriptors, as a daemon does, keeps the memory. After `exec` the memory is not mapped; a worker that
    /// is destroyed marks the inbox, because other workers of its process can have it mapped. False for
    /// [`InboxKind::File`], whose memory cannot be opened any more.
    fn is_used_by_owner(&self) -> bool {
        let owner = self.id.pid;
        let mapped = match self.kind() {
            InboxKind::Block => sysv::is_attached_by(self.key as u32, owner),
            InboxKind::Named => posix_shm::is_mapped_by(self.key, owner),
            InboxKind::File => false,
        };
        mapped && Theirs::open(*self).is_ok()
    }

    /// Whether the owner is dead, as far as `here` can detect. Costs a file system look-up; more where the owner has
    /// closed its descriptors or is dead.
    pub fn is_dead(&self, here: HostId) -> bool {
        if self.pid_ns == here.pid_ns {
            return !memfd::is_alive(self.id) && !self.is_used_by_owner();
        }
        match self.kind() {
            InboxKind::Block => {
                self.is_liveness_lock_free() || sysv::creator_alive(self.key as u32) == Some(false)
            }
            InboxKind::Named => !posix_shm::is_alive(self.key),
            InboxKind::File => false,
        }
    }
}
