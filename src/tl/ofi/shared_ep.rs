//! The endpoint of an interface with its buffers, as the threads of the worker share it.

use super::addresses::OfiAddresses;
use super::bindings::{FI_MR_LOCAL, FI_MR_VIRT_ADDR, fi_cq_data_entry};
use super::buffers::{BufferRef, MAX_PACKET, OfiBufferPool};
use super::choice::IfaceRole;
use super::device::OfiDevice;
use super::endpoint::{BATCH, Completed, Entries, FailedOp, OfiEndpoint, PostError};
use super::ep_receives::ReceiveBuffer;
use super::fabric::error;
use super::multi_recv::MultiRecvPool;
use super::rma_limits::RmaLimits;
use super::rma_pool::RmaOpPool;
use super::tx_link::OfiTxLink;
use crate::sys::lock::MtLock;
use std::collections::VecDeque;
use std::ffi::c_int;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often a packet is posted again at once that has found no room, with progress of the provider before: a sender
/// that does not progress afterwards would keep it.
const TRIES: u32 = 4;

/// Completions of packets for which the queue has room at least, where a buffer takes several.
const MIN_ARRIVALS: u32 = 1024;

/// There is no room for a packet now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// What the lock holds. The endpoint is closed before the buffers are freed that it uses.
pub(super) struct OfiQueues {
    pub(super) ep: OfiEndpoint,
    pub(super) buffers: OfiBufferPool,
    /// Receive buffers, if the provider packs several packets into one.
    pub(super) multi_recvs: MultiRecvPool,
    pub(super) addresses: OfiAddresses,
    /// Receive buffers for which there was no room.
    pub(super) unposted: Vec<ReceiveBuffer>,
    /// Receive buffers that are posted, were taken out by a completion, or wait for room.
    pub(super) receives: u32,
    /// The provider takes no receive any more, with this number of an error.
    pub(super) receive_error: Option<c_int>,
    /// Connections whose sender has a packet for which there was no room.
    pub(super) blocked: Vec<Arc<OfiTxLink>>,
    /// There is work besides reading completions: one of `unposted`, `blocked`, `failed` and `kept` has entries, or had
    /// some.
    pub(super) has_work: bool,
    /// Connections whose senders want a rail.
    pub(super) wanted_rails: Vec<Arc<OfiTxLink>>,
    /// Connections to which a packet could not be sent, with the number of the error.
    pub(super) failed: Vec<(Arc<OfiTxLink>, c_int)>,
    /// Operations on memory of peers.
    pub(super) ops: RmaOpPool,
    /// The connection of the endpoint with itself, for atomic operations.
    pub(super) own: Option<Arc<OfiTxLink>>,
    /// Completions that were read while one of an atomic operation was waited for.
    pub(super) kept: KeptCompletions,
    /// Bytes of the longest write that the provider copies; 0: it copies none.
    pub(super) max_inject_write: usize,
}

/// Completions that were read and not handled.
#[derive(Default)]
pub(super) struct KeptCompletions(pub VecDeque<Result<fi_cq_data_entry, Box<FailedOp>>>);

// SAFETY: the contexts in them name memory of the endpoint's own.
unsafe impl Send for KeptCompletions {}

/// The endpoint of an interface, its buffers, and what is outstanding. Used by all threads of the worker.
pub struct OfiSharedEp {
    pub(super) queues: MtLock<OfiQueues>,
    /// Longest packet that is sent without a completion, bytes; 0: none is, because a later completion would not report
    /// it.
    pub max_inject: usize,
    /// Packets to one peer arrive in the order in which they were sent.
    pub is_ordered: bool,
    /// Sends to one peer that are not complete.
    pub window: u32,
    /// The completion queue has a descriptor.
    pub has_event: bool,
    /// How memory of peers is accessed; `None`: it is not.
    pub(super) rma: Option<RmaLimits>,
    /// The provider has all atomic operations on memory of peers.
    pub has_atomics: bool,
    /// Hash of what workers have in common that reach each other, as in their addresses.
    pub fabric: u64,
    /// What it is for.
    pub role: IfaceRole,
    /// Operations pass a registration of their memory (`FI_MR_LOCAL`).
    pub needs_local: bool,
    /// Operations on memory of peers pass addresses of their processes (`FI_MR_VIRT_ADDR`).
    pub is_virtual: bool,
    is_dead: AtomicBool,
}

