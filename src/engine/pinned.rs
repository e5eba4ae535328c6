//! Memory of the user's that devices read and write in place: registered for as long as a request needs it, and kept for the
//! next one.

use super::context::Context;
use super::datatype::Data;
use super::worker::Worker;
use crate::options::Options;
use crate::sys::cma::{Span, Spans};
use crate::sys::log;
use crate::sys::regcache::{Cache, Handle, Policy};
use crate::sys::unmaps;
use crate::tl::ib::pinned::{Devices, Pinned};
use std::sync::Arc;

/// Pieces of a list that are shorter on average are copied, bytes.
const LEAST_PIECE: usize = 4 << 10;

/// What may be kept: nothing where `UCX_IB_REG_METHODS` does not name the cache.
fn policy(options: &Options) -> Policy {
    let methods: Vec<String> = options.value("IB_REG_METHODS").unwrap_or_default();
    let mut policy = Policy::read(options, "IB_");
    policy.keeps &= methods.iter().any(|method| method == "rcache");
    policy
}

impl Context {
    /// What the devices have registered; `None`: they shall not.
    fn registrations(&self) -> Option<&Arc<Cache<Devices>>> {
        let make = || {
            let devices = Devices::of(&self.ports);
            let watch = unmaps::watch(&self.options).clone();
            let cache = Cache::new(devices, policy(&self.options), watch);
            let made = cache.inspect_err(|e| {
                log::error!("UCX_RCACHE_ENABLE=y, but memory cannot be kept registered: {e}");
            });
            made.ok()
        };
        if self.ports.is_empty() {
            return None;
        }
        self.pinned.get_or_init(make).as_ref()
    }

    /// Deregisters what has been unmapped. To be called now and then.
    pub fn tidy(&self) {
        if let Some(Some(cache)) = self.pinned.get() {
            cache.tidy();
        }
    }
}

impl Worker {
    /// Registers memory of the user's; `written`: devices may write it. `None`: it goes by messages, as nothing does, too.
    pub fn pin(&self, ptr: *mut u8, len: usize, written: bool) -> Option<Handle<Pinned>> {
        let cache = self.ctx.registrations().filter(|_| len > 0)?;
        let mut lookaside = self.pinned.lock();
        let found = lookaside
            .get_or_insert_with(|| cache.lookaside())
            .get(ptr as usize, len);
        drop(lookaside);
        let refused = match found {
            Ok(memory) if memory.region().is_writable() || !written => return Some(memory),
            Ok(_) => "it cannot be written".to_owned(),
            Err(e) => e.to_string(),
        };
        log::diag!("{len} bytes at {ptr:p} are not registered, and are copied: {refused}");
        None
    }
}

impl Worker {
    /// The same of all pieces of a request's data that are not empty, in their order. Many or short ones are copied: to register
    /// them costs more.
    ///
    /// # Safety
    /// A list of pieces is still the user's promise.
    pub unsafe fn pin_all(&self, data: &Data, written: bool) -> Option<Vec<Handle<Pinned>>> {
        if let Some(ptr) = data.as_contig() {
            return Some(vec![self.pin(ptr, data.len(), written)?]);
        }
        let mut spans = Spans::new();
        // SAFETY: the caller's promise.
        let is_list = unsafe { data.spans(0, data.len(), &mut spans) };
        let pieces = spans.as_slice();
        if !is_list || spans.bytes() < data.len() || data.len() < pieces.len() * LEAST_PIECE {
            return None;
        }
        let pin = |piece: &Span| self.pin(piece.addr as *mut u8, piece.len, written);
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
}
