//! What contexts and workers hold for the transports. The layers above pass it on: what a transport keeps there is its
//! own affair.

use super::LaneTarget;
use super::amo::AmoOp;
use super::ib::context::IbShared;
use super::ib::desc::{AmoDesc, IbZcopy, Unmoved};
use super::ib::region::IbRegion;
use super::ib::rkey::IbRkey;
use super::network::{FoundDevices, Network};
use super::networks::networks;
use super::ofi::context::OfiShared;
use super::ofi::mr::OfiZcopy;
use super::ofi::region::OfiRegion;
use super::ofi::rkey::OfiRemoteRegion;
use super::program::Program;
use super::rma::{AmoKey, MrKey, RmaDevice, RmaKey, Striping};
use super::rma_pieces::RmaRegion;
use super::shm::context::ShmContext;
use super::shm::worker::ShmShared;
use super::tofu::amo::TofuAmo;
use super::tofu::context::TofuShared;
use super::tofu::region::TofuRegion;
use super::tofu::rkey::StaddRegion;
use super::tofu::stripe::TofuZcopy;
use crate::options::Options;
use crate::sys::cuda::MemoryInfo;
use crate::tl::address::WorkerAddress;
use crate::tl::rkey::UnpackedRkey;
use std::io;
use std::sync::Arc;

