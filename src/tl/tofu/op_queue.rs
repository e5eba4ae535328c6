//! What is under way by a virtual control queue: [`buffers`] that the adapter reads and writes, operations whose ends
//! requests wait for ([`outstanding`]), and numbers that notices tell them by ([`edata_tags`]).

mod atomics;
mod buffers;
mod completion;
mod post;
mod edata_tags;
mod poll;
mod outstanding;

use super::utofu::MrqNotice;
use super::vcq::Vcq;
use atomics::AmoReplies;
use buffers::DmaBuffers;
use edata_tags::{EdataTags, SLOTS};
use outstanding::Outstanding;
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::Arc;

pub use completion::{CREDITS, Completion, ErrSource, NO_LINK, OWN, OpTag, QueueEvent};
pub use edata_tags::generation_of;

/// A queue that takes nothing for so long is stuck, milliseconds.
const STUCK_MS: u64 = 10_000;
/// Notices that are kept while one is looked for: more than any queue holds.
const MOST_EARLY: usize = 1 << 16;
/// Words with entries of ended transmissions: a buffer below this, else a link,
pub const LINKS: usize = 1 << 16;
/// or what was written from its owner's memory.
const LENT: usize = 1 << 40;
/// Above that the byte that a notice was to have, of what one tells of: which does not come if this queue tells of a
/// failure.
const SLOT_AT: u32 = 48;

// SAFETY: pointers that are followed under the queue's lock only, while their owners wait.
unsafe impl Send for OpQueue {}

/// One thread at a time: whoever holds its lock.
pub struct OpQueue {
    pub vcq: Arc<Vcq>,
    buffers: DmaBuffers,
    /// Those who wait for reads that have failed, by their connections, until those are taken down.
    orphans: Vec<(u32, *mut c_void)>,
    slots: EdataTags,
    /// Where the values go that atomic operations find.
    replies: AmoReplies,
    /// Atomic operations without a reply whose notices have not come.
    changes: u32,
    /// Notices that came while another one was looked for.
    early: VecDeque<(c_int, MrqNotice)>,
    under_way: Outstanding,
    /// Operations that there may be: each can have a notice.
    most: usize,
    /// Those that write from their owners' memory.
    lent: usize,
    /// What has ended and was not told yet.
    ended: VecDeque<QueueEvent>,
    /// Connections of which a transmission has failed, and how.
    failed: Vec<(u32, c_int)>,
    /// Errors in a row that tell nothing.
    errors: u32,
}

impl OpQueue {
    /// `notices`: so many operations that somebody waits for may be under way, if it is not very few.
    ///
    /// # Errors
    /// What the library says.
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
            lent: 0,
            ended: VecDeque::new(),
            orphans: Vec::new(),
            failed: Vec::new(),
            errors: 0,
        })
    }

    /// Whether so many frames have buffers.
    pub fn has_buffers(&mut self, n: usize) -> bool {
        if self.buffers.free() < n {
            self.reap();
        }
        if self.buffers.free() < n {
            self.buffers.grow(&self.vcq);
        }
        self.buffers.free() >= n
    }

    /// Whether transmissions are under way that will tell of their ends.
    pub fn is_sending(&self) -> bool {
        self.buffers.any_taken() || self.lent > 0 || !self.failed.is_empty()
    }

    /// Whether what was heard of, and not told yet, has to be told first.
    #[inline(always)]
    pub fn has_more(&self) -> bool {
        !self.early.is_empty() || !self.ended.is_empty()
    }

    /// A buffer for a frame of a connection: its number, and where it is. [`has_buffers`](Self::has_buffers)
    pub fn take_buffer(&mut self, link: u32) -> Option<(u16, *mut u8)> {
        let index = self.buffers.take(link)?;
        Some((index, self.buffers.ptr(index)))
    }

    /// The opposite of [`take_buffer`](Self::take_buffer), of one that was not sent.
    pub fn give_back(&mut self, buffer: u16) {
        self.buffers.give_back(buffer);
    }

    /// Whether writers of rings have not been told yet what they are being told.
    pub fn is_disconnecting(&self) -> bool {
        let says = |owner: &Completion| matches!(owner, Completion::Farewell(_));
        self.slots.owners().any(says)
    }

    /// Those who wait for what this connection has under way, or for what has failed: once or more for each.
    pub fn waiting(&mut self, link: u32) -> Vec<*mut c_void> {
        let orphans = self.orphans.iter().filter(|(of, _)| *of == link);
        let mut all: Vec<_> = orphans.map(|&(_, whose)| whose).collect();
        all.extend(self.under_way.of_conn(link).map(|o| o.whose));
        let replies = self.replies.users().filter(|user| user.link == link);
        all.extend(replies.map(|user| user.whose));
        all.extend(self.ended.iter().filter_map(|event| event.waits(link)));
        all.retain(|whose| !whose.is_null());
        all
    }

    /// Those in whose memory the adapter works for this connection, or of whom it was not told yet that it has done.
    pub fn zcopy_owners(&mut self, link: u32) -> Vec<*mut c_void> {
        let all = self.under_way.of_conn(link);
        let in_place = all.filter(|o| o.copy.is_none());
        let mut found: Vec<_> = in_place.map(|o| o.whose).collect();
        let ended = self
            .ended
            .iter()
            .filter_map(|event| event.zcopy_owner(link));
        found.extend(ended.filter(|whose| !whose.is_null()));
        found
    }

    /// Those who wait for reads into buffers by this connection, and of whom this is true, wait no more: who they are.
    pub fn detach_owner(
        &mut self,
        link: u32,
        wanted: impl Fn(*mut c_void) -> bool,
    ) -> Vec<*mut c_void> {
        let mut found = Vec::new();
        for operation in self.under_way.of_conn(link) {
            if operation.copy.is_some() && wanted(operation.whose) {
                found.push(operation.whose);
                operation.whose = std::ptr::null_mut();
            }
        }
        for user in self.replies.users_mut() {
            if user.link == link && wanted(user.whose) {
                found.push(user.whose);
                user.detach_owner();
            }
        }
        for event in &mut self.ended {
            if let QueueEvent::Came {
                link: of,
                whose,
                copied: true,
                ..
            } = event
                && *of == link
                && !whose.is_null()
                && wanted(*whose)
            {
                found.push(std::mem::replace(whose, std::ptr::null_mut()));
            }
        }
        self.orphans.retain(|&(of, whose)| {
            let taken = of == link && wanted(whose);
            if taken {
                found.push(whose);
            }
            !taken
        });
        found
    }

    /// Something of this connection was refused: whoever polls next hears of it.
    pub fn fail(&mut self, link: u32, code: c_int) {
        self.failed.push((link, code));
    }

    /// Whether something that the queue still tells of names this connection: until all of it was told its number is
    /// not another's.
    pub fn is_awaited(&mut self, link: u32) -> bool {
        let waits = |owner: &Completion| owner.link() == link;
        self.slots.owners().any(waits)
            || self.under_way.names(link)
            || self.buffers.names(link)
            || self.ended.iter().any(|event| event.names(link))
            || self.failed.iter().any(|&(of, _)| of == link)
    }
}

/// The word with the entry of ended transmissions of what a notice with this byte tells of.
fn word_of(link: u32, slot: u8) -> usize {
    LINKS + link as usize + (usize::from(slot) << SLOT_AT)
}
