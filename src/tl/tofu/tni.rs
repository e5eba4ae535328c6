//! Tofu network interfaces (TNIs) of this node: six, each with control queues of its own.

use super::amo::{AmoCaps, AmoVerb};
use super::utofu::{self, TniCaps, TniId, Utofu, code_name};
use crate::options::DeviceFilter;
use crate::sys::log;

/// A TNI.
#[derive(Clone, Debug)]
pub struct Tni {
    pub id: TniId,
    /// `tofu0`, `tofu1`, ...
    pub name: String,
    pub caps: TniCaps,
}

/// Bytes that a descriptor carries: frames of up to this length need no buffer.
pub const PIGGYBACK: usize = 32;

/// The TNIs that may be used; none, without a message, where the host has no Tofu interconnect.
pub fn usable(filter: &DeviceFilter) -> Vec<Tni> {
    let Some(lib) = Utofu::get() else {
        return Vec::new();
    };
    let named = all(lib).into_iter().map(|id| (id, format!("tofu{id}")));
    let wanted = named.filter(|(_, name)| filter.is_all() || filter.allows(name));
    wanted
        .filter_map(|(id, name)| {
            let caps = query(lib, id)?;
            let has_add = AmoCaps::by_all([caps].iter()).has(AmoVerb::Add);
            let enough = caps.max_piggyback_size >= PIGGYBACK && has_add;
            if !enough {
                log::diag!(
                    "{name} is not used: its descriptors carry less than {PIGGYBACK} bytes, or it has no \
                     atomic addition"
                );
            }
            enough.then_some(Tni { id, name, caps })
        })
        .collect()
}

fn all(lib: &Utofu) -> Vec<TniId> {
    let (mut ids, mut n) = (std::ptr::null_mut(), 0);
    // SAFETY: both results are written to local variables.
    let code = unsafe { (lib.get_onesided_tnis)(&mut ids, &mut n) };
    if code != utofu::SUCCESS || ids.is_null() {
        log::diag!("no network interface of Tofu: {} ({code})", code_name(code));
        return Vec::new();
    }
    // SAFETY: the library returned `n` ids, in memory that the caller frees.
    unsafe {
        let found = std::slice::from_raw_parts(ids, n).to_vec();
        libc::free(ids.cast());
        found
    }
}

fn query(lib: &Utofu, id: TniId) -> Option<TniCaps> {
    let mut caps = std::ptr::null_mut();
    // SAFETY: the result is written to a local variable.
    let code = unsafe { (lib.query_onesided_caps)(id, &mut caps) };
    // SAFETY: a structure of the library, which is never freed.
    (code == utofu::SUCCESS && !caps.is_null()).then(|| unsafe { *caps })
}
