//! A worker's rings over the Tofu interconnect: those that peers have in our memory, and its own at peers.

use crate::engine::peer::Peer;
use crate::sys::fork::DisabledInChild;
use crate::sys::host;
use crate::tl::ib::reassembly::Reassembly;
use crate::tl::tofu::ctrl_words::{CtrlWord, CtrlWords};
use crate::tl::tofu::iface::TofuIface;
use crate::tl::tofu::op_queue::{CREDITS, OpTag, generation_of};
use crate::tl::tofu::ring_layout::RingLayout;
use crate::tl::tofu::ring_pool::RingPool;
use crate::tl::tofu::rx_ring::RxRing;
use crate::tl::tofu::sizing;
use crate::tl::tofu::tx_acks::TxAcks;
use crate::tl::tofu::vcq::RemoteAddr;
use crate::tl::tofu::vcq_ops::VcqOps;
use crate::wire::address::TofuLocator;
use crate::wire::tofu_msg::{CELL, HALL, TicketTracker};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Behind a ring of so many bytes the memory for long records is kept.
const KEEPING: u32 = 64 << 10;
/// Frames that may be under way to a ring, at least.
const LEAST_WINDOW: u32 = 8;

/// How far it is to a ring at a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TofuConnPhase {
    /// A ticket is asked for.
    Asking,
    /// It has one, and its turn is still to come.
    Waiting { ticket: u32 },
    /// The greeting is in its place.
    Said { ticket: u32 },
    /// There is a ring.
    Open,
    /// The peer is lost, and a read behind all that was written for the connection was posted: nothing more is.
    Closing,
}

/// Our way to a ring at a peer, as the progressing thread sees it.
pub struct TofuConn {
    pub peer: *const Peer,
    pub ctrl_word: CtrlWord,
    pub mark: OpTag,
    /// What the grant has to present.
    pub proof: u32,
    pub flow: Arc<TxAcks>,
    pub phase: TofuConnPhase,
    /// When to look again, coarse milliseconds, and since when it is tried.
    pub due: u64,
    pub since: u64,
    /// It was told that it takes long.
    pub late: bool,
    /// When the peer was last asked whether it is there.
    pub probed: u64,
}

/// A peer's ring in our memory.
pub struct RxConn {
    pub peer: *const Peer,
    pub ring: RxRing,
    pub assembly: Reassembly,
    /// Where the peer is told how far we are, and what it knows the ring by.
    pub cell: RemoteAddr,
    pub proof: u32,
    /// No notices come with its frames.
    pub counted: bool,
    /// Nothing more comes: the peer has gone, or was lost.
    pub ended: bool,
    /// When the writer was last asked whether it is there, coarse milliseconds.
    pub probed: u64,
}

impl RxConn {
    /// A frame was seen to: where peers are many, what long records are put together in is kept for none of them.
    #[inline(never)]
    pub fn settle(&mut self) {
        if self.ring.shape().size < KEEPING && self.assembly.is_empty() {
            self.assembly = Reassembly::default();
        }
    }
}

/// What a piece of our memory is, that peers write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionKind {
    /// Somebody asks for a ring, in this place of the hall.
    Hall(u32),
    /// The cell of this link.
    Cell(u32),
    /// This incoming ring.
    Ring(u32),
}

/// Whose a registered region is.
#[derive(Clone, Copy, Debug)]
enum RegionOwner {
    Hall,
    Cells,
    Ring(u32),
}

/// The progressing thread's.
pub struct TofuWorker {
    /// What is polled.
    pub line: VcqOps,
    /// The call of progress that last heard of something, by the calls until the next look at the clock.
    pub credited_at: u32,
    pub secret: u64,
    links: Vec<Option<Box<TofuConn>>>,
    free_conns: Vec<u32>,
    /// The link of a cell, by its steering address.
    by_ctrl_word: BTreeMap<u64, u32>,
    incoming: Vec<Option<Box<RxConn>>>,
    free_incoming: Vec<u32>,
    /// Numbers of rings that were taken out, until nothing that the queue tells of names them.
    retired: Vec<u32>,
    /// Regions by the steering addresses that they begin with, and their lengths.
    regions: BTreeMap<u64, (u64, RegionOwner)>,
    /// The last one that was looked up: mostly it is the same again.
    last: (u64, u64, u32),
    ctrl_words: CtrlWords,
    ring_pool: RingPool,
    /// Bytes of the incoming rings.
    ring_bytes: u64,
    /// Links that were made, modulo 2^32.
    made: u32,
    /// Notices of frames that are not promised to any peer.
    pub notices: u32,
    counted: Vec<u32>,
    ack_pending: Option<u32>,
    /// The queue of notices has failed, or is another process's: this is a forked child.
    mrq_failed: AtomicBool,
    /// See [`has_budget`](Self::has_budget).
    budgeted: AtomicBool,
    /// Tickets that were served.
    pub turns: TicketTracker,
    /// The place that others wait behind, and since when, coarse milliseconds.
    pub blocked_by: u32,
    pub blocked_since: u64,
    /// Nobody has come either of those who could when the ones that did not come were served.
    pub unused_tickets: bool,
    /// So many were served as the word of the hall says, and so many in fact; since when that is so and cannot be.
    pub repaired_word: (u32, u32),
    pub repaired_since: u64,
    /// Last: the queue outlives what is registered for it.
    pub iface: Arc<TofuIface>,
    /// Disables it in children.
    in_children: OnceCell<DisabledInChild>,
}

