//! Path of a put or get: what moves the bytes. The only place that decides it; the posts, the hot path and the printed
//! protocols call these functions.

use crate::engine::peer::Peer;
use crate::engine::rkey::Rkey;
use crate::engine::worker::Worker;
use crate::tl::contract::QpTransport;
use crate::tl::rma::RmaDevice;
use crate::wire::stats::StatProtocol;

/// Path of an RMA operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RmaPath {
    /// Loads and stores: the memory is mapped here, at this address.
    Mapped(*mut u8),
    /// The kernel copies (CMA).
    Cma,
    /// An adapter of this kind accesses the memory.
    Adapter(RmaDevice),
    /// The peer executes a message.
    Message,
}

impl RmaPath {
    /// The adapter of the path, if it is one by an adapter.
    #[inline(always)]
    pub fn device(self) -> Option<RmaDevice> {
        match self {
            RmaPath::Adapter(device) => Some(device),
            RmaPath::Mapped(_) | RmaPath::Cma | RmaPath::Message => None,
        }
    }

    /// The local address of the memory, if it is mapped here.
    pub fn mapped(self) -> Option<*mut u8> {
        match self {
            RmaPath::Mapped(local) => Some(local),
            RmaPath::Cma | RmaPath::Adapter(_) | RmaPath::Message => None,
        }
    }

    /// The path for the local data: an adapter accesses a list of pieces, or packed data, only in place. `contig`: the
    /// data are contiguous; `registered`: they are registered for the adapter.
    pub fn for_data(self, contig: bool, registered: bool) -> RmaPath {
        match self {
            RmaPath::Adapter(_) if !contig && !registered => RmaPath::Message,
            path => path,
        }
    }

    /// The statistics entry that counts it.
    pub fn counted(self) -> StatProtocol {
        match self {
            RmaPath::Mapped(_) => StatProtocol::RmaMapped,
            RmaPath::Cma | RmaPath::Adapter(_) => StatProtocol::RmaCopy,
            RmaPath::Message => StatProtocol::RmaMessages,
        }
    }
}

/// The fastest path to memory that is mapped here, that an adapter reaches, or that the kernel may copy. `cma` is
/// called only if nothing faster reaches it.
#[inline(always)]
pub fn path(
    mapped: Option<*mut u8>,
    adapter: Option<RmaDevice>,
    cma: impl FnOnce() -> bool,
) -> RmaPath {
    match (mapped, adapter) {
        (Some(local), _) => RmaPath::Mapped(local),
        (None, Some(adapter)) => RmaPath::Adapter(adapter),
        (None, None) if cma() => RmaPath::Cma,
        (None, None) => RmaPath::Message,
    }
}

/// The adapter that accesses a peer's memory. `keyed`: the key has rkeys, and an HCA reaches the peer; `resolved`: the
/// adapter for which the key was resolved for the peer. Not both: a key is resolved for a peer whose target is a VCQ or
/// an endpoint of libfabric, to which no queue pair leads.
#[inline(always)]
pub fn adapter(
    keyed: impl FnOnce() -> bool,
    resolved: impl FnOnce() -> Option<RmaDevice>,
) -> Option<RmaDevice> {
    match keyed() {
        true => Some(RmaDevice::Ib),
        false => resolved(),
    }
}

/// [`path`] of `len` bytes as far as the key alone decides it, for the hot path, which has checked that no fence has to
/// be waited for. [`RmaPath::Message`]: the peer decides it too.
#[inline(always)]
pub fn by_key(rkey: &Rkey, addr: u64, len: usize) -> RmaPath {
    // The hot path posts nothing by libfabric.
    let steered = || rkey.tl.has_stadd(addr, len).then_some(RmaDevice::Tofu);
    path(rkey.local(addr, len), adapter(|| false, steered), || false)
}

/// Whether an HCA reaches memory of a peer for which there are rkeys: by an RC queue pair to the peer that exists, or
/// will be connected, or by one on a rail. `len`: bytes of the access.
#[inline(always)]
pub fn ib_reaches(worker: &Worker, peer: &Peer, len: usize) -> bool {
    let is_zcopy = || worker.ctx.tl.ib.is_in_place(len);
    peer.inbox.is_none() && queues_reach(peer.qp_transport(), || peer.fails_over() && is_zcopy())
}

/// [`ib_reaches`] for a peer that is not on this host. `on_rail`: a rail's queue pair may access the memory.
#[inline(always)]
fn queues_reach(transport: QpTransport, on_rail: impl FnOnce() -> bool) -> bool {
    match transport {
        QpTransport::Own | QpTransport::Unknown => true,
        QpTransport::Datagrams => on_rail(),
        QpTransport::None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    #[test]
    fn the_fastest_path_is_selected() {
        let local = ptr::without_provenance_mut(0x1000);
        let (ib, tofu) = (Some(RmaDevice::Ib), Some(RmaDevice::Tofu));
        let by = RmaPath::Adapter;
        let rows = [
            (None, None, false, RmaPath::Message),
            (None, None, true, RmaPath::Cma),
            (None, ib, false, by(RmaDevice::Ib)),
            (None, ib, true, by(RmaDevice::Ib)),
            (None, tofu, false, by(RmaDevice::Tofu)),
            (None, tofu, true, by(RmaDevice::Tofu)),
            (Some(local), None, true, RmaPath::Mapped(local)),
            (Some(local), ib, true, RmaPath::Mapped(local)),
            (Some(local), tofu, false, RmaPath::Mapped(local)),
        ];
        for (mapped, adapter, cma, expected) in rows {
            assert_eq!(path(mapped, adapter, || cma), expected);
        }
        // `cma` has effects: it is called only where CMA is selected.
        path(None, ib, || unreachable!("an adapter is faster"));
    }

    #[test]
    fn an_adapter_needs_a_key() {
        let by = |keyed, resolved| adapter(|| keyed, || resolved);
        assert_eq!(by(false, None), None);
        assert_eq!(by(true, None), Some(RmaDevice::Ib));
        for device in [RmaDevice::Tofu, RmaDevice::Ofi] {
            assert_eq!(by(false, Some(device)), Some(device));
        }
        let reach = |transport| [true, false].map(|rail| queues_reach(transport, || rail));
        assert_eq!(reach(QpTransport::None), [false, false]);
        assert_eq!(reach(QpTransport::Unknown), [true, true]);
        assert_eq!(reach(QpTransport::Own), [true, true]);
        assert_eq!(reach(QpTransport::Datagrams), [true, false]);
    }

    #[test]
    fn adapters_access_only_contiguous_or_registered_data() {
        for path in [RmaDevice::Ib, RmaDevice::Tofu, RmaDevice::Ofi].map(RmaPath::Adapter) {
            assert_eq!(path.for_data(true, false), path);
            assert_eq!(path.for_data(false, true), path);
            assert_eq!(path.for_data(false, false), RmaPath::Message);
        }
        for path in [
            RmaPath::Mapped(ptr::null_mut()),
            RmaPath::Cma,
            RmaPath::Message,
        ] {
            assert_eq!(path.for_data(false, false), path);
        }
    }
}
