//! Memory of the user's that devices read and write in place: registered for as long as a request needs it, and kept
//! for the next one; or not registered at all, where devices fetch pages on demand.
//!
//! `UCX_IB_REG_METHODS` says what comes first. With the default, demand comes behind the cache: where that cannot be
//! kept right, or memory cannot be pinned. One registration of a device's serves all that it does in memory itself. The
//! keys that peers get are for the memory that they are for: such parts are registered on demand, and kept, since they
//! lead to whatever is mapped there.

use super::context::Context;
use super::datatype::Data;
use super::worker::Worker;
use crate::options::{Options, Size};
use crate::sys::cma::{IoSpan, Spans};
use crate::sys::log;
use crate::sys::mem_monitor::{self, Monitor, VaRange};
use crate::sys::regcache::{CachePolicy, Handle, RegCache};
use crate::tl::ib::mr::{Devices, IbMr};
use std::io;
use std::sync::Arc;

/// Pieces of a list that are shorter on average are copied, bytes.
const LEAST_PIECE: usize = 4 << 10;
/// Most parts that are kept registered on demand: nothing tells of those that will never be used again.
const MOST_PARTS: usize = 4096;

/// What is to be done with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MrUse {
    /// Our device reads it, or writes it.
    Read,
    Write,
    /// The peer's does.
    ReadByPeer,
    WriteByPeer,
}

impl MrUse {
    fn writes(self) -> bool {
        matches!(self, MrUse::Write | MrUse::WriteByPeer)
    }
}

/// What the devices of a context have registered.
#[derive(Default)]
pub struct IbMrCaches {
    cache: Option<Arc<RegCache<Devices>>>,
    demand: Option<OdpRegion>,
}

/// Memory whose pages devices fetch.
struct OdpRegion {
    whole: Handle<IbMr>,
    parts: Arc<RegCache<Devices>>,
    /// Bytes.
    longest: usize,
    /// Before anything is pinned.
    first: bool,
}

/// What the options say of the ways to register.
struct RegMethods {
    names: Vec<String>,
}

impl RegMethods {
    fn read(options: &Options) -> Self {
        let names = options.value("IB_REG_METHODS").unwrap_or_default();
        RegMethods { names }
    }

    fn place(&self, name: &str) -> usize {
        let place = self.names.iter().position(|n| n == name);
        place.unwrap_or(usize::MAX)
    }

    fn has(&self, name: &str) -> bool {
        self.place(name) != usize::MAX
    }

    /// Whether demand comes before all else that can be; `keeps`: a cache can.
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

/// Whether memory may be left to devices without being pinned, if all else fails.
pub fn allows_demand(options: &Options) -> bool {
    let types: Vec<String> = options.value("IB_ODP_MEM_TYPES").unwrap_or_default();
    RegMethods::read(options).has("odp") && types.iter().any(|t| t == "host")
}

/// What may be kept: nothing where `UCX_IB_REG_METHODS` does not name the cache.
fn policy(options: &Options) -> CachePolicy {
    let mut policy = CachePolicy::read(options, "IB_");
    policy.keeps &= RegMethods::read(options).has("rcache");
    policy
}

impl OdpRegion {
    /// `None`: the options want none, or a device does not know it.
    fn new(devices: &Devices, options: &Options) -> Option<Self> {
        let devices = devices.on_demand().filter(|_| allows_demand(options))?;
        let first = RegMethods::read(options).demands_first(true);
        let made = Self::of(devices, options, first);
        made.inspect_err(|e| log::diag!("memory cannot be used on demand: {e}"))
            .ok()
    }

