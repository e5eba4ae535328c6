//! Events that a queue reports, and the operations that they belong to.
#![forbid(unsafe_code)]

use super::super::utofu::Stadd;
use super::super::vcq::RemoteAddr;
use crate::tl::Token;
use std::ffi::c_int;

/// Connection number of operations that belong to no connection.
pub const NO_CONN: u32 = u32::MAX;
/// Connection number of the worker's own atomic operation.
pub const OWN: u32 = u32::MAX - 1;

/// Plus the number of an incoming ring: connection number of what is written to the ring's writer.
pub const CREDITS: u32 = 1 << 31;

/// What a tagged operation completes; the number is that of a connection or of an incoming ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The word of the peer's ticket queue was fetched, and a ticket taken if one was wanted.
    Ticket(u32),
    /// All earlier posts of this connection have arrived.
    Flush(u32),
    /// Reads of this connection, one or several that share a tag, have completed.
    Reads(u32),
    /// A fetching atomic operation has completed.
    Reply(u32),
    /// A non-fetching atomic operation has completed.
    Changes(u32),
    /// The worker's own atomic operation on memory of its process has completed.
    Own,
    /// The writer of this ring was notified that its reader closes.
    CloseNotice(u32),
    /// The writer of this ring is alive.
    Probe(u32),
}

impl Completion {
    /// The connection number, or the number that stands for one.
    pub fn conn(self) -> u32 {
        match self {
            Completion::Ticket(conn)
            | Completion::Flush(conn)
            | Completion::Reads(conn)
            | Completion::Reply(conn)
            | Completion::Changes(conn) => conn,
            Completion::Own => OWN,
            Completion::CloseNotice(ring) | Completion::Probe(ring) => CREDITS + ring,
        }
    }
}

/// An event that a queue reports.
#[derive(Clone, Copy, Debug)]
pub enum QueueEvent {
    /// A peer has written to memory of this worker, at or before this address.
    Arrived(Stadd),
    /// A tagged operation has completed; `value`: what an atomic operation has fetched.
    Ended { owner: Completion, value: u64 },
    /// An operation of this connection has completed, for the request `request`, null if it was detached. Not `well`:
    /// the data may be missing, but the TNI does not access the memory any more.
    Completed {
        conn: u32,
        request: Token,
        /// The data came through a buffer or a notice: the TNI did not access the request's memory.
        copied: bool,
        well: bool,
    },
    /// A zcopy put has left the request's memory, or has failed.
    ZcopyDone {
        conn: u32,
        request: Token,
        well: bool,
    },
    /// An operation has failed.
    Failed { source: ErrSource, code: c_int },
    /// The MRQ has failed: notices are lost.
    MrqFailed { code: c_int },
}

impl QueueEvent {
    /// Whether the event reports success.
    pub fn is_well(&self) -> bool {
        match *self {
            QueueEvent::Completed { well, .. } | QueueEvent::ZcopyDone { well, .. } => well,
            QueueEvent::Arrived(_) | QueueEvent::Ended { .. } => true,
            QueueEvent::Failed { .. } | QueueEvent::MrqFailed { .. } => false,
        }
    }

    /// Whether the event belongs to this connection.
    pub fn names(&self, of: u32) -> bool {
        match *self {
            QueueEvent::Completed { conn, .. } | QueueEvent::ZcopyDone { conn, .. } => conn == of,
            QueueEvent::Ended { owner, .. } => owner.conn() == of,
            QueueEvent::Failed { source, .. } => source == ErrSource::of(of),
            QueueEvent::Arrived(_) | QueueEvent::MrqFailed { .. } => false,
        }
    }

    /// The request, if the event completes one of this connection.
    pub fn waits(&self, of: u32) -> Option<Token> {
        match *self {
            QueueEvent::Completed { conn, request, .. }
            | QueueEvent::ZcopyDone { conn, request, .. }
                if conn == of =>
            {
                Some(request)
            }
            _ => None,
        }
    }

    /// The request, if the event completes a zcopy operation of this connection.
    pub fn zcopy_owner(&self, of: u32) -> Option<Token> {
        let copied = matches!(self, QueueEvent::Completed { copied: true, .. });
        self.waits(of).filter(|_| !copied)
    }
}

/// What a failed operation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrSource {
    /// A connection, by number.
    Conn(u32),
    /// Credits or other words written to the writer of this incoming ring.
    Credit(u32),
    /// The worker's own operation.
    Own,
    /// The library names no operation.
    Unknown,
    /// An untagged operation: its generation, and the remote end as the notice names it, for which uTofu makes no
    /// promise.
    Untagged(u8, RemoteAddr),
}

impl ErrSource {
    /// From a connection number, or a number that stands for one.
    pub fn of(conn: u32) -> ErrSource {
        match conn {
            NO_CONN | OWN => ErrSource::Own,
            CREDITS.. => ErrSource::Credit(conn - CREDITS),
            conn => ErrSource::Conn(conn),
        }
    }
}

/// The connection that an operation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpTag {
    pub conn: u32,
    /// The connection's generation ([`super::generation_of`]), or 0: edata of its operations without an edata tag,
    /// which only error notices carry.
    pub generation: u8,
}
