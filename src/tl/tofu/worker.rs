//! A worker's Tofu state: rings in its memory that peers write, and its connections to rings at peers.

mod incoming;

use super::address::TofuLocator;
use super::conn::{ConnTarget, NewRing, RxConn, TofuConn, TofuConnPhase};
use super::context::TofuShared;
use super::ctrl_words::CtrlWords;
use super::iface::TofuIface;
use super::op_queue::{OpTag, generation_of};
use super::ring_layout::RingLayout;
use super::ring_pool::RingPool;
use super::rx_ring::RxRing;
use super::sizing;
use super::{utofu::MrqNotice, vcq_ops::VcqOps};
use crate::sys::fork::DisabledInChild;
use crate::sys::host;
use crate::wire::tofu_msg::{CTRL_BYTES, TICKET_QUEUE_BYTES, TicketTracker, slot_of};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, atomic::AtomicBool, atomic::Ordering};

/// Minimum number of frames that may be in flight to a ring.
const MIN_WINDOW: u32 = 8;

/// Registered memory that a peer has written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionKind {
    /// This slot of the ticket queue: a ring request.
    TicketSlot(u32),
    /// The control words of this connection.
    CtrlWord(u32),
    /// This incoming ring.
    Ring(u32),
}

/// Use of a registered region.
#[derive(Clone, Copy, Debug)]
enum RegionOwner {
    TicketQueue,
    CtrlWords,
    Ring(u32),
}

/// Numbers of served tickets, modulo 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServedCounts {
    /// By the word of the ticket queue, which others can write.
    pub by_word: u32,
    /// By this worker's tracker.
    pub by_tracker: u32,
}

/// The incoming ring that was found last: usually it is the next one, too. Without bytes: none.
#[derive(Clone, Copy, Debug, Default)]
struct LastRing {
    /// Steering address of its first byte.
    from: u64,
    /// Bytes.
    len: u64,
    number: u32,
}

/// Used by the progress thread only. `P` names a peer.
pub struct TofuWorker<P> {
    /// The worker's own.
    pub uid: u64,
    pub keepalive_ms: u64,
    /// The calls that poll the VCQ, and the notice that is being handled, or one without a type.
    pub vcq_ops: VcqOps,
    pub notice: MrqNotice,
    /// The call of progress that took the last notice: its value of `Rx::calls`, which counts down.
    pub credited_at: u32,
    pub secret: u64,
    conns: Vec<Option<Box<TofuConn<P>>>>,
    free_conns: Vec<u32>,
    /// Connections by the steering addresses of their control words.
    by_ctrl_word: BTreeMap<u64, u32>,
    incoming: Vec<Option<Box<RxConn<P>>>>,
    free_incoming: Vec<u32>,
    /// Numbers of dropped rings that an outstanding operation or a queued event may name.
    draining_numbers: Vec<u32>,
    /// Regions by the steering addresses of their first bytes, with their lengths.
    regions: BTreeMap<u64, (u64, RegionOwner)>,
    last: LastRing,
    ctrl_words: CtrlWords,
    ring_pool: RingPool,
    /// Bytes of the incoming rings.
    ring_bytes: u64,
    /// Connections made, modulo 2^32.
    made: u32,
    /// MRQ notices for frames that are not reserved for a peer.
    pub notices: u32,
    counted: Vec<u32>,
    ack_pending: Option<u32>,
    /// The MRQ has failed, or belongs to another process: this is a forked child.
    mrq_failed: AtomicBool,
    /// See [`has_budget`](Self::has_budget).
    budgeted: AtomicBool,
    /// The tickets that were served.
    pub ticket_tracker: TicketTracker,
    /// The slot that tickets wait for, and since when, coarse milliseconds.
    pub blocked_by: u32,
    pub blocked_since: u64,
    /// The tickets released by the last timeout also went unused.
    pub unused_tickets: bool,
    /// The counts of served tickets when they last changed; and since when the word has been wrong, coarse
    /// milliseconds.
    pub repaired_word: ServedCounts,
    pub repaired_since: u64,
    /// Below all fields with registrations: the VCQ is freed after them.
    pub iface: Arc<TofuIface>,
    /// Disables the value in forked children.
    in_children: OnceCell<DisabledInChild>,
}

impl<P: Copy + Eq> TofuWorker<P> {
    /// The state of a worker with this uid that probes peers at this interval.
    pub fn new(iface: TofuIface, uid: u64, keepalive_ms: u64) -> Box<TofuWorker<P>> {
        let rings = Box::new(TofuWorker::of(iface, uid, keepalive_ms));
        let place = NonNull::from(&*rings).cast();
        // SAFETY: the box keeps the value's address, and the registration ends when the value is dropped.
        let disabled =
            unsafe { DisabledInChild::new(place, size_of::<TofuWorker<P>>(), Self::disable) };
        let _ = rings.in_children.set(disabled);
        rings
    }

