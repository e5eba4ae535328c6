//! The interfaces of a worker.

mod open;

pub use rings::{PolledRings, PolledSignal};

use super::held::{Held, IfaceSlot};
use super::ib::receive::short::{self, SoleIface};
use super::ib::worker::IbWorker;
use super::interface::{Interface, ProgressBy};
use super::network::Network;
use super::networks::networks;
use super::ring_sink::RingSink;
use super::shm::receive::short as rings;
use super::shm::worker::ShmWorker;
use super::sink::Sink;
use super::tcp::interface::Sockets;
use super::tofu::worker::TofuWorker;
use super::{IfaceKind, TlContext, TlWorker, shm, tofu};
use crate::wire::header::NoteHdr;
use std::os::fd::BorrowedFd;

macro_rules! interfaces {
    ($($(#[$cfg:meta])* $Kind:ident $net:ident $Context:ident;)* @) => {
        /// The transports' part of a worker that only its progress thread uses; `None` where a transport is not used.
        /// `P` names a peer.
        #[repr(C)]
        pub struct TlRx<P: Copy + Eq> {
            pub shm: ShmWorker<P>,
            $(
                $(#[$cfg])*
                pub $net: Option<Box<<super::$net::context::$Context as Network>::Iface<P>>>,
            )*
        }
    };
}
networks!(interfaces);

/// The interface of a network, if there is one: what a worker has of the network, or a value that borrows it.
macro_rules! iface {
    ($interfaces:expr, tcp) => {
        $interfaces
            .tcp
            .as_deref_mut()
            .map(|sockets| Sockets {
                sockets,
                ports: $interfaces.ib.as_deref_mut(),
                has_rings: !$interfaces.shm.is_empty(),
            })
            .as_mut()
    };
    ($interfaces:expr, $net:ident) => {
        $interfaces.$net.as_deref_mut()
    };
}

/// Calls `$act` with each interface that there is, as `$iface`.
macro_rules! each {
    ($interfaces:expr, $iface:ident => $act:expr) => {
        networks!(each_arms $interfaces, $iface => $act)
    };
}

macro_rules! each_arms {
    (
        $($(#[$cfg:meta])* $Kind:ident $net:ident $Context:ident;)*
        @ $interfaces:expr, $iface:ident => $act:expr
    ) => {{
        $(
            $(#[$cfg])*
            if let Some($iface) = iface!($interfaces, $net) {
                $act;
            }
        )*
    }};
}

macro_rules! progress_polled {
    ($($(#[$cfg:meta])* $Kind:ident $net:ident $Context:ident;)* @) => {
        impl<P: Copy + Eq> TlRx<P> {
            /// Progresses the interfaces for which `polls` is true of the bits that `now` returns: it is called again
            /// behind each, because a callback may have changed them. Returns the number of events.
            #[inline(always)]
            pub fn progress<S: Sink<Peer = P>, B: Copy>(
                &mut self,
                sink: S,
                now: impl Fn() -> B,
                polls: impl Fn(B, IfaceKind) -> bool,
            ) -> u32 {
                let (mut count, mut bits) = (0, now());
                $(
                    $(#[$cfg])*
                    if polls(bits, IfaceKind::$Kind) {
                        #[inline(never)]
                        fn call<P: Copy + Eq, S: Sink<Peer = P>>(rx: &mut TlRx<P>, sink: S) -> u32 {
                            progress(iface!(rx, $net), sink, IfaceKind::$Kind)
                        }
                        count += match progress_by(&iface!(self, $net)) {
                            ProgressBy::Inlining => progress(iface!(self, $net), sink, IfaceKind::$Kind),
                            ProgressBy::Call => call(self, sink),
                            ProgressBy::ColdCall => call(self, sink.cold()),
                        };
                        bits = now();
                    }
                )*
                count
            }

            /// Closes the interfaces whose devices access user memory, or the others.
            fn close_those<S: Sink<Peer = P>>(&mut self, sink: S, context: &TlContext, users: bool) {
                $(
                    $(#[$cfg])*
                    if close_if(iface!(self, $net), sink, context, users) && users {
                        self.$net = None;
                    }
                )*
            }
        }
    };
}
networks!(progress_polled);

impl<P: Copy + Eq> TlRx<P> {
    /// Looks for messages in the rings of a worker that polls only these, of which there are few: there is no
    /// [cold ring](ShmWorker::has_cold_rings). Single-thread mode.
    #[inline(always)]
    pub fn look_at_rings(&mut self, worker: &TlWorker) -> PolledRings {
        rings::poll_few(&mut self.shm, &worker.shm.doorbell)
    }

    /// Takes the next message of the only ring, if that is a signal for completion queue `cq` behind data that
    /// `permits` allows: `taken` gets its sender, its value, and the place of the data. Single-thread mode.
    #[inline(always)]
    pub fn take_signal<S: RingSink<Peer = P>>(
        &mut self,
        sink: S,
        cq: u8,
        permits: impl FnOnce(&NoteHdr) -> bool,
        taken: impl FnOnce(P, u64, NoteHdr),
    ) -> PolledSignal {
        rings::take_signal(sink, &mut self.shm, cq, permits, taken)
    }

    /// Handles messages of the ring that [`look_at_rings`](Self::look_at_rings) has found. Returns their number.
    #[inline(always)]
    pub fn handle_ring<S: RingSink<Peer = P>>(&mut self, sink: S, first: usize) -> u32 {
        rings::handle(sink, &mut self.shm, first)
    }

    /// [`look_at_rings`](Self::look_at_rings) where there are [cold rings](ShmWorker::has_cold_rings).
    #[inline(always)]
    pub fn look_at_many_rings(&mut self, worker: &TlWorker) -> PolledRings {
        rings::poll_many(&mut self.shm, &worker.shm.doorbell)
    }

    /// Handles messages of the ring that [`look_at_many_rings`](Self::look_at_many_rings) has found. Returns their
    /// number.
    #[inline(always)]
    pub fn handle_hot_rings<S: RingSink<Peer = P>>(&mut self, sink: S, first: usize) -> u32 {
        rings::handle_hot(sink, &mut self.shm, first)
    }

    /// Polls all rings. Returns the number of messages.
    #[inline(always)]
    pub fn poll_rings<S: RingSink<Peer = P>>(&mut self, sink: S) -> u32 {
        rings::poll_all(sink, &mut self.shm)
    }

    /// Starts to poll the rings that peers have taken in the worker's inbox.
    #[cold]
    pub fn accept_rings<S: Sink<Peer = P>>(&mut self, worker: &TlWorker, sink: S) {
        shm::accept::accept(&mut self.shm, &worker.shm.doorbell, sink);
    }

    /// Frees the rings that no sender uses any more.
    pub fn free_rings<S: Sink<Peer = P>>(&mut self, sink: S) {
        shm::accept::free_finished(&mut self.shm, sink);
    }

    /// The only interface of an adapter: its hot path is an alternative to [`progress`](Self::progress).
    #[inline(always)]
    pub fn sole(&self) -> Option<SoleIface> {
        self.ib.as_deref().and_then(short::sole)
    }

    /// Polls the ports.
    pub fn poll_ports<S: Sink<Peer = P>>(&mut self, sink: S) -> u32 {
        (self.ib.as_deref_mut()).map_or(0, |ports| ports.poll(sink))
    }

    /// The interface whose library has messages.
    pub const MESSAGES: IfaceKind = IfaceKind::Ofi;

    /// Polls the interface for messages of a worker that has nothing else to do. Returns the number of events.
    #[inline(always)]
    pub fn poll_messages<S: Sink<Peer = P>>(&mut self, sink: S) -> u32 {
        (self.ofi.as_deref_mut()).map_or(0, |messages| messages.poll_alone(sink))
    }

    /// The interfaces that are polled in each progress call.
    pub fn always_polled(&mut self) -> Vec<IfaceKind> {
        fn kind<I: Interface>(_: &I) -> Option<IfaceKind> {
            I::IS_ALWAYS_POLLED.then_some(I::KIND)
        }
        let mut polled = Vec::new();
        each!(self, iface => polled.extend(kind(iface)));
        polled
    }

    /// A progress call of the worker ends that has progressed the sockets.
    pub fn end_progress(&self) {
        if let Some(sockets) = self.tcp.as_deref() {
            sockets.end_poll();
        }
    }

    /// Polls what does not wait for the clock, or, if that has advanced to `now`, coarse milliseconds, does what is
    /// due. Returns the number of events.
    #[cold]
    pub fn tick<S: Sink<Peer = P>>(
        &mut self,
        sink: S,
        context: &TlContext,
        now: Option<u64>,
    ) -> u32 {
        let mut count = 0;
        each!(self, iface => count += match now {
            Some(now) => iface.tick(sink, context, now),
            None => iface.between_ticks(sink),
        });
        count
    }

    /// The interface whose rings a device writes.
    pub const DEVICE_RINGS: IfaceKind = IfaceKind::Tofu;

    /// Progress of a worker in single-thread mode that polls only this interface.
    ///
    /// # Safety
    /// That of [`tofu::receive::short::progress`].
    #[inline(always)]
    pub unsafe fn progress_device_rings<H: Held<Peer = P, Interfaces = Self>>(held: H) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { tofu::receive::short::progress(held) }
    }

    /// Prepares for sleep: what arrives from now on makes a descriptor readable. False: there is work.
    pub fn arm<S: Sink<Peer = P>>(&mut self, sink: S) -> bool {
        let mut idle = true;
        each!(self, iface => idle = idle && iface.arm(sink));
        idle
    }

    /// Whether the clock has to be read when a descriptor is readable.
    pub fn is_timed(&mut self) -> bool {
        let mut timed = false;
        each!(self, iface => timed |= iface.is_timed());
        timed
    }

    /// Calls `act` with each descriptor that wakes a sleeping worker.
    pub fn each_descriptor(&mut self, act: &mut dyn FnMut(BorrowedFd<'_>)) {
        each!(self, iface => iface.each_descriptor(act));
    }

    /// Calls `act` with the peer of each connection and each incoming ring; with some more than once.
    pub fn each_peer(&mut self, act: &mut dyn FnMut(P)) {
        self.shm.peers().for_each(&mut *act);
        each!(self, iface => iface.each_peer(act));
    }

    /// Calls `act` with the peers that may send without a connection of this side, and end of themselves.
    pub fn each_sender(&mut self, mut act: impl FnMut(P)) {
        self.shm.peers().for_each(&mut act);
        each!(self, iface => iface.each_sender(&mut act));
    }

    /// The devices write nothing more for these peers, which have failed.
    pub fn end_peers(&mut self, has_failed: &dyn Fn(P) -> bool) {
        each!(self, iface => iface.end_peers(has_failed));
    }

    /// Frees memory that was needed when there were many more peers.
    pub fn trim(&mut self) {
        self.shm.trim();
        each!(self, iface => iface.trim());
    }

    /// Closes all rings, then all connections, those of sockets first, and the interfaces of adapters. The inbox stays,
    /// in which peers close their rings.
    pub fn close<S: Sink<Peer = P>>(&mut self, sink: S, context: &TlContext) {
        self.shm.close();
        self.close_those(sink, context, false);
        self.close_adapters(sink, context);
    }

    /// Closes the interfaces of adapters: afterwards none accesses memory for this worker.
    pub fn close_adapters<S: Sink<Peer = P>>(&mut self, sink: S, context: &TlContext) {
        self.close_those(sink, context, true);
    }
}

impl<P: Copy + Eq> IfaceSlot<IbWorker<P>> for TlRx<P> {
    #[inline(always)]
    fn iface(&mut self) -> Option<&mut IbWorker<P>> {
        self.ib.as_deref_mut()
    }
}

impl<P: Copy + Eq> IfaceSlot<TofuWorker<P>> for TlRx<P> {
    #[inline(always)]
    fn iface(&mut self) -> Option<&mut TofuWorker<P>> {
        self.tofu.as_deref_mut()
    }
}

/// How the interface, if there is one, is progressed.
#[inline(always)]
fn progress_by<I: Interface>(_: &Option<&mut I>) -> ProgressBy {
    I::PROGRESS
}

/// Progresses an interface. Returns the number of events.
#[inline(always)]
fn progress<I: Interface, S: Sink<Peer = I::Peer>>(
    iface: Option<&mut I>,
    sink: S,
    kind: IfaceKind,
) -> u32 {
    match iface {
        Some(iface) => iface.progress(sink),
        None => nothing(sink, kind),
    }
}

/// Closes an interface whose device accesses user memory (`users`), or another one. Returns whether it was closed.
fn close_if<I: Interface, S: Sink<Peer = I::Peer>>(
    iface: Option<&mut I>,
    sink: S,
    context: &TlContext,
    users: bool,
) -> bool {
    let iface = iface.filter(|_| I::USES_USER_MEMORY == users);
    iface.is_some_and(|iface| {
        iface.close(sink, context);
        true
    })
}

/// An interface that there is not, or not any more, is not polled again. Returns no events.
#[cold]
#[inline(never)]
fn nothing<S: Sink>(sink: S, kind: IfaceKind) -> u32 {
    drop(sink.take_connects(kind));
    sink.set_polled(kind, false);
    0
}