impl TofuWorker {
    pub fn new(iface: TofuIface) -> Box<TofuWorker> {
        let rings = Box::new(TofuWorker::of(iface));
        let place = NonNull::from(&*rings).cast();
        // SAFETY: the box keeps its place; it is taken back when the value is dropped.
        let disabled =
            unsafe { DisabledInChild::new(place, size_of::<TofuWorker>(), Self::disable) };
        let _ = rings.in_children.set(disabled);
        rings
    }

    /// Disables it in a forked child: nothing that comes for the parent is looked at.
    ///
    /// # Safety
    /// A value that is not dropped yet.
    unsafe fn disable(this: NonNull<()>, _: usize) {
        let this = this.cast::<TofuWorker>().as_ptr();
        // SAFETY: the caller's promise; both are atomics.
        let (deaf, calm) = unsafe { (&(*this).mrq_failed, &(*this).budgeted) };
        // Relaxed, here and below: the progress thread alone uses them, and a child has no other.
        deaf.store(true, Ordering::Relaxed);
        calm.store(false, Ordering::Relaxed);
    }

    fn of(iface: TofuIface) -> TofuWorker {
        let hall = (HALL as u64, RegionOwner::Hall);
        TofuWorker {
            line: iface.vcq.line(),
            credited_at: 0,
            secret: host::random_u64(),
            links: Vec::new(),
            free_conns: Vec::new(),
            by_ctrl_word: BTreeMap::new(),
            incoming: Vec::new(),
            free_incoming: Vec::new(),
            retired: Vec::new(),
            regions: BTreeMap::from([(iface.hall.stadd, hall)]),
            last: (0, 0, 0),
            ctrl_words: CtrlWords::default(),
            ring_pool: RingPool::default(),
            ring_bytes: 0,
            made: 0,
            notices: iface.tuning.notices,
            counted: Vec::new(),
            ack_pending: None,
            mrq_failed: AtomicBool::new(false),
            budgeted: AtomicBool::new(iface.rails.is_empty()),
            turns: TicketTracker::default(),
            blocked_by: 0,
            blocked_since: 0,
            unused_tickets: false,
            repaired_word: (0, 0),
            repaired_since: 0,
            iface: Arc::new(iface),
            in_children: OnceCell::new(),
        }
    }

    /// Whether notices tell of all that comes, and nothing is owed: nothing else is to be looked at.
    #[inline(always)]
    pub fn has_budget(&self) -> bool {
        self.budgeted.load(Ordering::Relaxed)
    }

    /// Something of what decides about [`has_budget`](Self::has_budget) has changed.
    fn update_budget(&mut self) {
        let tells = !self.mrq_failed() && self.counted.is_empty() && self.iface.rails.is_empty();
        let is_calm = tells && self.ack_pending.is_none();
        self.budgeted.store(is_calm, Ordering::Relaxed);
    }

    /// Nothing can be heard any more. False: that was so already.
    pub fn fail_mrq(&mut self) -> bool {
        let before = self.mrq_failed.swap(true, Ordering::Relaxed);
        self.update_budget();
        !before
    }

    pub fn mrq_failed(&self) -> bool {
        self.mrq_failed.load(Ordering::Relaxed)
    }

    /// Incoming rings without notices.
    pub fn counted(&self) -> &[u32] {
        &self.counted
    }

    /// The writer of this incoming ring, or of none, is to be told how far we are, as soon as nothing else has come.
    /// Who was to be told until now.
    pub fn schedule_ack(&mut self, number: Option<u32>) -> Option<u32> {
        let before = std::mem::replace(&mut self.ack_pending, number);
        self.update_budget();
        before
    }