macro_rules! context {
    ($($(#[$cfg:meta])* $Kind:ident $net:ident $Context:ident;)* @) => {
        /// The transports' part of a context.
        pub struct TlContext {
            pub shm: ShmContext,
            $($(#[$cfg])* pub $net: super::$net::context::$Context,)*
        }

        impl TlContext {
            /// Finds the devices that the options allow. A transport without devices is not an error: its part has
            /// none.
            pub fn new(options: &Options, program: Program) -> TlContext {
                let mut found = FoundDevices::default();
                TlContext {
                    shm: ShmContext::new(program),
                    $($(#[$cfg])* $net: Network::find(options, program, &mut found),)*
                }
            }

            /// Whether a worker may reach others through a network. Network devices, if TCP is allowed, are not
            /// counted: they can come and go.
            pub fn has_network(&self) -> bool {
                [$($(#[$cfg])* self.$net.may_reach()),*].contains(&true)
            }

            /// Whether a transport is allowed, and no device of it was found.
            pub fn lacks_devices(&self, transport: &str) -> bool {
                [$($(#[$cfg])* self.$net.lacks_devices(transport)),*].contains(&true)
            }
        }
    };
}
networks!(context);

impl TlContext {
    /// Executes an operation on registered memory by the unit that executes those of the peers, for a peer of this
    /// worker. `fails_over`: the peer may use any port. `None`: processors execute operations on this memory.
    ///
    /// # Safety
    /// `addr` points to `amo.size` bytes in `regions` and is aligned to them.
    pub unsafe fn execute_amo(
        &self,
        worker: &TlWorker,
        regions: &impl TlRegions,
        fails_over: bool,
        addr: u64,
        amo: AmoOp,
    ) -> Option<io::Result<u64>> {
        let len = amo.size.into();
        if self.ofi.has_atomics {
            let region = || regions.find(addr, len, |region| region.ofi.clone());
            // SAFETY: the caller's memory.
            let done = unsafe { (self.ofi).execute_amo(worker.ofi.as_ref(), region, addr, amo) };
            if done.is_some() {
                return done;
            }
        }
        if self.tofu.amo_by_tni {
            let region = || regions.find(addr, len, |region| region.tofu.clone());
            // SAFETY: the caller's memory.
            unsafe { (self.tofu).execute_amo(worker.tofu.as_ref(), region, addr, amo) }
        } else {
            let key = || regions.find(addr, len, |region| region.ib.as_ref()?.atomic_key());
            // SAFETY: the caller's memory.
            unsafe { (self.ib).execute_amo(&worker.ib, key, fails_over, addr, amo) }
        }
    }

    /// Whether adapters of this kind have the operation.
    pub fn has_amo(&self, device: RmaDevice, amo: AmoOp) -> bool {
        match device {
            RmaDevice::Ib => AmoDesc::new(amo).is_some(),
            // Its provider has all or none, which the lane knows.
            RmaDevice::Ofi => true,
            RmaDevice::Tofu => TofuAmo::new(amo).is_some_and(|amo| self.tofu.offered.has(amo.verb)),
        }
    }

    /// A region of a GPU's memory that peers' devices may access: whole pages that are inside of an allocation, or
    /// overlap its ends.
    pub fn gpu_region(&self, base: u64, len: u64, memory: MemoryInfo) -> TlRegion {
        TlRegion {
            ib: self.ib.gpu_region(base, len, memory).map(Arc::new),
            ..TlRegion::default()
        }
    }

    /// Whether adapters may access memory of GPUs.
    pub fn takes_gpu_memory(&self) -> bool {
        self.ib.takes_gpu_memory
    }

    /// Whether several devices may share a put or get.
    pub fn stripes_rma(&self) -> bool {
        self.ib.most_rails(Striping::Rma) > 1
    }

    /// A region of whole pages that peers' devices may access.
    ///
    /// # Safety
    /// `len` bytes at `base` are mapped, and may be read and written by devices, until all copies of the value are
    /// dropped.
    pub unsafe fn region(&self, base: u64, len: u64) -> TlRegion {
        // SAFETY: the caller's memory.
        let (ib, tofu) = unsafe { (self.ib.region(base, len), self.tofu.region(base, len)) };
        // SAFETY: the caller's memory.
        let ofi = unsafe { self.ofi.region(base, len) };
        TlRegion {
            ib: ib.map(Arc::new),
            tofu: tofu.map(Arc::new),
            ofi: ofi.map(Arc::new),
        }
    }
}

/// The transports' part of a worker that all of its threads use; `None` where a transport is not used.
pub struct TlWorker {
    pub shm: ShmShared,
    pub ib: IbShared,
    pub tofu: Option<TofuShared>,
    pub ofi: Option<OfiShared>,
    /// The worker's address, without its name: where its interfaces are reached.
    pub own: WorkerAddress,
}

impl TlWorker {
    /// A peer was made that may send by shared memory: there is to be a ring for it.
    pub fn expect_sender(&self) {
        self.shm.doorbell.expect_one();
    }

    /// The opposite of [`expect_sender`](Self::expect_sender).
    pub fn expect_sender_less(&self) {
        self.shm.doorbell.expect_one_less();
    }

    /// The adapter of this worker for which keys are resolved for a peer at `target`. `None`: keys are for ports, or
    /// memory there is accessed by message.
    pub fn resolves_keys(&self, target: &LaneTarget) -> Option<RmaDevice> {
        match target {
            LaneTarget::Tofu(_) => Some(RmaDevice::Tofu),
            LaneTarget::Ofi(to) => {
                let accesses = self.ofi.as_ref().is_some_and(|ofi| ofi.accesses(&to.first));
                accesses.then_some(RmaDevice::Ofi)
            }
            _ => None,
        }
    }

    /// Whether a provider of libfabric has atomic operations on memory of peers.
    pub fn has_provider_atomics(&self) -> bool {
        self.ofi.as_ref().is_some_and(|ofi| ofi.has_atomics)
    }

    /// Whether a peer may have taken a ring that is not polled yet. One load.
    #[inline(always)]
    pub fn has_new_ring(&self) -> bool {
        self.shm.doorbell.has_new_ring()
    }
}

/// The regions of `ucp_mem_map`, with what the transports keep of each.
pub trait TlRegions {
    /// The first result of `f` for a region that contains these bytes.
    fn find<T>(&self, addr: u64, len: u64, f: impl Fn(&TlRegion) -> Option<T>) -> Option<T>;
}

/// The transports' part of a region of registered memory; `None` where a transport is not used. Copies share it.
#[derive(Clone, Default)]
pub struct TlRegion {
    pub ib: Option<Arc<IbRegion>>,
    pub tofu: Option<Arc<TofuRegion>>,
    pub ofi: Option<Arc<OfiRegion>>,
}

impl TlRegion {
    /// Adds the keys of the transports to a remote key; none where there is no device, or the memory cannot be
    /// registered.
    pub fn pack(&self, key: &mut UnpackedRkey) {
        key.ib = self.ib.as_ref().and_then(|ib| ib.keys());
        key.tofu = self.tofu.as_ref().and_then(|tofu| tofu.rkey());
        key.ofi = self.ofi.as_ref().and_then(|ofi| ofi.rkeys());
    }
}

/// The transports' part of a remote key.
#[derive(Clone, Debug, Default)]
pub struct TlRkey {
    /// Keys for InfiniBand devices, if there are any.
    pub ib: Option<IbRkey>,
    pub tofu: StaddRegion,
    /// On the heap: most keys have none, and programs have many keys.
    pub ofi: Option<Box<OfiRemoteRegion>>,
}

impl TlRkey {
    /// The part of a key for the lane to a peer at `target`. `alone`: no threads use the lane concurrently.
    pub fn new(key: &UnpackedRkey, target: Option<&LaneTarget>, alone: bool) -> TlRkey {
        let tofu = match (&key.tofu, target) {
            (Some(key), Some(LaneTarget::Tofu(to))) => StaddRegion::new(key, &to.locator, alone),
            _ => None,
        };
        let ofi = key.ofi.as_ref().map(|keys| {
            let reached = match target {
                Some(LaneTarget::Ofi(to)) => OfiRemoteRegion::new(keys, to),
                _ => None,
            };
            Box::new(reached.unwrap_or_else(|| OfiRemoteRegion::unreached(keys)))
        });
        TlRkey {
            ib: key.ib,
            tofu: tofu.unwrap_or_default(),
            ofi,
        }
    }

    /// Whether an adapter has a key for the region.
    pub fn has_adapter_keys(&self) -> bool {
        self.ib.is_some() || self.ofi.is_some() || !self.tofu.is_empty()
    }

    /// The keys for InfiniBand devices, if all of these bytes are accessible by them.
    #[inline(always)]
    pub fn device_keys(&self, addr: u64, len: usize) -> Option<&IbRkey> {
        match &self.ib {
            Some(keys) if keys.covers(addr, len) => Some(keys),
            _ => None,
        }
    }

    /// Whether words are accessible by [`RmaShort::put_word`](super::rma_short::RmaShort::put_word).
    #[inline(always)]
    pub fn has_words(&self) -> bool {
        self.tofu.has_words()
    }

    /// Whether all of these bytes have a STADD.
    #[inline(always)]
    pub fn has_stadd(&self, addr: u64, len: usize) -> bool {
        self.tofu.stadd(addr, len).is_some()
    }

    /// The adapter that accesses all of these bytes by a key that was resolved for the peer.
    #[inline(always)]
    pub fn resolved_for(&self, addr: u64, len: usize) -> Option<RmaDevice> {
        if self.has_stadd(addr, len) {
            return Some(RmaDevice::Tofu);
        }
        self.ofi_key(addr, len).map(|_| RmaDevice::Ofi)
    }

    #[inline]
    fn ofi_key(&self, addr: u64, len: usize) -> Option<MrKey> {
        self.ofi.as_ref()?.key(addr, len)
    }

    /// The memory that an adapter accesses by one key, none of it if it has no key.
    pub fn rma_region(&self, device: RmaDevice) -> Option<RmaRegion> {
        match device {
            RmaDevice::Ib => self.ib.as_ref().map(IbRkey::region),
            RmaDevice::Tofu => Some(self.tofu.region()),
            RmaDevice::Ofi => self.ofi.as_ref().map(|ofi| ofi.region()),
        }
    }

    /// What an adapter needs to access `len` bytes. `None`: it has no key, or not for all of them.
    #[inline(always)]
    pub fn rma_key(&self, device: RmaDevice, addr: u64, len: usize) -> Option<RmaKey> {
        match device {
            RmaDevice::Ib => Some(RmaKey::Rkeys(self.device_keys(addr, len)?.keys)),
            RmaDevice::Tofu => self.tofu.stadd(addr, len).map(RmaKey::Stadd),
            RmaDevice::Ofi => self.ofi_key(addr, len).map(RmaKey::Mr),
        }
    }

    /// What an adapter needs to execute atomic operations on a word of `size` bytes. `None`: it executes none there.
    pub fn amo_key(&self, device: RmaDevice, addr: u64, size: u8) -> Option<AmoKey> {
        match (device, &self.ib) {
            // HCAs change whole words of 8 bytes: an operation on 4 bytes would overwrite the other half.
            (RmaDevice::Ib, Some(keys)) if size == 8 => {
                let port_mask = keys.atomics.port_mask;
                let rkey = keys.of_port(port_mask.trailing_zeros() as usize)?;
                Some(AmoKey::Rkey { rkey, port_mask })
            }
            (RmaDevice::Ib, _) => None,
            (RmaDevice::Tofu, _) => self.tofu.stadd(addr, size.into()).map(AmoKey::Stadd),
            (RmaDevice::Ofi, _) => {
                let ofi = self.ofi.as_ref().filter(|ofi| ofi.atomics)?;
                ofi.key(addr, size.into()).map(AmoKey::Mr)
            }
        }
    }

    /// The key of memory on which an InfiniBand device executes atomic operations, or it alone does.
    #[cfg(test)]
    pub fn with_atomics(alone: bool) -> TlRkey {
        let atomics = super::ib::rkey::RkeyAtomics {
            port_mask: 1,
            alone,
        };
        let ib = IbRkey {
            atomics,
            ..IbRkey::default()
        };
        TlRkey {
            ib: Some(ib),
            ..TlRkey::default()
        }
    }

    /// Whether an InfiniBand device, or a provider of libfabric, alone executes atomic operations on words of `size`
    /// bytes of the region.
    pub fn is_amo_alone(&self, size: u8) -> bool {
        size == 8 && self.ib.is_some_and(|keys| keys.atomics.alone)
            || self.ofi.as_ref().is_some_and(|ofi| ofi.atomics)
    }
}

/// The transports' part of a zero-copy transfer: registrations of the memory, held until the request ends, and what the
/// transport of the lane keeps.
pub enum TlZcopy {
    Ib(IbZcopy),
    Tofu(TofuZcopy),
    Ofi(OfiZcopy),
    /// The driver of GPUs copies memory that needs no registration.
    Driver,
}

impl TlZcopy {
    /// Whether a put or get that has ended early keeps its status, because its device reports each operation.
    pub fn keeps_status(&self) -> bool {
        matches!(self, TlZcopy::Tofu(_) | TlZcopy::Ofi(_) | TlZcopy::Driver)
    }

    /// Records that a rail that was closed has not moved `len` bytes from `offset` on: they are to be posted again.
    pub fn post_again(&mut self, offset: u64, len: usize) {
        match self {
            TlZcopy::Ib(zcopy) => zcopy.again.push(Unmoved { offset, len }),
            TlZcopy::Ofi(zcopy) => zcopy.post_again(offset, len),
            TlZcopy::Tofu(_) | TlZcopy::Driver => {}
        }
    }

    /// The message that is read has this key for a rail.
    pub fn set_rail_key(&mut self, key: MrKey) {
        if let TlZcopy::Ofi(zcopy) = self {
            zcopy.set_rail_key(key);
        }
    }
}