impl OfiSharedEp {
    /// Opens an endpoint of a device with `receives` receive buffers and, to one peer, `window` sends that are not
    /// complete. `waits`: its completion queue has a descriptor; `role`: what it is for; `fabric`: hash of what workers
    /// have in common that reach each other.
    ///
    /// # Errors
    /// The provider's error.
    pub fn open(
        device: &OfiDevice,
        waits: bool,
        (receives, window): (u32, u32),
        (fabric, role): (u64, IfaceRole),
    ) -> io::Result<OfiSharedEp> {
        let receives = receives.min(device.rx().size.clamp(1, 4096) as u32);
        // Of a buffer of several packets each has a completion.
        let arrivals = if device.has_multi_recv() {
            MIN_ARRIVALS.max(receives)
        } else {
            receives
        };
        let depth = device.tx().size.clamp(BATCH, 4096) + arrivals as usize;
        let ep = OfiEndpoint::open(device, waits, depth)?;
        let ep = OfiSharedEp {
            rma: RmaLimits::new(device, window),
            has_atomics: ep.has_atomics(),
            max_inject: if device.is_ordered() {
                device.tx().inject_size
            } else {
                0
            },
            fabric,
            role,
            needs_local: device.needs(FI_MR_LOCAL),
            is_virtual: device.needs(FI_MR_VIRT_ADDR),
            // In single-thread mode, too, threads of other workers register memory in this domain.
            queues: MtLock::new(
                true,
                OfiQueues {
                    ep,
                    buffers: OfiBufferPool::default(),
                    multi_recvs: MultiRecvPool::default(),
                    addresses: OfiAddresses::default(),
                    unposted: Vec::new(),
                    has_work: false,
                    receives: 0,
                    receive_error: None,
                    blocked: Vec::new(),
                    failed: Vec::new(),
                    wanted_rails: Vec::new(),
                    ops: RmaOpPool::default(),
                    own: None,
                    kept: KeptCompletions::default(),
                    max_inject_write: device.tx().inject_size.min(MAX_PACKET),
                },
            ),
            is_ordered: device.is_ordered(),
            window,
            has_event: waits,
            is_dead: AtomicBool::new(false),
        };
        ep.queues.lock().post_receives(receives)?;
        let receive_error = ep.queues.lock().receive_error;
        receive_error.map_or(Ok(ep), |code| Err(error(code)))
    }

    /// The provider works no more.
    pub fn set_dead(&self) {
        // Relaxed: it guards no data; an operation that is posted late fails.
        self.is_dead.store(true, Ordering::Relaxed);
    }

    /// Whether the endpoint executes atomic operations, and works.
    pub fn executes_amo(&self) -> bool {
        // Relaxed: the partner is the store in `set_dead`, which publishes nothing else.
        self.has_atomics && !self.is_dead.load(Ordering::Relaxed)
    }

    /// The endpoint's address.
    ///
    /// # Errors
    /// The provider's error.
    pub fn name(&self) -> io::Result<Vec<u8>> {
        self.queues.lock().ep.name()
    }

    /// The descriptor of the completion queue, open as long as `self`.
    ///
    /// # Errors
    /// The provider's error.
    pub fn descriptor(&self) -> io::Result<RawFd> {
        self.queues.lock().ep.descriptor()
    }

    /// Whether the progress thread may sleep until the descriptor is readable.
    pub fn may_wait(&self) -> bool {
        let queues = self.queues.lock();
        queues.failed.is_empty() && queues.kept.0.is_empty() && queues.ep.may_wait()
    }

