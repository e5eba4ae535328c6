//! Operations outstanding on a virtual control queue: [`buffers`] that the TNI reads and writes, operations that
//! requests wait for ([`outstanding`]), and the tags by which MRQ notices name them ([`edata_tags`]).

mod atomics;
mod buffers;
mod completion;
mod edata_tags;
mod outstanding;
mod pieces;
mod poll;
mod post;

use super::utofu::MrqNotice;
use super::vcq::Vcq;
use crate::tl::Token;
use atomics::AmoReplies;
use buffers::DmaBuffers;
use edata_tags::{EdataTags, SLOTS};
use outstanding::Outstanding;
use std::collections::VecDeque;
use std::ffi::c_int;
use std::io;
use std::sync::Arc;

pub use completion::{CREDITS, Completion, ErrSource, NO_CONN, OWN, OpTag, QueueEvent};
pub use edata_tags::generation_of;

/// A VCQ that returns `UTOFU_ERR_BUSY` for this long is stuck, milliseconds.
const STUCK_MS: u64 = 10_000;
/// Maximum number of notices queued while one is searched for: more than any MRQ holds.
const MAX_EARLY_NOTICES: usize = 1 << 16;
/// cbdata of an operation without a buffer: this plus the connection number. Less is the number of a buffer.
pub const CONN_CBDATA: usize = 1 << 16;
/// cbdata of a zcopy put: this plus the operation's number.
const ZCOPY_BIT: usize = 1 << 40;
/// cbdata: shift of the operation's edata tag. If the TCQ entry reports an error, no MRQ notice with this tag comes.
const SLOT_AT: u32 = 48;

// SAFETY: the pointers are followed only under the queue's lock, while the requests that own the memory wait.
unsafe impl Send for OpQueue {}

/// Used by one thread at a time, which holds its lock.
pub struct OpQueue {
    pub vcq: Arc<Vcq>,
    buffers: DmaBuffers,
    /// Requests whose read or fetching atomic has failed, with their connections, until the connection is released.
    failed_requests: Vec<(u32, Token)>,
    slots: EdataTags,
    /// Destinations of the values that atomic operations fetch.
    replies: AmoReplies,
    /// Non-fetching atomic operations without a notice yet.
    changes: u32,
    /// Notices polled while another one was searched for.
    early: VecDeque<(c_int, MrqNotice)>,
    under_way: Outstanding,
    /// Limit of outstanding operations: each can produce a notice. It is less by the further notices of those that
    /// produce several.
    most: usize,
    /// Zcopy puts without a TCQ entry yet.
    zcopy_in_flight: usize,
    /// Events that are not reported yet.
    ended: VecDeque<QueueEvent>,
    /// Connections with a failed transmission, and the uTofu code.
    failed: Vec<(u32, c_int)>,
    /// Consecutive error notices that name no operation.
    errors: u32,
}

impl OpQueue {
    /// `notices`: limit of outstanding operations, raised to 128 if it is less.
    ///
    /// # Errors
    /// The system's or the library's error.
    pub fn new(vcq: Arc<Vcq>, packet: usize, notices: usize) -> io::Result<OpQueue> {
        Ok(OpQueue {
            buffers: DmaBuffers::new(&vcq, packet)?,
            vcq,
            slots: EdataTags::new(),
            replies: AmoReplies::new(),
            changes: 0,
            early: VecDeque::new(),
            under_way: Outstanding::default(),
            most: notices.max(SLOTS),
            zcopy_in_flight: 0,
            ended: VecDeque::new(),
            failed_requests: Vec::new(),
            failed: Vec::new(),
            errors: 0,
        })
    }

    /// Whether `n` buffers are free, after reaping the TCQ and allocating more where necessary.
    pub fn has_buffers(&mut self, n: usize) -> bool {
        if self.buffers.free() < n {
            self.poll_tcq();
        }
        if self.buffers.free() < n {
            self.buffers.grow(&self.vcq);
        }
        self.buffers.free() >= n
    }

    /// Whether a transmission has no TCQ entry yet, or a failure is not reported yet.
    pub fn is_sending(&self) -> bool {
        self.buffers.any_taken() || self.zcopy_in_flight > 0 || !self.failed.is_empty()
    }

    /// Whether notices or events are queued, which are reported before the MRQ is polled again.
    #[inline(always)]
    pub fn has_more(&self) -> bool {
        !self.early.is_empty() || !self.ended.is_empty()
    }

