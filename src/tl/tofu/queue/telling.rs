//! What a queue tells of what it was given to do, and of what peers have done.

use super::event::{Event, Owner, Whose};
use super::slots::{Came, NO_SLOT};
use super::under_way::Operation;
use super::{LENT, LINKS, MOST_EARLY, Queue, SLOT_AT};
use crate::sys::log;
use crate::sys::sync::foreign;
use crate::tl::tofu::utofu::{self, Notice, code_name};
use crate::tl::tofu::vcq::There;
use std::ffi::{c_int, c_void};

/// So many errors in a row, without a notice between them, are no single operation's.
const DEAF: u32 = 1000;
/// Looks for an answer that is on its way.
const LOOKS: u32 = 100;
/// Entries of ended transmissions that are taken at a time.
const BATCH: usize = 16;

impl Queue {
    /// Takes the ends of transmissions: buffers are free again, and what was lent. Whether there may be more.
    pub fn reap(&mut self) -> bool {
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
            let link = match word {
                LENT.. => self.give_back_lent((word - LENT) as u32, well),
                LINKS.. => (word - LINKS) as u32,
                buffer => self.buffers.give_back(buffer as u16),
            };
            if !well {
                self.failed.push((link, code));
            }
        }
        true
    }

    /// What was written from its owner's memory: the connection.
    fn give_back_lent(&mut self, number: u32, well: bool) -> u32 {
        let Operation { link, whose, .. } = self.under_way.remove(number);
        self.lent -= 1;
        self.ended.push_back(Event::Left { link, whose, well });
        link
    }

    /// What a notice with this byte tells, or was to tell, has failed: whose it is.
    #[cold]
    fn give_up(&mut self, slot: u64) -> Option<Came> {
        let came = self.slots.end(slot, false)?;
        let event = self.on_came(came);
        self.ended.extend(event);
        match came {
            Came::One(Owner::Changes(_)) => self.changes -= 1,
            Came::One(Owner::Reply(link)) => {
                let whose = self.replies.end(slot).whose;
                // Told when the connection is taken down.
                let orphan = (!whose.is_null()).then_some((link, whose));
                self.orphans.extend(orphan);
            }
            _ => {}
        }
        Some(came)
    }

    /// Reads have ended: the first of what there is to tell, if there is something. The others are told later.
    pub(super) fn on_came(&mut self, came: Came) -> Option<Event> {
        let Came::All { first, well, .. } = came else {
            return None;
        };
        let mut told = None;
        let (buffers, orphans, ended) = (&mut self.buffers, &mut self.orphans, &mut self.ended);
        self.under_way.take_all(first, |read| {
            let Operation { link, whose, .. } = read;
            if let Some((buffer, into, len)) = read.copy {
                if well && !whose.is_null() {
                    let from = buffers.ptr(buffer);
                    foreign::reads(from, len);
                    foreign::writes(into, len);
                    // SAFETY: as many bytes as the buffer has room for; who waits for them has room, too.
                    unsafe { into.copy_from_nonoverlapping(from, len) };
                }
                buffers.give_back(buffer);
                if !well {
                    // Who waits for it is told when the connection is taken down.
                    orphans.extend((!whose.is_null()).then_some((link, whose)));
                    return;
                }
            }
            let copied = read.copy.is_some();
            let event = Event::Came {
                link,
                whose,
                copied,
                well,
            };
            match told {
                None => told = Some(event),
                Some(_) => ended.push_back(event),
            }
        });
        told
    }

    /// The next thing that has happened.
    #[inline]
    pub fn poll(&mut self) -> Option<Event> {
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

    /// Looks for the answer to a question of this connection's ([`Owner::Flush`]), a microsecond or two. What else has
    /// come is kept for whoever polls. False: there is none, or memory that was lent is to be given back before it.
    pub fn look_for_answer(&mut self, link: u32) -> bool {
        let mut early = 0;
        let mut looks = 0;
        while looks < LOOKS && self.lent == 0 && self.early.len() < MOST_EARLY {
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
                && self.slots.owner(byte) == Some(Owner::Flush(link))
            {
                self.heard();
                self.early.remove(early);
                self.slots.end(byte, true);
                return true;
            }
            early += 1;
        }
        false
    }

    /// A notice has come that is no error.
    #[inline(always)]
    pub fn heard(&mut self) {
        self.errors = 0;
    }

    /// What an answer to a poll, with this notice, tells.
    #[inline]
    pub fn event(&mut self, code: c_int, notice: &Notice) -> Option<Event> {
        match code {
            utofu::SUCCESS if notice.notice_type == utofu::RMT_PUT => {
                self.heard();
                Some(Event::Arrived(notice.rmt_stadd))
            }
            utofu::NOT_FOUND => self.poll_failed(),
            code => self.on_notice(code, notice),
        }
    }

    fn poll_failed(&mut self) -> Option<Event> {
        if self.is_sending() {
            self.reap();
        }
        self.next_ended().or_else(|| self.next_failed())
    }

    /// What has ended. Before what has not gone well is told that its connection has failed: its peer is not told that
    /// all is well.
    fn next_ended(&mut self) -> Option<Event> {
        let is_well = self.ended.front()?.is_well();
        let failed = if is_well { None } else { self.next_failed() };
        failed.or_else(|| self.ended.pop_front())
    }

    fn next_failed(&mut self) -> Option<Event> {
        let (link, code) = self.failed.pop()?;
        let whose = Whose::of(link);
        Some(Event::Failed { whose, code })
    }

    /// A notice of an operation of ours, or an error.
    fn on_notice(&mut self, code: c_int, notice: &Notice) -> Option<Event> {
        let ours = matches!(
            notice.notice_type,
            utofu::LCL_PUT | utofu::LCL_GET | utofu::LCL_ARMW
        );
        let well = code == utofu::SUCCESS;
        if !well {
            let came = ours.then(|| self.give_up(notice.edata)).flatten();
            return Some(self.on_error(code, notice, came));
        }
        self.heard();
        let came = (ours.then(|| self.slots.end(notice.edata, true))).flatten()?;
        let event = self.on_came(came);
        match came {
            Came::One(Owner::Reply(link)) => {
                let whose = self.replies.land(notice.edata, notice.rmt_value);
                Some(came_for(link, whose))
            }
            Came::One(Owner::Changes(link)) => {
                self.changes -= 1;
                Some(came_for(link, std::ptr::null_mut()))
            }
            Came::One(owner) => {
                let value = notice.rmt_value;
                Some(self.in_turn(Event::Ended { owner, value }))
            }
            Came::Part(_) | Came::All { .. } => match event {
                // Of those that share its number another has failed.
                Some(event) if !event.is_well() => {
                    self.ended.push_front(event);
                    self.next_ended()
                }
                event => event,
            },
        }
    }

    /// All that was written before is there: what was lent for it is given back first.
    fn in_turn(&mut self, event: Event) -> Event {
        if self.lent == 0 {
            return event;
        }
        while self.reap() {}
        self.ended.push_back(event);
        self.next_ended().unwrap_or(event)
    }

    fn on_error(&mut self, code: c_int, notice: &Notice, came: Option<Came>) -> Event {
        log::diag!(
            "the interconnect tells of an error: {} ({code}), notice of type {}, edata {}",
            code_name(code),
            notice.notice_type,
            notice.edata
        );
        let is_vague = came.is_none() && code == utofu::MRQ_OTHER;
        self.errors = if is_vague { self.errors + 1 } else { 0 };
        if self.errors > DEAF {
            return Event::Deaf { code };
        }
        let whose = match came {
            Some(Came::One(owner)) => Whose::of(owner.link()),
            Some(Came::Part(link) | Came::All { link, .. }) => Whose::Link(link),
            None => {
                let there = There {
                    vcq: notice.vcq_id,
                    stadd: notice.rmt_stadd,
                };
                Whose::Coloured(notice.edata as u8, there)
            }
        };
        Event::Failed { whose, code }
    }
}

/// Something has come that the adapter did not put into its owner's memory itself.
fn came_for(link: u32, whose: *mut c_void) -> Event {
    Event::Came {
        link,
        whose,
        copied: true,
        well: true,
    }
}