    /// Whether senders, or receive buffers, wait for room.
    pub fn is_blocked(&self) -> bool {
        let queues = self.queues.lock();
        !queues.blocked.is_empty() || !queues.unposted.is_empty()
    }

    /// The number of the peer at this address, which has the form of this endpoint's own, and the address as
    /// [`remove`](Self::remove) gets it.
    ///
    /// # Errors
    /// The provider's error.
    pub fn insert(&self, name: &[u8]) -> io::Result<(u64, Arc<[u8]>)> {
        let mut queues = self.queues.lock();
        let OfiQueues { ep, addresses, .. } = &mut *queues;
        addresses.take(name, || ep.insert(name))
    }

    /// Removes a peer, to which nothing is outstanding.
    pub fn remove(&self, name: &Arc<[u8]>) {
        let mut queues = self.queues.lock();
        if let Some(addr) = queues.addresses.release(name) {
            queues.ep.remove(addr);
        }
    }

    /// A buffer for a packet. `None`: there is no memory.
    pub fn take_buffer(&self) -> Option<BufferRef> {
        let mut queues = self.queues.lock();
        let OfiQueues { ep, buffers, .. } = &mut *queues;
        buffers.take(ep).ok()
    }

    /// Gives a buffer back that was taken, and not posted.
    pub fn give_back(&self, buffer: BufferRef) {
        self.queues.lock().buffers.give_back(buffer);
    }

    /// Sends the packet of `len` bytes in a buffer that was taken. `signal`: a completion is to report it. If it cannot
    /// be sent at all the interface fails the connection.
    ///
    /// # Errors
    /// There is no room; the buffer is still the caller's.
    pub fn post(
        &self,
        buffer: BufferRef,
        len: usize,
        link: &Arc<OfiTxLink>,
        signal: bool,
    ) -> Result<(), NoRoom> {
        debug_assert!(len <= MAX_PACKET);
        let mut queues = self.queues.lock();
        let OfiQueues { ep, buffers, .. } = &mut *queues;
        let signal = signal || len > self.max_inject;
        let mut post = |ep: &mut OfiEndpoint| {
            if signal {
                buffers.post_send(ep, buffer, len, link)
            } else {
                // SAFETY: the buffer is the caller's, which has written `len` bytes.
                unsafe { ep.inject(buffer.data(), len, link.addr) }
            }
        };
        let mut posted = post(ep);
        for _ in 0..TRIES {
            if posted != Err(PostError::Again) {
                break;
            }
            ep.progress();
            posted = post(ep);
        }
        match posted {
            Ok(()) => link.posted(signal),
            Err(PostError::Again) => return Err(NoRoom),
            Err(PostError::Failed(error)) => queues.fail(link, error),
        }
        if !signal || posted.is_err() {
            queues.buffers.give_back(buffer);
        }
        Ok(())
    }

    /// Sends the next packet of a connection without a completion. False: it was not sent.
    ///
    /// # Safety
    /// `len` bytes at `packet` are readable, at most [`max_inject`](Self::max_inject).
    #[inline(always)]
    pub unsafe fn inject(&self, packet: *const u8, len: usize, link: &OfiTxLink) -> bool {
        let send = |queues: &mut OfiQueues| {
            // SAFETY: the caller's packet.
            let is_sent = unsafe { queues.ep.inject(packet, len, link.addr) }.is_ok();
            if is_sent {
                link.injected();
            }
            is_sent
        };
        // SAFETY: the lock was made for several threads.
        unsafe { self.queues.with::<true, _>(send) }
    }

    /// Sends a packet, which a completion reports.
    ///
    /// # Errors
    /// There is no room.
    pub fn send(&self, packet: &[u8], link: &Arc<OfiTxLink>) -> Result<(), NoRoom> {
        debug_assert!(packet.len() <= MAX_PACKET);
        let buffer = self.take_buffer().ok_or(NoRoom)?;
        // SAFETY: the buffer was taken, and is longer than any packet.
        unsafe { std::ptr::copy_nonoverlapping(packet.as_ptr(), buffer.data(), packet.len()) };
        self.post(buffer, packet.len(), link, true)
            .inspect_err(|_| self.give_back(buffer))
    }

