//! What this side has of a peer on this host besides the lane to it.

use super::close::{CloseAnswer, CloseOffer};
use super::outbox::{Outbox, WaitingBox};
use super::{FoundInbox, InboxLocator, RingOwner};
use crate::tl::Lane;
use std::io;

/// The way to a peer by shared memory while no lane leads there. Used under the lock of the peer's transmit state.
#[derive(Default)]
pub struct HostLink {
    /// The peer's inbox, mapped when an endpoint was created, or by an operation that found no free ring there.
    waiting: Option<WaitingBox>,
    /// The ring that we have offered to close.
    closing: Option<Box<Outbox>>,
}

impl HostLink {
    /// Maps the peer's inbox before the first message, unless it is mapped, or address space is limited.
    pub fn map_ahead(&mut self, found: FoundInbox) {
        if self.waiting.is_none() {
            self.waiting = found.map_ahead();
        }
    }

    /// Takes a ring in the peer's inbox; `me`: what the peer learns of this worker.
    ///
    /// # Errors
    /// Those of [`Outbox::open`]; after `WouldBlock` the next call tries again.
    pub fn open(&mut self, inbox: InboxLocator, me: &RingOwner) -> io::Result<Lane> {
        Outbox::open(inbox, me, &mut self.waiting).map(Lane::Shm)
    }

    /// Whether the peer had no memory for more rings when a ring was last searched for: one is free only after another
    /// sender has released its ring.
    pub fn is_receiver_full(&self) -> bool {
        (self.waiting.as_ref()).is_some_and(|waiting| waiting.get().is_receiver_full())
    }

    /// Whether the peer's inbox is mapped, where no ring of ours is.
    pub fn is_mapped(&self) -> bool {
        self.waiting.is_some()
    }

    /// Unmaps the inbox, where no ring of ours is.
    pub fn unmap(&mut self) {
        self.waiting = None;
    }

    /// [`unmap`](Self::unmap) if the peer has destroyed it.
    pub fn unmap_abandoned(&mut self) {
        self.waiting.take_if(|waiting| waiting.get().is_abandoned());
    }

    /// Whether the lane is a ring in a crowded inbox by which nothing was sent since the last call.
    pub fn is_unused(lane: &mut Option<Lane>) -> bool {
        match lane {
            Some(Lane::Shm(outbox)) => outbox.is_unused() && outbox.is_inbox_crowded(),
            _ => false,
        }
    }

    /// Sets the lane to a peer aside and offers to close its ring. False, and the lane stays: the peer has not handled
    /// all messages yet, or the lane is another transport's. True without a lane.
    pub fn offer_close(&mut self, lane: &mut Option<Lane>, offer: CloseOffer) -> bool {
        let is_offered = match lane {
            None => return true,
            Some(Lane::Shm(outbox)) => outbox.offer_close(offer),
            Some(_) => false,
        };
        if is_offered && let Some(Lane::Shm(outbox)) = lane.take() {
            self.closing = Some(outbox);
        }
        is_offered
    }

    /// Whether an offer to close a ring is neither withdrawn nor done with.
    pub fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// Whether an offer to close a ring that was not used is neither withdrawn nor done with.
    pub fn is_closing_unused(&self) -> bool {
        (self.closing.as_ref()).is_some_and(|outbox| outbox.offered() == CloseOffer::Unused)
    }

    /// Withdraws the offer: the lane, or the answer of the peer, which has closed the ring. `None`: there is no offer.
    pub fn resume(&mut self) -> Option<Result<Lane, CloseAnswer>> {
        let mut outbox = self.closing.take()?;
        let withdrawn = outbox.withdraw_offer();
        Some(withdrawn.map(|()| Lane::Shm(outbox)))
    }

    /// The peer's answer to the offer, once, and the closed lane. To be dropped without the lock: unmapping is slow.
    pub fn take_closed(&mut self) -> Option<(CloseAnswer, Lane)> {
        let answer = self.closing.as_ref()?.answer()?;
        let outbox = self.closing.take()?;
        Some((answer, Lane::Shm(outbox)))
    }

    /// Ends the way to a peer that has failed; `is_dead`: its process has ended. Returns the lane that was to be
    /// closed, to be dropped without the lock.
    pub fn end(&mut self, is_dead: bool) -> Option<Lane> {
        self.waiting = None;
        let mut outbox = self.closing.take()?;
        if is_dead {
            outbox.discard_unread();
        }
        Some(Lane::Shm(outbox))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::tl::shm::inbox::Inbox;

    /// The inbox of an endpoint that is never used is unmapped; one that is used becomes the lane.
    #[test]
    fn an_inbox_that_was_mapped_ahead_is_unmapped_or_used() {
        let mut inbox = Inbox::create(false).unwrap();
        let me = RingOwner {
            uid: 7,
            inbox: inbox.locator(),
        };
        let mut link = HostLink::default();
        for _ in 0..2 {
            link.map_ahead(inbox.locator().into());
            assert!(link.is_mapped());
            link.unmap();
            assert!(!link.is_mapped());
        }
        link.map_ahead(inbox.locator().into());
        let Ok(Lane::Shm(mut outbox)) = link.open(inbox.locator(), &me) else {
            panic!("no ring");
        };
        assert!(!link.is_mapped());
        assert_eq!(outbox.send(1, 0, 5, 8, |_| ()), Ok(true));
        let doorbell = inbox.doorbell();
        assert_eq!(inbox.accept(&doorbell).len(), 1);
    }
}
