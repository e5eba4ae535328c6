//! User memory that InfiniBand devices access in place: registered while a request needs it and cached for the next
//! one, or accessed by on-demand paging (ODP) without a registration of its own.
//!
//! `UCX_IB_REG_METHODS` gives the order. By default ODP comes after the cache: it is used where the cache cannot be
//! kept consistent, or memory cannot be pinned. One ODP registration of a device serves all local accesses. Keys for
//! peers cover only the memory of one transfer: such parts are registered on demand and kept, since a key leads to
//! whatever is mapped at its addresses.

use super::context::{IbContext, IbShared};
use super::dmabuf::DmaBufMrs;
use super::mr::{Devices, IbMr};
use super::port::Port;
use crate::options::{Options, Ternary};
use crate::sys::cma::IoSpan;
use crate::sys::cuda::MemoryInfo;
use crate::sys::lock::MtLock;
use crate::sys::log;
use crate::sys::mem_monitor::{self, Monitor};
use crate::sys::regcache::{CachePolicy, Handle, LocalCache, RegCache};
use crate::sys::va_range::VaRange;
use std::io;
use std::sync::Arc;

/// Most parts that are kept registered on demand: it is not known which of them will be used again.
const MAX_ON_DEMAND: usize = 4096;
/// Pieces of a list that are shorter on average are copied, bytes.
const MIN_SGE_BYTES: usize = 4 << 10;

/// A worker's local cache of registrations.
pub type LocalMrCache = MtLock<Option<LocalCache<Devices>>>;

/// How devices use the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MrUse {
    /// The local device reads it, or writes it.
    Read,
    Write,
    /// The peer's device reads it, or writes it.
    ReadByPeer,
    WriteByPeer,
}

impl MrUse {
    fn writes(self) -> bool {
        matches!(self, MrUse::Write | MrUse::WriteByPeer)
    }
}

/// Registers user memory for the devices of a worker.
pub struct IbRegistrar<'a> {
    pub context: &'a IbContext,
    pub worker: &'a IbShared,
    pub options: &'a Options,
}

impl IbRegistrar<'_> {
    /// Registers memory. `None`: its data are sent by messages; so are empty ones.
    pub fn register(&self, ptr: *mut u8, len: usize, by: MrUse) -> Option<Handle<IbMr>> {
        let registrations = self.context.registrations(self.options);
        registrations.register(&self.worker.registrations, ptr, len, by)
    }

    /// Registers an allocation of a GPU, as the driver knows it now. `None`: its data are sent by messages.
    #[cold]
    pub fn register_gpu(&self, memory: &MemoryInfo) -> Option<Handle<IbMr>> {
        let registrations = self.context.registrations(self.options);
        registrations.gpu.as_ref()?.get(memory)
    }

    /// Whether it is known that an allocation of a GPU cannot be registered.
    pub fn is_gpu_refused(&self, memory: &MemoryInfo) -> bool {
        let registrations = self.context.registrations(self.options);
        (registrations.gpu.as_ref()).is_none_or(|gpu| gpu.is_refused(memory))
    }

    /// Registers all pieces of a list, in their order. `None` for short pieces: to copy these costs less than to
    /// register them.
    pub fn pieces(&self, pieces: &[IoSpan], by: MrUse) -> Option<Vec<Handle<IbMr>>> {
        let bytes: usize = pieces.iter().map(|piece| piece.len).sum();
        if bytes < pieces.len() * MIN_SGE_BYTES {
            return None;
        }
        let pin = |piece: &IoSpan| self.register(piece.addr as *mut u8, piece.len, by);
        pieces.iter().map(pin).collect()
    }
}

/// Registrations of a context's devices.
#[derive(Default)]
pub struct IbMrCaches {
    cache: Option<Arc<RegCache<Devices>>>,
    demand: Option<OdpRegion>,
    /// Memory of GPUs; absent where the options exclude it.
    gpu: Option<DmaBufMrs>,
}

/// Memory that devices access by on-demand paging.
struct OdpRegion {
    whole: Handle<IbMr>,
    parts: Arc<RegCache<Devices>>,
    /// Bytes.
    longest: usize,
    /// It is used before pinned registrations.
    first: bool,
}