    /// The sender of a connection has a packet for which there was no room: [`take_blocked`](Self::take_blocked)
    /// returns the connection.
    pub fn block(&self, link: &Arc<OfiTxLink>) {
        self.queues.lock().block(link);
    }

    /// Takes the connections whose senders wait for room.
    pub fn take_blocked(&self) -> Vec<Arc<OfiTxLink>> {
        let blocked = std::mem::take(&mut self.queues.lock().blocked);
        for link in &blocked {
            link.set_blocked(false);
        }
        blocked
    }

    /// Takes the connections to which packets could not be sent, with the numbers of the errors.
    pub fn take_failed(&self) -> Vec<(Arc<OfiTxLink>, c_int)> {
        std::mem::take(&mut self.queues.lock().failed)
    }

    /// Reads completions: the number of entries that were written, or what [`completed`](Self::completed) explains.
    /// Progresses the provider. `None`: nothing was done, because [`take_blocked`](Self::take_blocked) or
    /// [`take_failed`](Self::take_failed) return connections, or receive buffers wait for room.
    #[inline(always)]
    pub fn read(&self, entries: &mut Entries) -> Option<isize> {
        let read = |queues: &mut OfiQueues| {
            let reads = !queues.has_work;
            reads.then(|| queues.ep.read_queue(entries))
        };
        // SAFETY: the lock was made for several threads.
        unsafe { self.queues.with::<true, _>(read) }
    }

    /// What a [`read`](Self::read) says that has returned no entry.
    #[cold]
    pub fn completed(&self, read: isize) -> Completed {
        let mut queues = self.queues.lock();
        match (queues.ep.completed(read), queues.receive_error) {
            (Completed::Nothing, Some(error)) => Completed::Dead(error),
            (completed, _) => completed,
        }
    }

    /// Reads completions, and posts the receive buffers for which there was no room before.
    pub fn poll(&self, entries: &mut Entries) -> Completed {
        self.post_again();
        let mut queues = self.queues.lock();
        match queues.kept.0.pop_front() {
            None => {}
            Some(Ok(entry)) => {
                entries[0].write(entry);
                return Completed::Some(1);
            }
            Some(Err(failed)) => return Completed::Failed(failed),
        }
        let read = queues.ep.read_queue(entries);
        drop(queues);
        match read {
            n if n > 0 => Completed::Some(n as usize),
            n => self.completed(n),
        }
    }

    /// Takes the connection of a send that has completed, with or without an error, and returns its buffer. `None`: it
    /// was a receive, whose buffer is the caller's.
    ///
    /// # Safety
    /// A completion has reported the buffer, and this call is the first for it.
    pub unsafe fn sent(&self, buffer: BufferRef) -> Option<Arc<OfiTxLink>> {
        let mut queues = self.queues.lock();
        // SAFETY: the operation has ended, and the lock is held.
        let link = unsafe { buffer.take_link() }?;
        link.completed();
        queues.buffers.give_back(buffer);
        Some(link)
    }
}

impl OfiQueues {
    /// A connection waits for room: [`OfiSharedEp::take_blocked`] returns it.
    #[cold]
    pub(super) fn block(&mut self, link: &Arc<OfiTxLink>) {
        if !link.set_blocked(true) {
            self.blocked.push(link.clone());
            self.has_work = true;
        }
    }

    /// A packet or an operation cannot be sent: [`OfiSharedEp::take_failed`] returns the connection.
    #[cold]
    pub(super) fn fail(&mut self, link: &Arc<OfiTxLink>, error: c_int) {
        self.failed.push((link.clone(), error));
        self.has_work = true;
    }
}
