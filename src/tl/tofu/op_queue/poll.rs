//! Polls the TCQ and the MRQ: completions of this worker's operations, and arrivals from peers.

use super::completion::{Completion, ErrSource, QueueEvent};
use super::edata_tags::{NO_SLOT, TagHit};
use super::outstanding::{BcopyRead, CopyTarget, OutstandingOp};
use super::{CONN_CBDATA, MAX_EARLY_NOTICES, OpQueue, SLOT_AT, ZCOPY_BIT};
use crate::sys::log;
use crate::tl::Token;
use crate::tl::tofu::utofu::{self, MrqNotice, code_name};
use crate::tl::tofu::vcq::RemoteAddr;
use std::ffi::c_int;

/// More consecutive errors than this, with no valid notice between them, mean that the MRQ itself has failed.
const MAX_VAGUE_ERRORS: u32 = 1000;
/// Maximum number of empty polls of the MRQ for a flush reply.
const LOOKS: u32 = 100;
/// TCQ entries taken per call.
const BATCH: usize = 16;

impl OpQueue {
    /// Polls the TCQ: frees buffers and completes zcopy puts. True: more entries may be queued.
    pub fn poll_tcq(&mut self) -> bool {
        for _ in 0..BATCH {
            let (code, word) = self.vcq.poll_tcq();
            if code == utofu::NOT_FOUND {
                return false;
            }
            let well = code == utofu::SUCCESS;
            let (slot, word) = ((word >> SLOT_AT) as u64, word & ((1 << SLOT_AT) - 1));
            if !well && slot != NO_SLOT {
                self.give_up(slot);
            }
            let conn = match word {
                ZCOPY_BIT.. => self.release_zcopy((word - ZCOPY_BIT) as u32, well),
                CONN_CBDATA.. => (word - CONN_CBDATA) as u32,
                buffer => self.buffers.give_back(buffer as u16),
            };
            if !well {
                self.failed.push((conn, code));
            }
        }
        true
    }

    /// A zcopy put has left the request's memory: returns its connection.
    fn release_zcopy(&mut self, number: u32, well: bool) -> u32 {
        let OutstandingOp { conn, request, .. } = self.under_way.remove(number);
        self.zcopy_in_flight -= 1;
        self.ended.push_back(QueueEvent::ZcopyDone {
            conn,
            request,
            well,
        });
        conn
    }

    /// The operation with this edata tag has failed: returns what it belongs to.
    #[cold]
    fn give_up(&mut self, slot: u64) -> Option<TagHit> {
        let hit = self.slots.complete(slot, false)?;
        let event = self.on_tag_hit(hit);
        self.ended.extend(event);
        match hit {
            TagHit::One(Completion::Changes(_)) => self.changes -= 1,
            TagHit::One(Completion::Reply(conn)) => {
                let request = self.replies.end(slot).request;
                // The request is completed when the connection is released.
                let failed_request = (!request.is_none()).then_some((conn, request));
                self.failed_requests.extend(failed_request);
            }
            _ => {}
        }
        Some(hit)
    }

    /// Completes reads: returns the first event, if there is one, and queues the others.
    pub(super) fn on_tag_hit(&mut self, hit: TagHit) -> Option<QueueEvent> {
        let TagHit::All { first, well, .. } = hit else {
            return None;
        };
        let mut reported = None;
        let (buffers, failed_requests, ended, most) = (
            &mut self.buffers,
            &mut self.failed_requests,
            &mut self.ended,
            &mut self.most,
        );
        self.under_way.take_all(first, |read| {
            let OutstandingOp { conn, request, .. } = read;
            if let Some(BcopyRead { buffer, to }) = read.copy {
                if let CopyTarget::Pieces(targets) = to {
                    *most += targets.count() - 1;
                }
                if well && !request.is_none() {
                    // SAFETY: the last notice has come; the request waits for it.
                    unsafe { to.store(buffers.ptr(buffer)) };
                }
                buffers.give_back(buffer);
                if !well {
                    // The request is completed when the connection is released.
                    failed_requests.extend((!request.is_none()).then_some((conn, request)));
                    return;
                }
            }
            let copied = read.copy.is_some();
            let event = QueueEvent::Completed {
                conn,
                request,
                copied,
                well,
            };
            match reported {
                None => reported = Some(event),
                Some(_) => ended.push_back(event),
            }
        });
        reported
    }

    /// The next event.
    #[inline]
    pub fn poll(&mut self) -> Option<QueueEvent> {
        loop {
            if !self.ended.is_empty() {
                return self.next_ended();
            }
            let (code, notice) = match self.early.pop_front() {
                Some(early) => early,
                None => self.vcq.poll_mrq(),
            };
            let event = self.event(code, &notice);
            if event.is_some() || code == utofu::NOT_FOUND {
                return event;
            }
        }
    }