    fn of(devices: Devices, options: &Options, first: bool) -> io::Result<Self> {
        let whole = Handle::alone(VaRange::new(0, usize::MAX), devices.whole()?);
        let mut policy = CachePolicy::read(options, "IB_");
        (policy.keeps, policy.insists) = (true, false);
        policy.max_regions = policy.max_regions.min(MOST_PARTS);
        let longest: Option<Size> = options.value("IB_ODP_MAX_SIZE");
        Ok(OdpRegion {
            whole,
            parts: RegCache::new(devices, policy, Monitor::needless())?,
            longest: longest.and_then(Size::bytes).unwrap_or(usize::MAX),
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
    fn new(ctx: &Context) -> Self {
        if ctx.ports.is_empty() {
            return IbMrCaches::default();
        }
        let devices = Devices::of(&ctx.ports);
        // Nothing is ever pinned then, and nobody need watch.
        let demand = OdpRegion::new(&devices, &ctx.options);
        if demand
            .as_ref()
            .is_some_and(|d| d.first && d.longest == usize::MAX)
        {
            return IbMrCaches {
                cache: None,
                demand,
            };
        }
        let watch = mem_monitor::watch(&ctx.options).clone();
        let mut policy = policy(&ctx.options);
        policy.spared = demand.as_ref().map_or(0, |d| d.longest);
        let keeps = policy.keeps && watch.blind().is_none();
        let methods = RegMethods::read(&ctx.options);
        let cache = RegCache::new(devices, policy, watch).inspect_err(|e| {
            log::error!("UCX_RCACHE_ENABLE=y, but memory cannot be kept registered: {e}");
        });
        let first = cache.is_err() || methods.demands_first(keeps);
        IbMrCaches {
            cache: cache.ok(),
            demand: demand.map(|d| OdpRegion { first, ..d }),
        }
    }

    /// Demand, if memory of this length may be used that way, and that now: `first`, or when all else has failed.
    fn demand(&self, len: usize, first: bool) -> Option<&OdpRegion> {
        self.demand
            .as_ref()
            .filter(|d| len <= d.longest && d.first == first)
    }
}

impl Context {
    fn registrations(&self) -> &IbMrCaches {
        self.pinned.get_or_init(|| IbMrCaches::new(self))
    }

    /// Deregisters what has been unmapped. To be called now and then.
    pub fn trim(&self) {
        if let Some(cache) = self.pinned.get().and_then(|r| r.cache.as_ref()) {
            cache.tidy();
        }
    }
}

impl Worker {
    /// Lets devices use memory of the user's. `None`: it goes by messages, as nothing does, too.
    pub fn register_ib(&self, ptr: *mut u8, len: usize, by: MrUse) -> Option<Handle<IbMr>> {
        if len == 0 {
            return None;
        }
        let all = self.ctx.registrations();
        let found = match (all.demand(len, true), &all.cache) {
            (Some(demand), _) => demand.get(ptr, len, by),
            (None, Some(cache)) => self.register_ib_port(cache, ptr, len),
            (None, None) => return None,
        };
        let found = match (found, all.demand(len, false)) {
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

    /// A registration that pins it.
    fn register_ib_port(
        &self,
        cache: &Arc<RegCache<Devices>>,
        ptr: *mut u8,
        len: usize,
    ) -> io::Result<Handle<IbMr>> {
        let mut lookaside = self.ib_mrs.lock();
        let lookaside = lookaside.get_or_insert_with(|| cache.lookaside());
        lookaside.get(ptr as usize, len)
    }
}

impl Worker {
    /// The same of all pieces of a request's data that are not empty, in their order. Many or short ones are copied: to
    /// register them costs more.
    ///
    /// # Safety
    /// A list of pieces is still the user's promise.
    pub unsafe fn register_ib_all(&self, data: &Data, by: MrUse) -> Option<Vec<Handle<IbMr>>> {
        if let Some(ptr) = data.as_contig() {
            return Some(vec![self.register_ib(ptr, data.len(), by)?]);
        }
        let mut spans = Spans::new();
        // SAFETY: the caller's promise.
        let is_list = unsafe { data.spans(0, data.len(), &mut spans) };
        let pieces = spans.as_slice();
        if !is_list || spans.bytes() < data.len() || data.len() < pieces.len() * LEAST_PIECE {
            return None;
        }
        let pin = |piece: &IoSpan| self.register_ib(piece.addr as *mut u8, piece.len, by);
        pieces.iter().map(pin).collect()
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
