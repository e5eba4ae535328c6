//! What the last look at all rings has shown: with it, an idle worker with many rings looks at one of them.
//!
//! A sender that has not sent the last message begins an epoch ([`order`](super::order)), which adds to a counter of
//! the inbox. As long as the counter stays after all rings were found empty, only the sender of the last epoch may
//! send: a poll loads the counter and looks at that sender's ring, however many other rings there are.
//!
//! There is an exception: a sender that has begun an earlier epoch, and was preempted before it published its message.
//! Every [`POLLS`]th poll looks at all rings.

use super::worker::ShmRx;

/// Number of polls of an idle worker of which one looks at all rings.
const POLLS: u32 = 16;

/// What the last look at all rings has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LastLook {
    /// Not that they are empty, or not which peer may send next.
    #[default]
    Unclear,
    /// They were empty, and the last of the epochs that had begun was `epoch`.
    Empty {
        epoch: u64,
        /// Number of the ring of this epoch's sender.
        ring: usize,
        /// Polls that may still rely on this.
        left: u32,
    },
}

impl LastLook {
    /// After a look that has found all of these rings empty. `epoch`: the inbox's counter before that look.
    pub fn at_empty<P>(rings: &[ShmRx<P>], epoch: u64) -> Self {
        let left = POLLS - 1;
        match rings.iter().position(|r| r.consumer.last_epoch() == epoch) {
            Some(ring) => Self::Empty { epoch, ring, left },
            None => Self::Unclear,
        }
    }

    /// Whether all rings still are empty, as far as one poll can say without a look at each. `epoch`: the inbox's
    /// counter. False: it cannot say.
    #[inline(always)]
    pub fn holds<P>(&mut self, rings: &[ShmRx<P>], epoch: impl FnOnce() -> u64) -> bool {
        let Self::Empty {
            epoch: last,
            ring,
            left,
        } = self
        else {
            return false;
        };
        // The list of rings may have changed: the number then names another sender's ring, or none.
        let is_empty =
            |ring: &ShmRx<P>| ring.consumer.last_epoch() == *last && ring.consumer.is_empty();
        if *left > 0 && epoch() == *last && rings.get(*ring).is_some_and(is_empty) {
            *left -= 1;
            return true;
        }
        *self = Self::Unclear;
        false
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