    /// Disables the value in a forked child, which handles no arrivals of its parent.
    ///
    /// # Safety
    /// `this` is a [`TofuWorker`] that is not dropped yet.
    unsafe fn disable(this: NonNull<()>, _: usize) {
        let this = this.cast::<TofuWorker<P>>().as_ptr();
        // SAFETY: the caller's value; both fields are atomics.
        let (mrq_failed, budgeted) = unsafe { (&(*this).mrq_failed, &(*this).budgeted) };
        // Relaxed, here and below: only the progress thread accesses them, and a child has no other thread.
        mrq_failed.store(true, Ordering::Relaxed);
        budgeted.store(false, Ordering::Relaxed);
    }

    fn of(iface: TofuIface, uid: u64, keepalive_ms: u64) -> TofuWorker<P> {
        let ticket_queue = (TICKET_QUEUE_BYTES as u64, RegionOwner::TicketQueue);
        TofuWorker {
            uid,
            keepalive_ms,
            vcq_ops: iface.vcq.vcq_ops(),
            notice: MrqNotice::NONE,
            credited_at: 0,
            secret: host::random_u64(),
            conns: Vec::new(),
            free_conns: Vec::new(),
            by_ctrl_word: BTreeMap::new(),
            incoming: Vec::new(),
            free_incoming: Vec::new(),
            draining_numbers: Vec::new(),
            regions: BTreeMap::from([(iface.ticket_queue.stadd, ticket_queue)]),
            last: LastRing::default(),
            ctrl_words: CtrlWords::default(),
            ring_pool: RingPool::default(),
            ring_bytes: 0,
            made: 0,
            notices: iface.tuning.notices,
            counted: Vec::new(),
            ack_pending: None,
            mrq_failed: AtomicBool::new(false),
            budgeted: AtomicBool::new(iface.rails.is_empty()),
            ticket_tracker: TicketTracker::default(),
            blocked_by: 0,
            blocked_since: 0,
            unused_tickets: false,
            repaired_word: ServedCounts::default(),
            repaired_since: 0,
            iface: Arc::new(iface),
            in_children: OnceCell::new(),
        }
    }

    /// Whether every arrival produces a notice and no credit is scheduled: polling the MRQ is enough.
    #[inline(always)]
    pub fn has_budget(&self) -> bool {
        self.budgeted.load(Ordering::Relaxed)
    }

    /// Updates [`has_budget`](Self::has_budget) after a change.
    fn update_budget(&mut self) {
        let notified = !self.mrq_failed() && self.counted.is_empty() && self.iface.rails.is_empty();
        let has_budget = notified && self.ack_pending.is_none();
        self.budgeted.store(has_budget, Ordering::Relaxed);
    }

    /// The MRQ is not polled any more. False: that was so before.
    pub fn fail_mrq(&mut self) -> bool {
        let before = self.mrq_failed.swap(true, Ordering::Relaxed);
        self.update_budget();
        !before
    }

    /// Whether the MRQ has failed: it is not polled any more, and no notice is handled.
    pub fn mrq_failed(&self) -> bool {
        self.mrq_failed.load(Ordering::Relaxed)
    }

    /// Incoming rings without notices.
    pub fn counted(&self) -> &[u32] {
        &self.counted
    }

    /// Schedules a credit to the writer of this incoming ring, or of none, for when nothing else has arrived. Returns
    /// the ring scheduled before.
    pub fn schedule_ack(&mut self, number: Option<u32>) -> Option<u32> {
        let before = std::mem::replace(&mut self.ack_pending, number);
        self.update_budget();
        before
    }

    /// What all threads of the worker use.
    pub fn shared(&self) -> TofuShared {
        TofuShared {
            iface: self.iface.clone(),
        }
    }

    /// The Tofu section of the worker's address.
    pub fn locator(&self) -> TofuLocator {
        TofuLocator {
            secret: self.secret,
            vcq: self.iface.vcq.id,
            ticket_queue: self.iface.ticket_queue.stadd,
            number: self.iface.number,
            rails: self.iface.signaled_rails(),
        }
    }