    /// What the worker's address says.
    pub fn locator(&self) -> TofuLocator {
        TofuLocator {
            secret: self.secret,
            vcq: self.iface.vcq.id,
            hall: self.iface.hall.stadd,
            number: self.iface.number,
            rails: self.iface.signaled_rails(),
        }
    }

    /// A new link to a peer, with nothing said yet. Its number.
    ///
    /// # Errors
    /// No cell can be had.
    pub fn new_conn(&mut self, peer: &Peer, now: u64) -> io::Result<u32> {
        let (cell, made) = self.ctrl_words.take(&self.iface.vcq)?;
        if let Some(region) = made {
            self.regions
                .insert(region.stadd, (region.len() as u64, RegionOwner::Cells));
        }
        let number = self.free_conns.pop().unwrap_or_else(|| {
            self.links.push(None);
            self.links.len() as u32 - 1
        });
        self.by_ctrl_word.insert(cell.stadd(), number);
        self.made = self.made.wrapping_add(1);
        self.links[number as usize] = Some(Box::new(TofuConn {
            peer,
            ctrl_word: cell,
            mark: OpTag {
                link: number,
                colour: generation_of(self.made),
            },
            proof: host::random_u64() as u32,
            flow: Arc::default(),
            phase: TofuConnPhase::Asking,
            due: now,
            since: now,
            late: false,
            probed: now,
        }));
        Ok(number)
    }

    pub fn conn(&mut self, number: u32) -> Option<&mut TofuConn> {
        self.links.get_mut(number as usize)?.as_deref_mut()
    }

    /// All that are there, with their numbers.
    pub fn links(&mut self) -> impl Iterator<Item = (u32, &mut TofuConn)> {
        let links = self.links.iter_mut().enumerate();
        links.filter_map(|(i, link)| Some((i as u32, link.as_deref_mut()?)))
    }

    /// Takes a link out of which nothing is under way, and whose sender is gone. Its cell is not used again: the peer
    /// may still write there.
    pub fn drop_conn(&mut self, number: u32) {
        if let Some(link) = self.links.get_mut(number as usize).and_then(Option::take) {
            self.by_ctrl_word.remove(&link.ctrl_word.stadd());
            if let Some(chunk) = link.ctrl_word.retire() {
                self.regions.remove(&chunk);
            }
            self.free_conns.push(number);
        }
    }

    /// The peers that connections name: those that this worker has rings at, or wants one at, and those that have one
    /// here.
    pub fn peers(&self) -> impl Iterator<Item = *const Peer> {
        let links = self.links.iter().flatten().map(|link| link.peer);
        let incoming = self.incoming.iter().flatten();
        links.chain(incoming.map(|incoming| incoming.peer))
    }

    /// Takes a peer's ring in. Its number.
    pub fn insert(&mut self, incoming: RxConn) -> u32 {
        let number = self.free_incoming.pop().unwrap_or_else(|| {
            self.incoming.push(None);
            self.incoming.len() as u32 - 1
        });
        let (at, size) = (incoming.ring.stadd(), incoming.ring.shape().size);
        self.regions
            .insert(at, (size.into(), RegionOwner::Ring(number)));
        self.ring_bytes += u64::from(size);
        if incoming.counted {
            self.counted.push(number);
            self.update_budget();
        } else {
            self.notices -= incoming.ring.shape().window;
        }
        self.incoming[number as usize] = Some(Box::new(incoming));
        number
    }

    #[inline]
    pub fn incoming(&mut self, number: u32) -> Option<&mut RxConn> {
        self.incoming.get_mut(number as usize)?.as_deref_mut()
    }

    /// All that are there, with their numbers.
    pub fn all_incoming(&mut self) -> impl Iterator<Item = (u32, &mut RxConn)> {
        let all = self.incoming.iter_mut().enumerate();
        all.filter_map(|(i, incoming)| Some((i as u32, incoming.as_deref_mut()?)))
    }

    /// Takes a peer's ring out: what is written there from now on is refused by the adapter, or nobody's.
    pub fn drop_incoming(&mut self, number: u32) {
        let slot = self.incoming.get_mut(number as usize);
        let Some(incoming) = slot.and_then(Option::take) else {
            return;
        };
        self.regions.remove(&incoming.ring.stadd());
        self.last = (0, 0, 0);
        self.counted.retain(|&n| n != number);
        self.update_budget();
        self.ring_bytes -= u64::from(incoming.ring.shape().size);
        if !incoming.counted {
            self.notices += incoming.ring.shape().window;
        }
        self.retired.push(number);
    }

