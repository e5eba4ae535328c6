//! Registration of user memory for the adapters of a worker.

use super::LaneTarget;
use super::ib::desc::IbZcopy;
use super::ib::mr::IbMr;
use super::ib::registration::{IbRegistrar, MrUse};
use super::mapped::MappedRegions;
use super::ofi::mr::OfiRegistrar;
use super::rma::RmaDevice;
use super::shared::{TlContext, TlRkey, TlWorker, TlZcopy};
use super::tofu::registration::TofuRegistrar;
use crate::options::Options;
use crate::sys::cma::IoSpan;
use crate::sys::cuda::MemoryInfo;
use crate::sys::regcache::Handle;
use crate::wire::ib_port::MAX_PORTS;
use crate::wire::rts_keys::RailStadds;

/// Registers user memory for the adapters of a worker. `None` of its functions: the memory cannot be registered, or is
/// better copied.
pub struct TlRegistrar<'a, M> {
    pub context: &'a TlContext,
    pub worker: &'a TlWorker,
    pub options: &'a Options,
    pub regions: &'a M,
    /// The allocation of a GPU that the memory is in; `None`: it is the host's.
    pub gpu: Option<MemoryInfo>,
}

/// Memory of a message that a device of the receiver may read.
pub struct OfferedMem {
    /// What the RTS has for the receiver's device.
    pub keys: Vec<u8>,
    /// What the RTS has in place of the address.
    pub stadd: Option<u64>,
    pub tl: TlZcopy,
}