    /// Adds a connection to a peer, for which nothing is posted yet. Returns its number.
    ///
    /// # Errors
    /// Control words cannot be registered.
    pub fn new_conn(&mut self, peer: P, to: ConnTarget, now: u64) -> io::Result<u32> {
        let (ctrl_word, made) = self.ctrl_words.take(&self.iface.vcq)?;
        if let Some(region) = made {
            self.regions
                .insert(region.stadd, (region.len() as u64, RegionOwner::CtrlWords));
        }
        let number = self.free_conns.pop().unwrap_or_else(|| {
            self.conns.push(None);
            self.conns.len() as u32 - 1
        });
        self.by_ctrl_word.insert(ctrl_word.stadd(), number);
        self.made = self.made.wrapping_add(1);
        self.conns[number as usize] = Some(Box::new(TofuConn {
            peer,
            to,
            ctrl_word,
            tag: OpTag {
                conn: number,
                generation: generation_of(self.made),
            },
            proof: host::random_u64() as u32,
            flow: Arc::default(),
            phase: TofuConnPhase::TakingTicket,
            due: now,
            since: now,
            late: false,
            probed: now,
            has_waited: false,
        }));
        Ok(number)
    }

    /// The connection of this number; `None` if there is none, or it was dropped.
    pub fn conn(&mut self, number: u32) -> Option<&mut TofuConn<P>> {
        self.conns.get_mut(number as usize)?.as_deref_mut()
    }

    /// All connections, with their numbers.
    pub fn conns(&mut self) -> impl Iterator<Item = (u32, &mut TofuConn<P>)> {
        let conns = self.conns.iter_mut().enumerate();
        conns.filter_map(|(i, conn)| Some((i as u32, conn.as_deref_mut()?)))
    }

    /// Removes a connection without outstanding operations, whose sender is dropped. Its control words are not used
    /// again, as the peer may still write there.
    pub fn drop_conn(&mut self, number: u32) {
        if let Some(conn) = self.conns.get_mut(number as usize).and_then(Option::take) {
            self.by_ctrl_word.remove(&conn.ctrl_word.stadd());
            if let Some(chunk) = conn.ctrl_word.retire() {
                self.regions.remove(&chunk);
            }
            self.free_conns.push(number);
        }
    }

    /// The peers of all connections and of all incoming rings.
    pub fn peers(&self) -> impl Iterator<Item = P> {
        let conns = self.conns.iter().flatten().map(|conn| conn.peer);
        let incoming = self.incoming.iter().flatten();
        conns.chain(incoming.map(|incoming| incoming.peer))
    }

    /// Releases memory of the lists of connections and rings, when they were much longer before.
    pub fn trim(&mut self) {
        trim(&mut self.conns, &mut self.free_conns);
        if self.draining_numbers.is_empty() {
            trim(&mut self.incoming, &mut self.free_incoming);
        }
    }

    /// What lies at, or ends at, this steering address.
    #[inline]
    pub fn place(&mut self, stadd: u64) -> Option<RegionKind> {
        let LastRing { from, len, number } = self.last;
        if stadd.wrapping_sub(from) < len {
            Some(RegionKind::Ring(number))
        } else {
            self.look_up(stadd)
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
            RegionOwner::TicketQueue => slot_of(at as usize).map(RegionKind::TicketSlot),
            RegionOwner::CtrlWords => {
                // A grant ends where the next control words begin, and its notice may name that address.
                let begins = from + (at.saturating_sub(1)) / CTRL_BYTES as u64 * CTRL_BYTES as u64;
                self.by_ctrl_word
                    .get(&begins)
                    .map(|&conn| RegionKind::CtrlWord(conn))
            }
            RegionOwner::Ring(number) => {
                self.last = LastRing { from, len, number };
                Some(RegionKind::Ring(number))
            }
        }
    }

    /// Allocates a ring for a peer: with notices as long as the MRQ has room for all frames that may be in flight, else
    /// a counted one. `packet`: bytes of the longest frame that both ends allow.
    ///
    /// # Errors
    /// The system's or the library's error; `InvalidInput`: the ring would be too short.
    pub fn make_ring(&mut self, packet: u32) -> io::Result<NewRing> {
        let tuning = &self.iface.tuning;
        let wanted = tuning.window.max(MIN_WINDOW);
        // Later rings have smaller windows, so that more of them have notices.
        let share = (self.notices / 8).max(MIN_WINDOW).min(wanted);
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
        Ok(NewRing {
            ring: RxRing::new(piece, shape),
            counted,
        })
    }
}

/// Truncates a list behind the last entry in use, if few entries are in use and at least half lie behind it. `free`:
/// numbers of the other entries.
fn trim<T>(list: &mut Vec<Option<Box<T>>>, free: &mut Vec<u32>) {
    /// Lists of up to this length are left as they are.
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
