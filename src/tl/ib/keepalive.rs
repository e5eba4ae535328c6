//! A thread that replies to liveness probes for its process: a process that computes for long acknowledges no
//! datagrams, and must not be treated as dead.
//!
//! An RC connection does not need it: there the device acknowledges. The thread sleeps until a probe arrives, and
//! accesses no state of the workers but their uids and secrets.

use super::bindings::*;
use super::buffers::{Buffer, BufferPool};
use super::iface::GRH;
use super::port::Port;
use super::queues::{CompChannel, IbvCq, IbvQp, QpInit};
use super::rx_pool::RxPool;
use super::ud::{AddressHandle, begin};
use crate::sys::eventfd::EventFd;
use crate::sys::log;
use crate::sys::sync::OnceLock;
use crate::sys::thread::without_signals;
use crate::wire::ib_packet::{Datagram, DatagramFlags, Ping};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// Per port: receives for probes, and replies that can be outstanding.
const SLOTS: usize = 64;
/// Completions polled at a time.
const BATCH: usize = 16;
/// Bytes of the thread's stack.
const STACK: usize = 128 << 10;

/// Workers of this process: uid and secret of each.
type ProcessNames = Arc<Mutex<HashMap<u64, u64>>>;

/// The responder of a context, whose thread is started when UD is to carry messages.
pub struct KeepaliveResponder {
    ports: Arc<[Arc<Port>]>,
    /// `None`: it cannot be started.
    thread: OnceLock<Option<KeepaliveThread>>,
}

impl KeepaliveResponder {
    /// A responder at these ports, without a thread yet.
    pub fn new(ports: Arc<[Arc<Port>]>) -> KeepaliveResponder {
        KeepaliveResponder {
            ports,
            thread: OnceLock::new(),
        }
    }

    /// Adds a worker whose address has this secret. Returns the number of the responder's queue pair at the port with
    /// this index; 0: there is no responder.
    pub fn add_worker(&self, worker: u64, secret: u64, port: usize) -> u32 {
        let thread = self.thread.get_or_init(|| match KeepaliveThread::new(&self.ports) {
            Ok(thread) => Some(thread),
            Err(e) => {
                log::warn!(
                    "no keepalive thread: UD peers treat this process as dead if it does not progress for \
                     UCX_UD_TIMEOUT: {e}"
                );
                None
            }
        });
        thread
            .as_ref()
            .map_or(0, |thread| thread.add_worker(worker, secret, port))
    }

    /// Stops replying for a worker.
    pub fn remove_worker(&self, worker: u64) {
        if let Some(Some(thread)) = self.thread.get() {
            thread.remove_worker(worker);
        }
    }
}