/// The methods of registration that the options name.
struct RegMethods<'a> {
    names: &'a [String],
}

impl<'a> RegMethods<'a> {
    fn read(options: &'a Options) -> Self {
        let names = &options.ib.reg_methods;
        RegMethods { names }
    }

    fn place(&self, name: &str) -> usize {
        let place = self.names.iter().position(|n| n == name);
        place.unwrap_or(usize::MAX)
    }

    fn has(&self, name: &str) -> bool {
        self.place(name) != usize::MAX
    }

    /// Whether ODP precedes the other usable methods; `keeps`: the cache is usable.
    fn demands_first(&self, keeps: bool) -> bool {
        let demand = self.place("odp");
        let cached = if keeps {
            self.place("rcache")
        } else {
            usize::MAX
        };
        demand < self.place("direct").min(cached)
    }
}

/// Whether devices may access memory that is not pinned, as the last choice.
pub fn allows_demand(options: &Options) -> bool {
    let types = &options.ib.odp_mem_types;
    RegMethods::read(options).has("odp") && types.iter().any(|t| t == "host")
}

/// Whether devices may access memory of GPUs.
pub fn allows_gpu(options: &Options) -> bool {
    options.ib.gpu_direct != Ternary::No && options.cuda.dmabuf != Ternary::No
}

/// The limits of a cache.
fn limits(options: &Options) -> CachePolicy {
    let ib = &options.ib;
    CachePolicy::new(
        options.rcache_enable,
        (ib.rcache_max_regions, ib.rcache_max_size),
        ib.rcache_purge_on_fork,
    )
}

/// The cache's policy: it keeps nothing where `UCX_IB_REG_METHODS` does not name the cache.
fn policy(options: &Options) -> CachePolicy {
    let mut policy = limits(options);
    policy.keeps &= RegMethods::read(options).has("rcache");
    policy
}

impl OdpRegion {
    /// `None`: the options do not name it, or a device does not support it.
    fn new(devices: &Devices, options: &Options) -> Option<Self> {
        let devices = devices.on_demand().filter(|_| allows_demand(options))?;
        let first = RegMethods::read(options).demands_first(true);
        let made = Self::of(devices, options, first);
        made.inspect_err(|e| log::diag!("no on-demand paging: {e}"))
            .ok()
    }

    fn of(devices: Devices, options: &Options, first: bool) -> io::Result<Self> {
        let whole = Handle::alone(VaRange::new(0, usize::MAX), devices.whole()?);
        let mut policy = limits(options);
        (policy.keeps, policy.insists) = (true, false);
        policy.max_regions = policy.max_regions.min(MAX_ON_DEMAND);
        Ok(OdpRegion {
            whole,
            parts: RegCache::new(devices, policy, Monitor::needless())?,
            longest: options.ib.odp_max_size.bytes().unwrap_or(usize::MAX),
            first,
        })
    }

    fn get(&self, ptr: *mut u8, len: usize, by: MrUse) -> io::Result<Handle<IbMr>> {
        match by {
            MrUse::Read | MrUse::Write => Ok(self.whole.clone()),
            MrUse::ReadByPeer | MrUse::WriteByPeer => self.parts.get(ptr as usize, len),
        }
    }
}

impl IbMrCaches {
    /// Registrations with the devices of these ports. Without a port nothing is ever registered.
    pub fn new(options: &Options, ports: &[Arc<Port>]) -> Self {
        if ports.is_empty() {
            return IbMrCaches::default();
        }
        let devices = Devices::of(ports);
        let gpu =
            allows_gpu(options).then(|| DmaBufMrs::new(devices.clone(), policy(options).keeps));
        // Nothing is ever pinned then, and no cache has to be notified of unmapped memory.
        let demand = OdpRegion::new(&devices, options);
        if demand
            .as_ref()
            .is_some_and(|d| d.first && d.longest == usize::MAX)
        {
            return IbMrCaches {
                cache: None,
                demand,
                gpu,
            };
        }
        let watch = mem_monitor::watch(options).clone();
        let mut policy = policy(options);
        policy.spared = demand.as_ref().map_or(0, |d| d.longest);
        let keeps = policy.keeps && watch.blind().is_none();
        let methods = RegMethods::read(options);
        let cache = RegCache::new(devices, policy, watch).inspect_err(|e| {
            log::error!("UCX_RCACHE_ENABLE=y, but memory cannot be kept registered: {e}");
        });
        let first = cache.is_err() || methods.demands_first(keeps);
        IbMrCaches {
            cache: cache.ok(),
            demand: demand.map(|d| OdpRegion { first, ..d }),
            gpu,
        }
    }

