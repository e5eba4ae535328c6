//! What a queue tells, and whose it is.
#![forbid(unsafe_code)]

use super::super::utofu::Stadd;
use super::super::vcq::RemoteAddr;
use std::ffi::{c_int, c_void};

/// In place of the number of a connection: of operations that are none's.
pub const NO_LINK: u32 = u32::MAX;
/// The worker's own atomic operation.
pub const OWN: u32 = u32::MAX - 1;

/// The same of what a writer is told of the ring that it writes to: the number of the ring is added.
pub const CREDITS: u32 = 1 << 31;

/// A connection of ours, by number, and what of it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Its turn in the peer's hall.
    Ticket(u32),
    /// Everything before has arrived.
    Flush(u32),
    /// What this connection has read has come: one or several reads.
    Reads(u32),
    /// What was there before an atomic operation has come.
    Reply(u32),
    /// One of the atomic operations without a reply has been done.
    Changes(u32),
    /// An atomic operation of the worker's own on memory of its process.
    Own,
    /// The writer of this ring knows that its reader goes.
    Farewell(u32),
    /// The writer of this ring is there.
    Probe(u32),
}

impl Completion {
    /// The connection.
    pub fn link(self) -> u32 {
        match self {
            Completion::Ticket(link)
            | Completion::Flush(link)
            | Completion::Reads(link)
            | Completion::Reply(link)
            | Completion::Changes(link) => link,
            Completion::Own => OWN,
            Completion::Farewell(ring) | Completion::Probe(ring) => CREDITS + ring,
        }
    }
}

/// What a queue tells.
#[derive(Clone, Copy, Debug)]
pub enum QueueEvent {
    /// A peer has written into our memory, at or before this address.
    Arrived(Stadd),
    /// What somebody waited for; `value`: of an atomic operation, what was there before.
    Ended { owner: Completion, value: u64 },
    /// What this connection has read is where it was wanted: who wanted it; null: nobody does any more. Not `well`: it
    /// may not be there, but the adapter has done with the memory.
    Came {
        link: u32,
        whose: *mut c_void,
        /// It came by a buffer: the adapter has never known the owner's memory.
        copied: bool,
        well: bool,
    },
    /// The adapter has read what was to be written, straight from its owner's memory, or has failed to.
    Left {
        link: u32,
        whose: *mut c_void,
        well: bool,
    },
    /// Something has failed.
    Failed { whose: ErrSource, code: c_int },
    /// The queue of notices is of no use any more: what has come is lost.
    Deaf { code: c_int },
}

impl QueueEvent {
    /// Whether it tells of no failure.
    pub fn is_well(&self) -> bool {
        match *self {
            QueueEvent::Came { well, .. } | QueueEvent::Left { well, .. } => well,
            QueueEvent::Arrived(_) | QueueEvent::Ended { .. } => true,
            QueueEvent::Failed { .. } | QueueEvent::Deaf { .. } => false,
        }
    }

    /// Whether it is of this connection.
    pub fn names(&self, of: u32) -> bool {
        match *self {
            QueueEvent::Came { link, .. } | QueueEvent::Left { link, .. } => link == of,
            QueueEvent::Ended { owner, .. } => owner.link() == of,
            QueueEvent::Failed { whose, .. } => whose == ErrSource::of(of),
            QueueEvent::Arrived(_) | QueueEvent::Deaf { .. } => false,
        }
    }

    /// Who waits for it, if it is of this connection.
    pub fn waits(&self, of: u32) -> Option<*mut c_void> {
        match *self {
            QueueEvent::Came { link, whose, .. } | QueueEvent::Left { link, whose, .. }
                if link == of =>
            {
                Some(whose)
            }
            _ => None,
        }
    }

    /// The same, if it is about his own memory.
    pub fn zcopy_owner(&self, of: u32) -> Option<*mut c_void> {
        let copied = matches!(self, QueueEvent::Came { copied: true, .. });
        self.waits(of).filter(|_| !copied)
    }
}

/// Of what has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrSource {
    /// One of ours.
    Link(u32),
    /// What was told to the writer of this ring.
    Credit(u32),
    /// The worker's own.
    Nobody,
    /// Of one that nobody waits for: its colour, and what the notice says of the other end, as far as that can be
    /// relied upon.
    Coloured(u8, RemoteAddr),
}

impl ErrSource {
    /// By the number that stands for a connection.
    pub fn of(link: u32) -> ErrSource {
        match link {
            NO_LINK | OWN => ErrSource::Nobody,
            CREDITS.. => ErrSource::Credit(link - CREDITS),
            link => ErrSource::Link(link),
        }
    }
}

/// Which connection an operation is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpTag {
    pub link: u32,
    /// The byte in the notice of its error, if nobody waits for the operation: a [`super::generation_of`], or 0.
    pub colour: u8,
}