/// The thread and the workers that it replies for. Dropping it stops the thread.
struct KeepaliveThread {
    /// Numbers of the queue pairs, one per port.
    numbers: Vec<u32>,
    names: ProcessNames,
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl KeepaliveThread {
    /// Starts a thread that receives probes at these ports, with no worker yet.
    ///
    /// # Errors
    /// Errors of a device, or `EAGAIN`: no thread can be created.
    pub fn new(ports: &[Arc<Port>]) -> io::Result<KeepaliveThread> {
        let stop = Arc::new(EventFd::new()?);
        let names = ProcessNames::default();
        let posts = ports.iter().map(|port| Responder::new(port, names.clone()));
        let mut posts = posts.collect::<io::Result<Vec<Responder>>>()?;
        let numbers = posts.iter().map(|post| post.qp.number).collect();
        let stopped = stop.clone();
        let builder = Builder::new()
            .name("rucp-keepalive".into())
            .stack_size(STACK);
        let listen = move || {
            while wait(&posts, &stopped) {
                posts.iter_mut().for_each(Responder::serve);
            }
        };
        Ok(KeepaliveThread {
            numbers,
            names,
            stop,
            thread: Some(without_signals(|| builder.spawn(listen))?),
        })
    }

    /// Adds a worker to reply for. Returns the number of the queue pair that receives probes at the port with this
    /// index.
    pub fn add_worker(&self, worker: u64, secret: u64, port: usize) -> u32 {
        self.names.lock().insert(worker, secret);
        self.numbers.get(port).copied().unwrap_or(0)
    }

    /// Stops replying for a worker.
    pub fn remove_worker(&self, worker: u64) {
        self.names.lock().remove(&worker);
    }
}

impl Drop for KeepaliveThread {
    fn drop(&mut self) {
        self.stop.signal();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Sleeps until a probe arrives. False: the thread has to stop.
fn wait(posts: &[Responder], stop: &EventFd) -> bool {
    let channels = posts.iter().map(|post| post.channel.as_fd());
    let mut fds: Vec<_> = std::iter::once(stop.as_fd())
        .chain(channels)
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    // After an interruption the thread looks for probes, too.
    let _ = poll(&mut fds, None);
    fds[0].revents().is_empty()
}

/// The queue pair of a port. Field order: it is dropped before its completion queues, those before the channel.
struct Responder {
    qp: IbvQp,
    recv_cq: Arc<IbvCq>,
    send_cq: Arc<IbvCq>,
    channel: Arc<CompChannel>,
    probes: RxPool,
    /// Buffers of replies, and the indexes of those that are not outstanding.
    reply_buffers: Vec<Buffer>,
    free: Vec<u64>,
    /// The generation: how often the queue pair was reset after a failure.
    generation: u64,
    _buffers: BufferPool,
    port: Arc<Port>,
    names: ProcessNames,
}

impl Responder {
    fn new(port: &Arc<Port>, names: ProcessNames) -> io::Result<Responder> {
        let hca = &port.hca;
        let channel = CompChannel::new(hca)?;
        let recv_cq = IbvCq::new(hca, SLOTS as u32, Some(&channel))?;
        let send_cq = IbvCq::new(hca, SLOTS as u32, None)?;
        let parts = QpInit {
            kind: IBV_QPT_UD,
            send_cq: &send_cq,
            recv_cq: &recv_cq,
            srq: None,
            sends: SLOTS as u32,
            receives: SLOTS as u32,
            inline: 0,
            pieces: 1,
        };
        let qp = IbvQp::new(hca, &parts)?;
        begin(port, &qp)?;
        let mut buffers = BufferPool::new(hca, Datagram::SIZE, SLOTS);
        let reply_buffers = (0..SLOTS).map(|_| buffers.get());
        let reply_buffers: Option<Vec<Buffer>> = reply_buffers.collect();
        let mut probes = RxPool::new(port, GRH + port.mtu_bytes(), 1);
        probes.grow(SLOTS);
        let mut post = Responder {
            qp,
            recv_cq,
            send_cq,
            channel,
            probes,
            reply_buffers: reply_buffers.ok_or(io::ErrorKind::OutOfMemory)?,
            free: (0..SLOTS as u64).collect(),
            generation: 0,
            _buffers: buffers,
            port: port.clone(),
            names,
        };
        post.serve();
        Ok(post)
    }

    /// Replies to the probes that have arrived; later ones wake the thread.
    fn serve(&mut self) {
        self.channel.drain();
        self.recv_cq.arm();
        loop {
            let mut wcs = [const { MaybeUninit::uninit() }; BATCH];
            let n = self.recv_cq.poll(&mut wcs);
            for wc in &wcs[..n] {
                // SAFETY: `poll` has written `n` entries.
                self.on_arrival(unsafe { wc.assume_init_ref() });
            }
            let qp = &self.qp;
            // SAFETY: the requests are receives of the pool, whose buffers are registered.
            self.probes
                .post(|wr, bad| unsafe { qp.post_receives(wr, bad) });
            if n < BATCH {
                return;
            }
        }
    }

    fn on_arrival(&mut self, wc: &ibv_wc) {
        let Some(wc) = self.probes.current_generation(wc) else {
            return;
        };
        if wc.status != IBV_WC_SUCCESS {
            return self.revive();
        }
        // SAFETY: a completion of a receive of the pool in this generation, which is not posted again before `done`.
        let bytes = unsafe { self.probes.bytes(&wc, GRH) };
        let generation = self.generation;
        self.on_probe(bytes);
        if self.generation == generation {
            // SAFETY: a completion of a receive of the pool in this generation, marked once.
            unsafe { self.probes.done(&wc) };
        }
    }

    /// Resets the queue pair after a failure: most devices take no further work requests before. If that fails no probe
    /// is replied to.
    #[cold]
    fn revive(&mut self) {
        if self
            .qp
            .reset()
            .and_then(|()| begin(&self.port, &self.qp))
            .is_ok()
        {
            self.generation += 1;
            self.free = (0..SLOTS as u64).collect();
            self.probes.renew();
        }
    }

    /// Replies to a probe; ignores everything else.
    fn on_probe(&mut self, bytes: &[u8]) {
        let Some((ping, from)) = Ping::read(bytes) else {
            return;
        };
        if self.names.lock().get(&ping.worker) != Some(&ping.secret) {
            return;
        }
        self.take_ends();
        let (Ok(ah), Some(slot)) = (AddressHandle::new(&self.port, &from), self.free.pop()) else {
            return;
        };
        let answer = Datagram {
            to: Datagram::to(ping.number, DatagramFlags::PONG),
            proof: ping.proof,
            psn: 0,
            ack: 0,
        };
        self.answer(slot, &ah, from.qpn, &answer.encode());
    }

    /// Frees the buffers of replies that were sent or have failed.
    fn take_ends(&mut self) {
        let mut wcs = [const { MaybeUninit::uninit() }; BATCH];
        loop {
            let n = self.send_cq.poll(&mut wcs);
            for wc in &wcs[..n] {
                // SAFETY: `poll` has written `n` entries.
                let wc = unsafe { wc.assume_init_ref() };
                if wc.wr_id >> 32 != self.generation {
                    continue;
                }
                match wc.status {
                    IBV_WC_SUCCESS => self.free.push(wc.wr_id & u64::from(u32::MAX)),
                    _ => self.revive(),
                }
            }
            if n < BATCH {
                return;
            }
        }
    }

    fn answer(&mut self, slot: u64, ah: &AddressHandle, qpn: u32, bytes: &[u8]) {
        let buffer = self.reply_buffers[slot as usize];
        // SAFETY: the buffer is not outstanding and has room for a reply.
        unsafe {
            buffer
                .ptr
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        };
        let mut sge = ibv_sge {
            addr: buffer.ptr as u64,
            length: bytes.len() as u32,
            lkey: buffer.lkey,
        };
        let mut wr = ibv_send_wr {
            wr_id: self.generation << 32 | slot,
            sg_list: &mut sge,
            num_sge: 1,
            opcode: IBV_WR_SEND,
            send_flags: IBV_SEND_SIGNALED,
            ..Default::default()
        };
        ah.direct(&mut wr, qpn);
        // SAFETY: one entry, of the registered buffer of this slot, which is not free until the send has completed; the
        // caller has the address handle.
        if !unsafe { self.qp.post_send(&mut wr) } {
            self.free.push(slot);
        }
    }
}