impl<M: MappedRegions> TlRegistrar<'_, M> {
    #[inline(always)]
    fn ib(&self) -> IbRegistrar<'_> {
        IbRegistrar {
            context: &self.context.ib,
            worker: &self.worker.ib,
            options: self.options,
        }
    }

    #[inline(always)]
    fn tofu(&self) -> Option<TofuRegistrar<'_, M>> {
        if self.gpu.is_some() {
            return None;
        }
        Some(TofuRegistrar {
            iface: &self.worker.tofu.as_ref()?.iface,
            options: self.options,
            regions: self.regions,
        })
    }

    #[inline(always)]
    fn ofi(&self) -> Option<OfiRegistrar<'_>> {
        if self.gpu.is_some() {
            return None;
        }
        Some(self.worker.ofi.as_ref()?.registrar(self.options))
    }

    /// Whether a put or get of this length is better done in place.
    #[inline(always)]
    pub fn is_in_place(&self, device: RmaDevice, len: usize) -> bool {
        match device {
            RmaDevice::Ib => self.context.ib.is_in_place(len),
            RmaDevice::Tofu => self.worker.tofu.is_some() && len > super::tofu::tni::PIGGYBACK,
            RmaDevice::Ofi => self.worker.ofi.as_ref().is_some_and(|ofi| len >= ofi.zcopy),
        }
    }

    /// Whether adapters are known not to register the memory of a GPU that this is for.
    pub fn is_refused(&self) -> bool {
        (self.gpu.as_ref()).is_some_and(|memory| self.ib().is_gpu_refused(memory))
    }

    /// Registers contiguous memory for a put, or for a get (`reads`), of the memory at `addr` of a key.
    #[inline(always)]
    pub fn for_rma(
        &self,
        device: RmaDevice,
        memory: (*mut u8, usize),
        reads: bool,
        (key, addr): (&TlRkey, u64),
    ) -> Option<TlZcopy> {
        match device {
            RmaDevice::Ib => self.one(memory, local_use(reads)).map(in_one),
            RmaDevice::Tofu => {
                let (memory, key) = ((memory.0.cast_const(), memory.1), &key.tofu);
                let tofu = self.tofu()?.for_access(memory, reads, (key, addr))?;
                Some(TlZcopy::Tofu(tofu))
            }
            RmaDevice::Ofi => self.ofi()?.for_own(memory, reads).map(TlZcopy::Ofi),
        }
    }

    /// Registers all pieces of memory, in their order, for operations of this side on memory of peers: if they are
    /// many, only long ones. `reads`: the operations are gets, which write the pieces.
    pub fn pieces(&self, device: RmaDevice, pieces: &[IoSpan], reads: bool) -> Option<TlZcopy> {
        match device {
            RmaDevice::Ib => {
                let memory = self.ib().pieces(pieces, local_use(reads))?;
                Some(TlZcopy::Ib(IbZcopy::new(memory)))
            }
            RmaDevice::Ofi => self.ofi()?.pieces_for_own(pieces, reads).map(TlZcopy::Ofi),
            RmaDevice::Tofu => None,
        }
    }

    /// Registers contiguous memory from which this side writes a message. `None` over Tofu, whose receivers read.
    pub fn for_deliver(&self, device: RmaDevice, memory: (*mut u8, usize)) -> Option<TlZcopy> {
        match device {
            RmaDevice::Ib => self.one(memory, MrUse::Read).map(in_one),
            RmaDevice::Ofi => self.ofi()?.for_own(memory, false).map(TlZcopy::Ofi),
            RmaDevice::Tofu => None,
        }
    }

    #[inline(always)]
    fn one(&self, (ptr, len): (*mut u8, usize), by: MrUse) -> Option<Handle<IbMr>> {
        match &self.gpu {
            None => self.ib().register(ptr, len, by),
            Some(memory) => self.ib().register_gpu(memory),
        }
    }

    /// Registers the memory of a message for the device of the receiver, a peer at `target`.
    pub fn offer(
        &self,
        device: RmaDevice,
        memory: (*mut u8, usize),
        target: Option<&LaneTarget>,
    ) -> Option<OfferedMem> {
        match device {
            RmaDevice::Ib => {
                let memory = self.one(memory, MrUse::ReadByPeer)?;
                let rkeys: [u32; MAX_PORTS] = memory.region().remote_keys();
                let count = self.context.ib.ports.len().min(MAX_PORTS);
                let keys = rkeys[..count].iter().flat_map(|rkey| rkey.to_le_bytes());
                Some(OfferedMem {
                    keys: keys.collect(),
                    stadd: None,
                    tl: in_one(memory),
                })
            }
            RmaDevice::Tofu => {
                let peer = match target {
                    Some(LaneTarget::Tofu(peer)) => Some(&peer.locator),
                    _ => None,
                };
                let (zcopy, stadd) = self.tofu()?.offer((memory.0, memory.1), peer)?;
                Some(OfferedMem {
                    keys: zcopy.offered().encode(),
                    stadd: Some(stadd),
                    tl: TlZcopy::Tofu(zcopy),
                })
            }
            RmaDevice::Ofi => {
                let Some(LaneTarget::Ofi(target)) = target else {
                    return None;
                };
                let (zcopy, keys) = self.ofi()?.offer(target, memory)?;
                Some(OfferedMem {
                    keys: keys.encode(),
                    stadd: None,
                    tl: TlZcopy::Ofi(zcopy),
                })
            }
        }
    }

    /// Registers memory into which a device of this side reads a message; `there`: its STADDs at the sender's rails.
    pub fn for_fetch(
        &self,
        device: RmaDevice,
        memory: (*mut u8, usize),
        there: &RailStadds,
    ) -> Option<TlZcopy> {
        match device {
            RmaDevice::Ib => self.one(memory, MrUse::Write).map(in_one),
            RmaDevice::Tofu => {
                let zcopy = self.tofu()?.for_fetch((memory.0, memory.1), there)?;
                Some(TlZcopy::Tofu(zcopy))
            }
            RmaDevice::Ofi => self.ofi()?.for_own(memory, true).map(TlZcopy::Ofi),
        }
    }

    /// Registers memory into which the device of the sender, a peer at `target`, writes a message. Returns the words of
    /// its key, too: the rkeys, or those of a [`MrKey`](super::rma::MrKey).
    pub fn invite(
        &self,
        device: RmaDevice,
        memory: (*mut u8, usize),
        target: Option<&LaneTarget>,
    ) -> Option<(TlZcopy, [u32; MAX_PORTS])> {
        if device == RmaDevice::Ofi {
            let (zcopy, key) = self.ofi()?.for_peer(ofi_iface(target)?, memory, true)?;
            return Some((TlZcopy::Ofi(zcopy), key.words()));
        }
        let memory = self.one(memory, MrUse::WriteByPeer)?;
        let rkeys = memory.region().remote_keys();
        Some((in_one(memory), rkeys))
    }
}

/// How the device of this side uses memory for a put, or for a get (`reads`).
#[inline(always)]
fn local_use(reads: bool) -> MrUse {
    if reads { MrUse::Write } else { MrUse::Read }
}

/// Index of the worker's interface of libfabric that reaches a peer first.
fn ofi_iface(target: Option<&LaneTarget>) -> Option<usize> {
    match target {
        Some(LaneTarget::Ofi(to)) => Some(to.first.iface),
        _ => None,
    }
}

/// A transfer by queue pairs of one piece of memory.
#[inline(always)]
fn in_one(memory: Handle<IbMr>) -> TlZcopy {
    TlZcopy::Ib(IbZcopy::new(vec![memory]))
}