    /// ODP, if it supports this length and its turn is now: `first`, or after all other methods have failed.
    fn demand(&self, len: usize, first: bool) -> Option<&OdpRegion> {
        self.demand
            .as_ref()
            .filter(|d| len <= d.longest && d.first == first)
    }

    /// Registers user memory for devices; `local`: the worker's local cache, made by its first registration. `None`:
    /// the memory cannot be registered, or is empty.
    pub fn register(
        &self,
        local: &LocalMrCache,
        ptr: *mut u8,
        len: usize,
        by: MrUse,
    ) -> Option<Handle<IbMr>> {
        if len == 0 {
            return None;
        }
        let found = match (self.demand(len, true), &self.cache) {
            (Some(demand), _) => demand.get(ptr, len, by),
            (None, Some(cache)) => {
                let mut local = local.lock();
                let local = local.get_or_insert_with(|| cache.lookaside());
                local.get(ptr as usize, len)
            }
            (None, None) => return None,
        };
        let found = match (found, self.demand(len, false)) {
            (Err(e), Some(demand)) => {
                log::diag!("{len} bytes at {ptr:p} are used on demand: {e}");
                demand.get(ptr, len, by)
            }
            (found, _) => found,
        };
        let refused = match found {
            Ok(memory) if memory.region().is_writable() || !by.writes() => return Some(memory),
            Ok(_) => "it cannot be written".to_owned(),
            Err(e) => e.to_string(),
        };
        log::diag!("{len} bytes at {ptr:p} are not registered, and are copied: {refused}");
        None
    }

    /// Deregisters memory that has been unmapped. To be called now and then.
    pub fn trim(&self) {
        if let Some(cache) = &self.cache {
            cache.tidy();
        }
        if let Some(gpu) = &self.gpu {
            gpu.trim();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_can_be_left_out() {
        let mut options = Options::default();
        assert!(policy(&options).keeps);
        options.set("IB_REG_METHODS", "direct").expect("an option");
        assert!(!policy(&options).keeps);
    }

    #[test]
    fn the_cache_has_limits_of_its_own() {
        let mut options = Options::default();
        assert_eq!(limits(&options), CachePolicy::default());
        for (name, value) in [
            ("RCACHE_MAX_REGIONS", "100"),
            ("IB_RCACHE_MAX_SIZE", "2M"),
            ("RCACHE_ENABLE", "yes"),
            ("RCACHE_PURGE_ON_FORK", "n"),
        ] {
            options.set(name, value).expect("an option");
        }
        let expected = CachePolicy {
            insists: true,
            max_regions: 100,
            max_bytes: 2 << 20,
            purge_on_fork: false,
            ..CachePolicy::default()
        };
        assert_eq!(limits(&options), expected);
    }

    #[test]
    fn methods_are_in_order() {
        assert!(allows_demand(&Options::default()));
        for (text, with_cache, without) in [
            ("rcache,odp,direct", false, true),
            ("rcache,direct,odp", false, false),
            ("odp,rcache,direct", true, true),
            ("direct,odp", false, false),
            ("odp", true, true),
            ("rcache", false, false),
        ] {
            let mut options = Options::default();
            options.set("IB_REG_METHODS", text).expect("an option");
            let methods = RegMethods::read(&options);
            let first = [true, false].map(|keeps| methods.demands_first(keeps));
            assert_eq!(first, [with_cache, without], "{text}");
        }
    }
}