    /// Polls the MRQ for a flush reply of this connection ([`Completion::Flush`]), for a microsecond or two. Other
    /// notices are queued for [`poll`](Self::poll). False: none came, or a zcopy put is outstanding, which completes
    /// before it.
    pub fn poll_flush_reply(&mut self, conn: u32) -> bool {
        let mut early = 0;
        let mut looks = 0;
        while looks < LOOKS && self.zcopy_in_flight == 0 && self.early.len() < MAX_EARLY_NOTICES {
            let Some((code, notice)) = self.early.get(early) else {
                match self.vcq.poll_mrq() {
                    (utofu::NOT_FOUND, _) => looks += 1,
                    come => self.early.push_back(come),
                }
                std::hint::spin_loop();
                continue;
            };
            let (is_put, byte) = (notice.notice_type == utofu::LCL_PUT, notice.edata);
            if is_put
                && *code == utofu::SUCCESS
                && self.slots.owner(byte) == Some(Completion::Flush(conn))
            {
                self.has_reply();
                self.early.remove(early);
                self.slots.complete(byte, true);
                return true;
            }
            early += 1;
        }
        false
    }

    /// A valid notice arrived: restarts the count of errors.
    #[inline(always)]
    pub fn has_reply(&mut self) {
        self.errors = 0;
    }

    /// The event that a result of `utofu_poll_mrq` and its notice stand for.
    #[inline]
    pub fn event(&mut self, code: c_int, notice: &MrqNotice) -> Option<QueueEvent> {
        match code {
            utofu::SUCCESS if notice.notice_type == utofu::RMT_PUT => {
                self.has_reply();
                Some(QueueEvent::Arrived(notice.rmt_stadd))
            }
            utofu::NOT_FOUND => self.poll_failed(),
            code => self.on_notice(code, notice),
        }
    }

    fn poll_failed(&mut self) -> Option<QueueEvent> {
        if self.is_sending() {
            self.poll_tcq();
        }
        self.next_ended().or_else(|| self.next_failed())
    }

    /// The next queued event. A failed completion comes after the failure of its connection: so its peer is not sent a
    /// success.
    fn next_ended(&mut self) -> Option<QueueEvent> {
        let is_well = self.ended.front()?.is_well();
        let failed = if is_well { None } else { self.next_failed() };
        failed.or_else(|| self.ended.pop_front())
    }

    fn next_failed(&mut self) -> Option<QueueEvent> {
        let (conn, code) = self.failed.pop()?;
        let source = ErrSource::of(conn);
        Some(QueueEvent::Failed { source, code })
    }

    /// A notice of an operation of this worker, or an error.
    fn on_notice(&mut self, code: c_int, notice: &MrqNotice) -> Option<QueueEvent> {
        let ours = matches!(
            notice.notice_type,
            utofu::LCL_PUT | utofu::LCL_GET | utofu::LCL_ARMW
        );
        let well = code == utofu::SUCCESS;
        if !well {
            let hit = ours.then(|| self.give_up(notice.edata)).flatten();
            return Some(self.on_error(code, notice, hit));
        }
        self.has_reply();
        let hit = (ours.then(|| self.slots.complete(notice.edata, true))).flatten()?;
        match hit {
            TagHit::One(Completion::Reply(conn)) => {
                let request = self.replies.land(notice.edata, notice.rmt_value);
                Some(tag_hit(conn, request))
            }
            TagHit::One(Completion::Changes(conn)) => {
                self.changes -= 1;
                Some(tag_hit(conn, Token::NONE))
            }
            TagHit::One(owner) => {
                let value = notice.rmt_value;
                Some(self.in_turn(QueueEvent::Ended { owner, value }))
            }
            TagHit::Part(_) => None,
            TagHit::All { .. } => match self.on_tag_hit(hit) {
                // Another operation that shares the tag has failed.
                Some(event) if !event.is_well() => {
                    self.ended.push_front(event);
                    self.next_ended()
                }
                event => event,
            },
        }
    }

    /// All earlier puts have arrived: completes the zcopy puts among them before `event`.
    fn in_turn(&mut self, event: QueueEvent) -> QueueEvent {
        if self.zcopy_in_flight == 0 {
            return event;
        }
        while self.poll_tcq() {}
        self.ended.push_back(event);
        self.next_ended().unwrap_or(event)
    }

    fn on_error(&mut self, code: c_int, notice: &MrqNotice, hit: Option<TagHit>) -> QueueEvent {
        log::diag!(
            "the interconnect reports an error: {} ({code}), notice of type {}, edata {}",
            code_name(code),
            notice.notice_type,
            notice.edata
        );
        let is_unnamed = notice.notice_type == utofu::NO_NOTICE;
        let is_vague = hit.is_none() && (code == utofu::MRQ_OTHER || is_unnamed);
        self.errors = if is_vague { self.errors + 1 } else { 0 };
        if self.errors > MAX_VAGUE_ERRORS {
            return QueueEvent::MrqFailed { code };
        }
        let source = match hit {
            Some(TagHit::One(owner)) => ErrSource::of(owner.conn()),
            Some(TagHit::Part(conn) | TagHit::All { conn, .. }) => ErrSource::Conn(conn),
            None if is_unnamed => ErrSource::Unknown,
            None => {
                let there = RemoteAddr {
                    vcq: notice.vcq_id,
                    stadd: notice.rmt_stadd,
                };
                ErrSource::Untagged(notice.edata as u8, there)
            }
        };
        QueueEvent::Failed { source, code }
    }
}

/// The completion of an operation for which the TNI did not access the request's memory.
fn tag_hit(conn: u32, request: Token) -> QueueEvent {
    QueueEvent::Completed {
        conn,
        request,
        copied: true,
        well: true,
    }
}