    /// Takes a buffer for a frame of a connection: its number and address. [`has_buffers`](Self::has_buffers) makes
    /// room.
    pub fn take_buffer(&mut self, conn: u32) -> Option<(u16, *mut u8)> {
        let index = self.buffers.take(conn)?;
        Some((index, self.buffers.ptr(index)))
    }

    /// Returns a buffer that was taken but not sent.
    pub fn give_back(&mut self, buffer: u16) {
        self.buffers.give_back(buffer);
    }

    /// Whether a disconnect word to a ring's writer has no notice yet.
    pub fn is_disconnecting(&self) -> bool {
        let is_close_notice = |owner: &Completion| matches!(owner, Completion::CloseNotice(_));
        self.slots.owners().any(is_close_notice)
    }

    /// Requests that wait for operations of this connection, failed ones included; a request is listed once per
    /// operation.
    pub fn waiting(&mut self, conn: u32) -> Vec<Token> {
        let failed_requests = self.failed_requests.iter().filter(|(of, _)| *of == conn);
        let mut all: Vec<_> = failed_requests.map(|&(_, request)| request).collect();
        all.extend(self.under_way.of_conn(conn).map(|o| o.request));
        let replies = self.replies.users().filter(|user| user.conn == conn);
        all.extend(replies.map(|user| user.request));
        all.extend(self.ended.iter().filter_map(|event| event.waits(conn)));
        all.retain(|request| !request.is_none());
        all
    }

    /// Requests whose own memory the TNI still accesses for this connection, or whose completion is not reported yet.
    pub fn zcopy_owners(&mut self, conn: u32) -> Vec<Token> {
        let all = self.under_way.of_conn(conn);
        let in_place = all.filter(|o| o.copy.is_none());
        let mut found: Vec<_> = in_place.map(|o| o.request).collect();
        let ended = self
            .ended
            .iter()
            .filter_map(|event| event.zcopy_owner(conn));
        found.extend(ended.filter(|request| !request.is_none()));
        found
    }

    /// Detaches and returns the requests that satisfy `wanted` and wait for reads into buffers or fetching atomics of
    /// this connection. The operations then complete without a request.
    pub fn detach_owner(&mut self, conn: u32, wanted: impl Fn(Token) -> bool) -> Vec<Token> {
        let mut found = Vec::new();
        for operation in self.under_way.of_conn(conn) {
            if operation.copy.is_some() && wanted(operation.request) {
                found.push(operation.request);
                operation.request = Token::NONE;
            }
        }
        for user in self.replies.users_mut() {
            if user.conn == conn && wanted(user.request) {
                found.push(user.request);
                user.detach_owner();
            }
        }
        for event in &mut self.ended {
            if let QueueEvent::Completed {
                conn: of,
                request,
                copied: true,
                ..
            } = event
                && *of == conn
                && !request.is_none()
                && wanted(*request)
            {
                found.push(std::mem::replace(request, Token::NONE));
            }
        }
        self.failed_requests.retain(|&(of, request)| {
            let taken = of == conn && wanted(request);
            if taken {
                found.push(request);
            }
            !taken
        });
        found
    }

    /// Gives the outstanding reads, atomic operations and unordered puts of this connection this age, except those that
    /// have one ([`EdataTags::seal`]).
    pub fn seal(&mut self, conn: u32, age: u16) {
        self.slots.seal(conn, age);
    }

    /// Whether a read, atomic operation or unordered put of this connection of this age or an earlier one is
    /// outstanding, or the completion of any is queued.
    pub fn has_sealed(&self, conn: u32, age: u16) -> bool {
        let completes = |event: &QueueEvent| matches!(*event, QueueEvent::Completed { conn: of, .. } if of == conn);
        self.slots.has_sealed(conn, age) || self.ended.iter().any(completes)
    }

    /// Records that a post of this connection was refused; the next poll reports it.
    pub fn fail(&mut self, conn: u32, code: c_int) {
        self.failed.push((conn, code));
    }

    /// Whether an outstanding operation or a queued event names this connection: its number is not reused before.
    pub fn is_awaited(&mut self, conn: u32) -> bool {
        let waits = |owner: &Completion| owner.conn() == conn;
        self.slots.owners().any(waits)
            || self.under_way.names(conn)
            || self.buffers.names(conn)
            || self.ended.iter().any(|event| event.names(conn))
            || self.failed.iter().any(|&(of, _)| of == conn)
    }
}

/// The cbdata of an operation of this connection with this edata tag.
fn word_of(conn: u32, slot: u8) -> usize {
    CONN_CBDATA + conn as usize + (usize::from(slot) << SLOT_AT)
}
