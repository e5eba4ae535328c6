//! Striping of long transfers over the connection's queue pair and its rails.
//!
//! Parts on different queue pairs complete in any order. Operations that must follow such a transfer wait for all of
//! it: the message that reports its end, and RMA behind a fence, which is queued then
//! ([`RmaOps::queues_fence`](crate::tl::rma_ops::RmaOps::queues_fence)).

use super::context::IbContext;
use super::desc::{Unmoved, ZcopyDesc};
use super::sender::IbSender;
use crate::sys::clock;
use crate::tl::TlZcopy;
use crate::tl::rma::{RailWork, RmaKey, Striping};
use crate::tl::rma_ops::{RailHost, ZcopyPart};

/// Transfers of at least this length are striped, bytes: below that one port is as fast as two that have to be waited
/// for.
const SHARED: usize = 256 << 10;

impl IbContext {
    /// Maximum number of ports that share a transfer.
    pub fn most_rails(&self, striping: Striping) -> usize {
        let policy = self.policy.as_ref().filter(|_| self.ports.len() > 1);
        policy.map_or(1, |ib| match striping {
            Striping::Rma => ib.rma_rails,
            Striping::Rndv => ib.rndv_rails,
            Striping::Never => 1,
        })
    }
}

/// Whether the connection's queue pair alone moves a transfer, if there is one.
pub fn one_suffices(part: &ZcopyPart<'_>) -> bool {
    let theirs = match part.rma.key {
        RmaKey::Rkeys(rkeys) => rkeys.iter().filter(|&&rkey| rkey != 0).count(),
        RmaKey::None | RmaKey::Stadd(_) | RmaKey::Mr(_) => 0,
    };
    let most = || part.host.context().ib.most_rails(part.striping);
    part.rma.len < SHARED || theirs < 2 || most() < 2
}

/// Decides whether a new transfer is striped, and requests rails for it and later ones. False: it will be striped, when
/// the transfers before it are complete.
pub fn begin(sender: &mut IbSender, part: &mut ZcopyPart<'_>) -> bool {
    let is_begun = *part.on_rails || *part.rma.outstanding > 0;
    // Not in the middle of a transfer: the parts posted before report no completion.
    if is_begun || part.rma.len == 0 || one_suffices(part) && sender.is_connected() {
        return true;
    }
    if !has_rails(sender, part.host) {
        return true;
    }
    *part.on_rails = part.striping != Striping::Rma || sender.is_behind_fence();
    *part.on_rails
}

/// Whether there are rails. Requests them, if that is due.
fn has_rails(sender: &mut IbSender, host: &dyn RailHost) -> bool {
    if sender.rails.are_due(clock::coarse_ms()) {
        host.raise(RailWork::Request);
    }
    sender.rails.any_open()
}

/// Posts what is left of a transfer on the connection and its rails, as far as there is room. True: all of it; `None`:
/// it has no memory for an HCA.
pub fn share_out(sender: &mut IbSender, part: ZcopyPart<'_>) -> Option<bool> {
    let TlZcopy::Ib(zcopy) = part.tl else {
        return None;
    };
    let most = part.host.context().ib.most_rails(part.striping).max(1);
    if !sender.is_connected() && !has_rails(sender, part.host) {
        return Some(false);
    }
    let rma = part.rma;
    let all = loop {
        let next = match zcopy.again.last() {
            Some(&next) => next,
            None if (*rma.offset as usize) < rma.len => Unmoved {
                offset: *rma.offset,
                len: rma.len - *rma.offset as usize,
            },
            None => break true,
        };
        let here = ZcopyDesc {
            ptr: rma.data.wrapping_add(next.offset as usize),
            len: next.len,
            key: 0,
            reads: !rma.writes,
            owner: rma.token,
        };
        let memory = zcopy.memory.first();
        let there = rma.addr.wrapping_add(next.offset);
        let n = sender.post_striped(here, there, most, |near, far| {
            let theirs = rma.key.of_port(far);
            memory?.region().local_key(near).zip(theirs)
        });
        if n == 0 {
            break false;
        }
        *rma.outstanding += 1;
        match zcopy.again.pop() {
            Some(moved) if n < moved.len => zcopy.again.push(Unmoved {
                offset: moved.offset + n as u64,
                len: moved.len - n,
            }),
            Some(_) => {}
            None => *rma.offset += n as u64,
        }
    };
    for rail in sender.rails.refused.drain(..) {
        part.host.raise(RailWork::Close(rail));
    }
    Some(all)
}
