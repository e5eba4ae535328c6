//! What a worker has of the interconnect: a virtual control queue, and a hall where strangers ask for rings.

use super::TofuTuning;
use super::mr::MrCache;
use super::op_queue::{OpQueue, QueueEvent};
use super::rail::TofuRail;
use super::tni::Tni;
use super::utofu::Utofu;
use super::vcq::{Vcq, VcqRegion};
use super::vcq_alloc;
use super::vcq_registry::VcqRegistry;
use crate::sys::lock::MtLock;
use crate::sys::log;
use crate::sys::sync::{AtomicBool, Ordering, dma_mem};
use crate::wire::tofu_msg::{HALL, MOST_RAILS, RailVcqs};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// A worker's share. Dropped when the worker and its last sender are gone. Fields in the order of their ends.
pub struct TofuIface {
    pub queue: MtLock<OpQueue>,
    /// Memory of the user's that is registered for the queue.
    pub store: MrCache,
    pub hall: VcqRegion,
    pub vcq: Arc<Vcq>,
    /// Further queues, for long transfers; mostly none.
    pub rails: Box<[TofuRail]>,
    roster: Arc<VcqRegistry>,
    /// Its number there; the rails have those behind it.
    pub number: u16,
    pub tuning: TofuTuning,
    /// Bytes that one operation moves from or to memory of the user's, at most.
    pub longest: usize,
    /// Connections in the middle of a record.
    unfinished: MtLock<Vec<u32>>,
    has_unfinished: AtomicBool,
    /// Which of the network interfaces it is on.
    pub tni: usize,
}

impl TofuIface {
    /// On the network interface whose turn it is, or the next that has a queue left; the rails on those behind it, as
    /// many as leave queues for the first ones of other workers.
    ///
    /// # Errors
    /// What the library says of the last.
    pub fn new(
        tnis: &[Tni],
        roster: &Arc<VcqRegistry>,
        tuning: TofuTuning,
        mt: bool,
    ) -> io::Result<TofuIface> {
        /// Workers that were made in this process: they are spread over the interfaces.
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let lib = Utofu::get().ok_or(io::ErrorKind::NotFound)?;
        // Relaxed: only a number.
        let first = MADE.fetch_add(1, Ordering::Relaxed) + tuning.first % tnis.len().max(1);
        let mut turns: Vec<usize> = (0..tnis.len()).map(|i| (first + i) % tnis.len()).collect();
        let (vcq, tni) = vcq_alloc::take(lib, tnis, &turns, tuning.most_alone)?;
        turns.retain(|&other| other != tni);
        let vcq = Arc::new(vcq);
        let mut rails = Vec::new();
        for _ in 1..tuning.queues.min(MOST_RAILS + 1) {
            let taken = vcq_alloc::take_rail(lib, tnis, &turns, tuning.most_alone);
            let rail = taken.and_then(|(vcq, tni)| {
                turns.retain(|&other| other != tni);
                TofuRail::new(Arc::new(vcq), tni, &tuning, mt)
            });
            match rail {
                Ok(rail) => rails.push(rail),
                Err(e) => {
                    log::debug!(
                        "a worker has {} rails (UCX_TOFU_VCQS_PER_WORKER): {e}",
                        rails.len()
                    );
                    break;
                }
            }
        }
        let longest = longest(tnis.iter().map(|tni| tni.caps.max_putget_size));
        Self::on(vcq, (tni, longest), rails, roster, tuning, mt)
    }

    fn on(
        vcq: Arc<Vcq>,
        (tni, longest): (usize, usize),
        rails: Vec<TofuRail>,
        roster: &Arc<VcqRegistry>,
        tuning: TofuTuning,
        mt: bool,
    ) -> io::Result<TofuIface> {
        let queue = OpQueue::new(vcq.clone(), tuning.packet as usize, tuning.notices as usize)?;
        let hall = VcqRegion::new(&vcq, HALL)?;
        let mut all = vec![&vcq];
        all.extend(rails.iter().map(|rail| &rail.vcq));
        Ok(TofuIface {
            queue: MtLock::new(mt, queue),
            store: MrCache::new(&vcq, mt),
            hall,
            number: roster.enter(&all),
            roster: roster.clone(),
            vcq,
            rails: rails.into(),
            tuning,
            longest,
            unfinished: MtLock::new(mt, Vec::new()),
            has_unfinished: AtomicBool::new(false),
            tni,
        })
    }

    /// The queues of its rails, for peers.
    pub fn signaled_rails(&self) -> RailVcqs {
        RailVcqs::of(self.rails.iter().map(|rail| rail.vcq.id))
    }

    /// The next thing that has happened by a rail.
    pub fn poll_rails(&self) -> Option<QueueEvent> {
        self.rails.iter().find_map(|rail| rail.queue.lock().poll())
    }

    /// Whether something of this connection waits for its notice, on any queue.
    pub fn is_awaited(&self, link: u32) -> bool {
        let mut rails = self.rails.iter();
        self.queue.lock().is_awaited(link) || rails.any(|rail| rail.queue.lock().is_awaited(link))
    }

    /// Takes the ends of transmissions on all queues.
    pub fn reap(&self) {
        self.queue.lock().reap();
        for rail in &self.rails {
            rail.queue.lock().reap();
        }
    }

    /// A connection has begun a record that its ring had no room for all of.
    pub fn leave_unfinished(&self, link: u32) {
        let mut links = self.unfinished.lock();
        links.push(link);
        // Relaxed: who sees it takes the lock, which orders both.
        self.has_unfinished.store(true, Ordering::Relaxed);
    }

    /// Whether there are any.
    #[inline(always)]
    pub fn has_unfinished(&self) -> bool {
        // Relaxed: what is seen late is seen in the next round.
        self.has_unfinished.load(Ordering::Relaxed)
    }

    /// Those connections, each once, for who progresses.
    pub fn take_unfinished(&self) -> Vec<u32> {
        let mut unfinished = self.unfinished.lock();
        // Relaxed: under the lock, as the other.
        self.has_unfinished.store(false, Ordering::Relaxed);
        let mut links = std::mem::take(&mut *unfinished);
        drop(unfinished);
        links.sort_unstable();
        links.dedup();
        links
    }

    /// The word of the hall, as adapters have left it.
    pub fn turn(&self) -> u64 {
        // SAFETY: the hall begins with it, aligned, and everybody here takes it for an atomic.
        let word = unsafe { dma_mem::word_at(self.hall.ptr()) };
        // Relaxed: a number.
        word.load(Ordering::Relaxed)
    }
}

/// What one operation moves on any of the interfaces: pieces of whole lines of the processor's cache, if there are
/// several.
fn longest(each: impl Iterator<Item = usize>) -> usize {
    const LINE: usize = 256;
    each.min().unwrap_or(0).max(LINE) / LINE * LINE
}

impl Drop for TofuIface {
    fn drop(&mut self) {
        self.roster.leave(self.number, 1 + self.rails.len());
    }
}