    /// Lets numbers of rings that were taken out be used again, of which the queue has nothing more to tell.
    pub fn reuse_numbers(&mut self) {
        let (iface, free) = (&self.iface, &mut self.free_incoming);
        self.retired.retain(|&number| {
            let is_awaited = iface.is_awaited(CREDITS + number);
            if !is_awaited {
                free.push(number);
            }
            is_awaited
        });
    }

    /// Gives the memory back that the lists of connections have had when there were many more of them.
    pub fn trim(&mut self) {
        trim(&mut self.links, &mut self.free_conns);
        if self.retired.is_empty() {
            trim(&mut self.incoming, &mut self.free_incoming);
        }
    }

    /// What lies at, or ends at, this address of ours.
    #[inline]
    pub fn place(&mut self, stadd: u64) -> Option<RegionKind> {
        let (from, len, ring) = self.last;
        match stadd.wrapping_sub(from) < len {
            true => Some(RegionKind::Ring(ring)),
            false => self.look_up(stadd),
        }
    }

    #[inline(never)]
    fn look_up(&mut self, stadd: u64) -> Option<RegionKind> {
        let (&from, &(len, part)) = self.regions.range(..=stadd).next_back()?;
        let at = stadd - from;
        if at >= len {
            return None;
        }
        match part {
            RegionOwner::Hall => crate::wire::tofu_msg::place_of(at as usize).map(RegionKind::Hall),
            RegionOwner::Cells => {
                // A grant ends where the next cell begins.
                let begins = from + (at.saturating_sub(1)) / CELL as u64 * CELL as u64;
                self.by_ctrl_word
                    .get(&begins)
                    .map(|&link| RegionKind::Cell(link))
            }
            RegionOwner::Ring(number) => {
                self.last = (from, len, number);
                Some(RegionKind::Ring(number))
            }
        }
    }

    /// Memory for a peer's ring, and how it is used: with notices as long as the queue of notices has room for all
    /// frames that may come. Whether their number is written behind them instead. `packet`: the longest frame of both
    /// ends.
    ///
    /// # Errors
    /// What the library says.
    pub fn make_ring(&mut self, packet: u32) -> io::Result<(RxRing, bool)> {
        let tuning = &self.iface.tuning;
        let wanted = tuning.window.max(LEAST_WINDOW);
        // Later ones get less, so that many have some.
        let share = (self.notices / 8).max(LEAST_WINDOW).min(wanted);
        let counted = share > self.notices;
        let size = sizing::ring(tuning.ring_size, tuning.ring_memory, self.ring_bytes);
        let shape = RingLayout {
            size,
            packet: sizing::packet(packet, size),
            window: if counted { wanted } else { share },
        };
        if !shape.is_sound(1) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let piece = self.ring_pool.take(&self.iface.vcq, size as usize)?;
        Ok((RxRing::new(piece, shape), counted))
    }
}

/// Shortens a list of which few places, by numbers that are not `free`, are taken, and most behind them are not.
fn trim<T>(list: &mut Vec<Option<Box<T>>>, free: &mut Vec<u32>) {
    /// A list of so many places is not worth it.
    const FEW: usize = 64;
    if list.len() <= FEW || list.len() - free.len() > list.len() / 8 {
        return;
    }
    let taken = list.iter().rposition(Option::is_some).map_or(0, |i| i + 1);
    if taken > list.len() / 2 {
        return;
    }
    list.truncate(taken);
    list.shrink_to_fit();
    free.retain(|&number| (number as usize) < taken);
    free.shrink_to_fit();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_trimmed_when_few_places_are_taken_and_keeps_those() {
        let mut list: Vec<Option<Box<u32>>> = (0..1000).map(|n| Some(Box::new(n))).collect();
        let mut free = Vec::new();
        for number in (0..1000).filter(|n| n % 100 != 7) {
            list[number as usize] = None;
            free.push(number);
        }
        trim(&mut list, &mut free);
        assert_eq!(list.len(), 1000, "the last one that is taken is far behind");
        for number in [907, 807, 707, 607, 507, 407] {
            list[number] = None;
            free.push(number as u32);
        }
        trim(&mut list, &mut free);
        assert_eq!(list.len(), 308);
        let taken: Vec<u32> = list.iter().flatten().map(|n| **n).collect();
        assert_eq!(taken, [7, 107, 207, 307]);
        free.sort_unstable();
        let empty: Vec<u32> = (0..308).filter(|n| list[*n as usize].is_none()).collect();
        assert_eq!(free, empty);
    }
}
