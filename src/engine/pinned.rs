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
use crate::sys::cma::{Span, Spans};
use crate::sys::log;
use crate::sys::regcache::{Cache, Handle, Policy};
use crate::sys::unmaps::{self, Extent, Watch};
use crate::tl::ib::pinned::{Devices, Pinned};
use std::io;
use std::sync::Arc;

/// Pieces of a list that are shorter on average are copied, bytes.
const LEAST_PIECE: usize = 4 << 10;
/// Most parts that are kept registered on demand: nothing tells of those that will never be used again.
const MOST_PARTS: usize = 4096;

/// What is to be done with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Our device reads it, or writes it.
    Read,
    Write,
    /// The peer's does.
    ReadByPeer,
    WriteByPeer,
}

impl Use {
    fn writes(self) -> bool {
        matches!(self, Use::Write | Use::WriteByPeer)
    }
}

/// What the devices of a context have registered.
#[derive(Default)]
pub struct Registrations {
    cache: Option<Arc<Cache<Devices>>>,
    demand: Option<Demand>,
}

/// Memory whose pages devices fetch.
struct Demand {
    whole: Handle<Pinned>,
    parts: Arc<Cache<Devices>>,
    /// Bytes.
    longest: usize,
    /// Before anything is pinned.
    first: bool,
}

/// What the options say of the ways to register.
struct Methods {
    names: Vec<String>,
}

impl Methods {
    fn read(options: &Options) -> Self {
        let names = options.value("IB_REG_METHODS").unwrap_or_default();
        Methods { names }
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
    Methods::read(options).has("odp") && types.iter().any(|t| t == "host")
}

/// What may be kept: nothing where `UCX_IB_REG_METHODS` does not name the cache.
fn policy(options: &Options) -> Policy {
    let mut policy = Policy::read(options, "IB_");
    policy.keeps &= Methods::read(options).has("rcache");
    policy
}

impl Demand {
    /// `None`: the options want none, or a device does not know it.
    fn new(devices: &Devices, options: &Options) -> Option<Self> {
        let devices = devices.on_demand().filter(|_| allows_demand(options))?;
        let first = Methods::read(options).demands_first(true);
        let made = Self::of(devices, options, first);
        made.inspect_err(|e| log::diag!("memory cannot be used on demand: {e}"))
            .ok()
    }

    fn of(devices: Devices, options: &Options, first: bool) -> io::Result<Self> {
        let whole = Handle::alone(Extent::new(0, usize::MAX), devices.whole()?);
        let mut policy = Policy::read(options, "IB_");
        (policy.keeps, policy.insists) = (true, false);
        policy.max_regions = policy.max_regions.min(MOST_PARTS);
        let longest: Option<Size> = options.value("IB_ODP_MAX_SIZE");
        Ok(Demand {
            whole,
            parts: Cache::new(devices, policy, Watch::needless())?,
            longest: longest.and_then(Size::bytes).unwrap_or(usize::MAX),
            first,
        })
    }

    fn get(&self, ptr: *mut u8, len: usize, by: Use) -> io::Result<Handle<Pinned>> {
        match by {
            Use::Read | Use::Write => Ok(self.whole.clone()),
            Use::ReadByPeer | Use::WriteByPeer => self.parts.get(ptr as usize, len),
        }
    }
}

impl Registrations {
    fn new(ctx: &Context) -> Self {
        if ctx.ports.is_empty() {
            return Registrations::default();
        }
        let devices = Devices::of(&ctx.ports);
        // Nothing is ever pinned then, and nobody need watch.
        let demand = Demand::new(&devices, &ctx.options);
        if demand
            .as_ref()
            .is_some_and(|d| d.first && d.longest == usize::MAX)
        {
            return Registrations {
                cache: None,
                demand,
            };
        }
        let watch = unmaps::watch(&ctx.options).clone();
        let mut policy = policy(&ctx.options);
        policy.spared = demand.as_ref().map_or(0, |d| d.longest);
        let keeps = policy.keeps && watch.blind().is_none();
        let methods = Methods::read(&ctx.options);
        let cache = Cache::new(devices, policy, watch).inspect_err(|e| {
            log::error!("UCX_RCACHE_ENABLE=y, but memory cannot be kept registered: {e}");
        });
        let first = cache.is_err() || methods.demands_first(keeps);
        Registrations {
            cache: cache.ok(),
            demand: demand.map(|d| Demand { first, ..d }),
        }
    }

    /// Demand, if memory of this length may be used that way, and that now: `first`, or when all else has failed.
    fn demand(&self, len: usize, first: bool) -> Option<&Demand> {
        self.demand
            .as_ref()
            .filter(|d| len <= d.longest && d.first == first)
    }
}

impl Context {
    fn registrations(&self) -> &Registrations {
        self.pinned.get_or_init(|| Registrations::new(self))
    }

    /// Deregisters what has been unmapped. To be called now and then.
    pub fn tidy(&self) {
        if let Some(cache) = self.pinned.get().and_then(|r| r.cache.as_ref()) {
            cache.tidy();
        }
    }
}

impl Worker {
    /// Lets devices use memory of the user's. `None`: it goes by messages, as nothing does, too.
    pub fn pin(&self, ptr: *mut u8, len: usize, by: Use) -> Option<Handle<Pinned>> {
        if len == 0 {
            return None;
        }
        let all = self.ctx.registrations();
        let found = match (all.demand(len, true), &all.cache) {
            (Some(demand), _) => demand.get(ptr, len, by),
            (None, Some(cache)) => self.pin_by(cache, ptr, len),
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
    fn pin_by(
        &self,
        cache: &Arc<Cache<Devices>>,
        ptr: *mut u8,
        len: usize,
    ) -> io::Result<Handle<Pinned>> {
        let mut lookaside = self.pinned.lock();
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
    pub unsafe fn pin_all(&self, data: &Data, by: Use) -> Option<Vec<Handle<Pinned>>> {
        if let Some(ptr) = data.as_contig() {
            return Some(vec![self.pin(ptr, data.len(), by)?]);
        }
        let mut spans = Spans::new();
        // SAFETY: the caller's promise.
        let is_list = unsafe { data.spans(0, data.len(), &mut spans) };
        let pieces = spans.as_slice();
        if !is_list || spans.bytes() < data.len() || data.len() < pieces.len() * LEAST_PIECE {
            return None;
        }
        let pin = |piece: &Span| self.pin(piece.addr as *mut u8, piece.len, by);
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
            let methods = Methods::read(&options);
            let first = [true, false].map(|keeps| methods.demands_first(keeps));
            assert_eq!(first, [with_cache, without], "{text}");
        }
    }
}
