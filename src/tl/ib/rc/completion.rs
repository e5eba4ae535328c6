//! Completions of sends: flush markers, owners, and what a completion releases.

use super::RcEp;
use crate::tl::Token;
use crate::tl::ib::desc::TxDesc;
use crate::tl::ib::op_slots::{EndedOp, OpKind, OpSlots};

impl RcEp {
    /// Whether all posted sends are known to have completed.
    pub fn is_drained(&self) -> bool {
        self.posted == self.ended
    }

    /// Reports `owner` as complete, like a read, when all that was posted has completed. The caller has checked that
    /// something has not.
    #[inline(always)]
    pub fn flush_marker(&mut self, owner: Token) {
        if self.last_signaled < self.posted {
            match &mut self.waits {
                // If the device refuses this one, the sends before it report the failure.
                Some(waits) if self.posted < self.until => {
                    self.posted += 1;
                    let wr = waits.probe();
                    wr.wr_id = self.posted;
                    // SAFETY: a write of 0 bytes names no memory.
                    unsafe { self.qp.post_send(wr) };
                    self.note_signaled();
                }
                _ => self.post_signaled(),
            }
        }
        self.flush_markers += 1;
        match &mut self.waits {
            Some(waits) if waits.has_slot() => waits.flush_marker(self.posted, owner),
            _ => self.flush_marker_slow(owner),
        }
    }

    /// [`flush_marker`](Self::flush_marker) where no slot is free.
    #[inline(never)]
    fn flush_marker_slow(&mut self, owner: Token) {
        self.waits.get_or_insert_with(OpSlots::new);
        self.held
            .push_back((self.posted, TxDesc::FlushMarker(owner)));
    }

    /// Detaches the owners for which `wanted` is true: they are passed to `found`, once for each read or flush marker,
    /// and are not completed later.
    pub fn detach_owner(&mut self, wanted: impl Fn(Token) -> bool, mut found: impl FnMut(Token)) {
        if let Some(waits) = &mut self.waits {
            waits.detach_owner(&wanted, &mut found);
        }
        for (_, held) in &mut self.held {
            match held {
                TxDesc::In(_, read) if !read.into.is_null() && wanted(read.owner) => {
                    read.into = std::ptr::null_mut();
                    found(read.owner);
                }
                TxDesc::InPieces(_, scatter)
                    if !scatter.owner.is_none() && wanted(scatter.owner) =>
                {
                    found(std::mem::replace(&mut scatter.owner, Token::NONE));
                }
                TxDesc::FlushMarker(owner) if !owner.is_none() && wanted(*owner) => {
                    found(std::mem::replace(owner, Token::NONE));
                }
                _ => {}
            }
        }
    }

    /// The owners of operations, once for each read, flush marker or zero-copy work request.
    pub fn owners(&self) -> impl Iterator<Item = Token> {
        let held = self.held.iter().filter_map(|(_, held)| match held {
            TxDesc::In(_, read) if !read.into.is_null() => Some(read.owner),
            TxDesc::InPieces(_, scatter) if !scatter.owner.is_none() => Some(scatter.owner),
            TxDesc::FlushMarker(owner) if !owner.is_none() => Some(*owner),
            TxDesc::ZcopyDesc(desc) => Some(desc.owner),
            _ => None,
        });
        held.chain(self.waits.iter().flat_map(|waits| waits.owners()))
    }

    /// Handles the completion of a signaled send: all sends up to it have completed, their buffers are freed, and
    /// results are copied to their targets. `done` gets each owner, once for each read, flush marker or zero-copy work
    /// request.
    #[inline(always)]
    pub fn on_send_completion(&mut self, number: u64, mut done: impl FnMut(Token)) {
        if !self.advance_completed(number) {
            return;
        }
        while let Some(wait) = self.next_completed() {
            if !wait.owner.is_none() {
                done(wait.owner);
            }
        }
        if self.has_descs() || self.has_flush_markers() {
            self.complete_descs(&mut done);
        }
    }

    /// First step of [`on_send_completion`](Self::on_send_completion): records the completion. False: it completes no
    /// further send.
    #[inline(always)]
    pub fn advance_completed(&mut self, number: u64) -> bool {
        if self.signals_outstanding > 0 {
            self.signals_outstanding -= 1;
            self.iface.add_signaled(-1);
        }
        let new = number > self.ended && number <= self.posted;
        if new {
            self.ended = number;
        }
        new
    }

    /// Second step of [`on_send_completion`](Self::on_send_completion), repeated until it returns None: takes the next
    /// slot that has completed.
    #[inline(always)]
    pub fn next_completed(&mut self) -> Option<EndedOp> {
        let wait = self.waits.as_mut()?.take_completed(self.ended)?;
        if let Some(buffer) = wait.buffer {
            self.iface.packets.lock().put(buffer);
        }
        match wait.what {
            OpKind::FlushMarker => self.flush_markers -= 1,
            OpKind::Read => self.reads -= 1,
            OpKind::Atomic => self.atomics -= 1,
        }
        Some(wait)
    }

    /// Whether buffers or other memory are attached to sends: the third step, [`complete_descs`](Self::complete_descs),
    /// is needed.
    #[inline(always)]
    pub fn has_descs(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether flush markers wait: the third step, [`complete_descs`](Self::complete_descs), is needed.
    #[inline(always)]
    pub fn has_flush_markers(&self) -> bool {
        self.flush_markers > 0
    }

    /// Third step of [`on_send_completion`](Self::on_send_completion): frees the buffers of completed sends, copies
    /// results, and passes owners to `done`.
    #[inline(never)]
    pub fn complete_descs(&mut self, done: &mut dyn FnMut(Token)) {
        let mut packets = self.iface.packets.lock();
        while self.held.front().is_some_and(|(n, _)| *n <= self.ended) {
            let Some((_, held)) = self.held.pop_front() else {
                break;
            };
            match held {
                TxDesc::Out(buffer) => packets.put(buffer),
                TxDesc::In(buffer, read) => {
                    if read.atomic {
                        self.atomics -= 1
                    } else {
                        self.reads -= 1
                    }
                    if !read.into.is_null() {
                        // SAFETY: the owner keeps the memory until the read completes or is detached from it; the
                        // buffer has `len` bytes.
                        unsafe { read.into.copy_from_nonoverlapping(buffer.ptr, read.len) };
                        done(read.owner);
                    }
                    packets.put(buffer);
                }
                TxDesc::InPieces(buffer, scatter) => {
                    self.reads -= scatter.targets.count() as u32;
                    if !scatter.owner.is_none() {
                        // SAFETY: the owner keeps its arrays and the memory until the reads complete or are detached
                        // from it; the buffer has the results.
                        unsafe { scatter.targets.scatter(buffer.ptr) };
                        done(scatter.owner);
                    }
                    packets.put(buffer);
                }
                TxDesc::FlushMarker(owner) => {
                    self.flush_markers -= 1;
                    if !owner.is_none() {
                        done(owner);
                    }
                }
                TxDesc::ZcopyDesc(desc) => {
                    self.reads -= u32::from(desc.reads);
                    self.zcopy_bytes -= desc.len as u64;
                    done(desc.owner);
                }
            }
        }
        drop(packets);
        if self.flush_markers > 0 {
            // There may have been no room to request a completion when the marker was set.
            self.post_signaled();
        }
    }
}
