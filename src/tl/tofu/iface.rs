//! A worker's share of the interconnect: a VCQ, and a ticket queue in which peers request rings.

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
use crate::wire::tofu_msg::{MAX_RAILS, RailVcqs, TICKET_QUEUE_BYTES};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Dropped when the worker and its last sender are gone. Fields are in drop order.
pub struct TofuIface {
    pub queue: MtLock<OpQueue>,
    /// Registration cache of user memory for the VCQ.
    pub store: MrCache,
    pub ticket_queue: VcqRegion,
    pub vcq: Arc<Vcq>,
    /// Further VCQs for long transfers; none by default.
    pub rails: Box<[TofuRail]>,
    vcq_registry: Arc<VcqRegistry>,
    /// Number of the VCQ in the registry; the rails have the next ones.
    pub number: u16,
    pub tuning: TofuTuning,
    /// Maximum bytes of one zcopy operation.
    pub longest: usize,
    /// Connections with a record, or a flush request, that is not fully posted.
    unfinished: MtLock<Vec<u32>>,
    has_unfinished: AtomicBool,
    /// Name of the VCQ's TNI.
    pub name: String,
}

impl TofuIface {
    /// Creates the VCQ on the TNI whose turn it is, or on the next one that has a VCQ left, and the rails on those
    /// after it, as long as first VCQs remain for other workers.
    ///
    /// # Errors
    /// The library's error of the last attempt.
    pub fn new(
        tnis: &[Tni],
        vcq_registry: &Arc<VcqRegistry>,
        tuning: TofuTuning,
        mt: bool,
    ) -> io::Result<TofuIface> {
        /// Workers created in this process: they are spread over the TNIs.
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let lib = Utofu::get().ok_or(io::ErrorKind::NotFound)?;
        // Relaxed: a counter that orders nothing.
        let first = MADE.fetch_add(1, Ordering::Relaxed) + tuning.first % tnis.len().max(1);
        let mut order: Vec<usize> = (0..tnis.len()).map(|i| (first + i) % tnis.len()).collect();
        let (vcq, tni) = vcq_alloc::take(lib, tnis, &order, tuning.most_alone)?;
        order.retain(|&other| other != tni);
        let vcq = Arc::new(vcq);
        let mut rails = Vec::new();
        for _ in 1..tuning.queues.min(MAX_RAILS + 1) {
            let taken = vcq_alloc::take_rail(lib, tnis, &order, tuning.most_alone);
            let rail = taken.and_then(|(vcq, tni)| {
                order.retain(|&other| other != tni);
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
        let name = tnis[tni].name.clone();
        Self::on(vcq, (name, longest), rails, vcq_registry, tuning, mt)
    }

    fn on(
        vcq: Arc<Vcq>,
        (name, longest): (String, usize),
        rails: Vec<TofuRail>,
        vcq_registry: &Arc<VcqRegistry>,
        tuning: TofuTuning,
        mt: bool,
    ) -> io::Result<TofuIface> {
        let queue = OpQueue::new(vcq.clone(), tuning.packet as usize, tuning.notices as usize)?;
        let ticket_queue = VcqRegion::new(&vcq, TICKET_QUEUE_BYTES)?;
        let mut all = vec![&vcq];
        all.extend(rails.iter().map(|rail| &rail.vcq));
        Ok(TofuIface {
            queue: MtLock::new(mt, queue),
            store: MrCache::new(&vcq, mt),
            ticket_queue,
            number: vcq_registry.enter(&all)?,
            vcq_registry: vcq_registry.clone(),
            vcq,
            rails: rails.into(),
            tuning,
            longest,
            unfinished: MtLock::new(mt, Vec::new()),
            has_unfinished: AtomicBool::new(false),
            name,
        })
    }

    /// The VCQs of the rails, for peers.
    pub fn signaled_rails(&self) -> RailVcqs {
        RailVcqs::of(self.rails.iter().map(|rail| rail.vcq.id))
    }

    /// The next event of a rail.
    pub fn poll_rails(&self) -> Option<QueueEvent> {
        self.rails.iter().find_map(|rail| rail.queue.lock().poll())
    }

    /// Whether an outstanding operation or a queued event of any VCQ names this connection.
    pub fn is_awaited(&self, conn: u32) -> bool {
        let mut rails = self.rails.iter();
        self.queue.lock().is_awaited(conn) || rails.any(|rail| rail.queue.lock().is_awaited(conn))
    }

    /// Polls the TCQs of all VCQs.
    pub fn poll_tcqs(&self) {
        self.queue.lock().poll_tcq();
        for rail in &self.rails {
            rail.queue.lock().poll_tcq();
        }
    }

    /// Lists a connection whose record, or flush request, could not be posted entirely.
    pub fn leave_unfinished(&self, conn: u32) {
        let mut conns = self.unfinished.lock();
        conns.push(conn);
        // Relaxed: a thread that sees it takes the lock, which orders the list.
        self.has_unfinished.store(true, Ordering::Relaxed);
    }

    /// Whether any connection is listed.
    #[inline(always)]
    pub fn has_unfinished(&self) -> bool {
        // Relaxed: if it is seen late, the next call of progress handles it.
        self.has_unfinished.load(Ordering::Relaxed)
    }

    /// Takes the listed connections, each once, for the progress thread.
    pub fn take_unfinished(&self) -> Vec<u32> {
        let mut unfinished = self.unfinished.lock();
        // Relaxed: written under the lock, as in `leave_unfinished`.
        self.has_unfinished.store(false, Ordering::Relaxed);
        let mut conns = std::mem::take(&mut *unfinished);
        drop(unfinished);
        conns.sort_unstable();
        conns.dedup();
        conns
    }

    /// The word of the ticket queue, which TNIs add to.
    pub fn ticket_word(&self) -> u64 {
        // SAFETY: the ticket queue begins with the word, aligned, and all threads of this process access it as an
        // atomic.
        let word = unsafe { dma_mem::word_at(self.ticket_queue.ptr()) };
        // Relaxed: a counter that orders nothing.
        word.load(Ordering::Relaxed)
    }
}

/// Maximum bytes of one operation on any of the TNIs, in whole lines of the cache, so that the parts of a transfer
/// begin at one.
fn longest(each: impl Iterator<Item = usize>) -> usize {
    const LINE: usize = 256;
    each.min().unwrap_or(0).max(LINE) / LINE * LINE
}

impl Drop for TofuIface {
    fn drop(&mut self) {
        self.vcq_registry.leave(self.number, 1 + self.rails.len());
    }
}
