//! What a queue tells, and whose it is.
#![forbid(unsafe_code)]

use super::super::utofu::Stadd;
use super::super::vcq::There;
use std::ffi::{c_int, c_void};

/// In place of the number of a connection: of operations that are none's.
pub const NO_LINK: u32 = u32::MAX;
/// The worker's own atomic operation.
pub const OWN: u32 = u32::MAX - 1;

/// The same of what a writer is told of the ring that it writes to: the number of the ring is added.
pub const CREDITS: u32 = 1 << 31;

/// A connection of ours, by number, and what of it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
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

impl Owner {
    /// The connection.
    pub fn link(self) -> u32 {
        match self {
            Owner::Ticket(link)
            | Owner::Flush(link)
            | Owner::Reads(link)
            | Owner::Reply(link)
            | Owner::Changes(link) => link,
            Owner::Own => OWN,
            Owner::Farewell(ring) | Owner::Probe(ring) => CREDITS + ring,
        }
    }
}

/// What a queue tells.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A peer has written into our memory, at or before this address.
    Arrived(Stadd),
    /// What somebody waited for; `value`: of an atomic operation, what was there before.
    Ended { owner: Owner, value: u64 },
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
    Failed { whose: Whose, code: c_int },
    /// The queue of notices is of no use any more: what has come is lost.
    Deaf { code: c_int },
}

impl Event {
    /// Whether it tells of no failure.
    pub fn is_well(&self) -> bool {
        match *self {
            Event::Came { well, .. } | Event::Left { well, .. } => well,
            Event::Arrived(_) | Event::Ended { .. } => true,
            Event::Failed { .. } | Event::Deaf { .. } => false,
        }
    }

    /// Whether it is of this connection.
    pub fn names(&self, of: u32) -> bool {
        match *self {
            Event::Came { link, .. } | Event::Left { link, .. } => link == of,
            Event::Ended { owner, .. } => owner.link() == of,
            Event::Failed { whose, .. } => whose == Whose::of(of),
            Event::Arrived(_) | Event::Deaf { .. } => false,
        }
    }

    /// Who waits for it, if it is of this connection.
    pub fn waits(&self, of: u32) -> Option<*mut c_void> {
        match *self {
            Event::Came { link, whose, .. } | Event::Left { link, whose, .. } if link == of => {
                Some(whose)
            }
            _ => None,
        }
    }

    /// The same, if it is about his own memory.
    pub fn lender(&self, of: u32) -> Option<*mut c_void> {
        let copied = matches!(self, Event::Came { copied: true, .. });
        self.waits(of).filter(|_| !copied)
    }
}

/// Of what has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// One of ours.
    Link(u32),
    /// What was told to the writer of this ring.
    Credit(u32),
    /// The worker's own.
    Nobody,
    /// Of one that nobody waits for: its colour, and what the notice says of the other end, as far as that can be
    /// relied upon.
    Coloured(u8, There),
}

impl Whose {
    /// By the number that stands for a connection.
    pub fn of(link: u32) -> Whose {
        match link {
            NO_LINK | OWN => Whose::Nobody,
            CREDITS.. => Whose::Credit(link - CREDITS),
            link => Whose::Link(link),
        }
    }
}

/// Which connection an operation is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub link: u32,
    /// The byte in the notice of its error, if nobody waits for the operation: a [`super::colour`], or 0.
    pub colour: u8,
}
