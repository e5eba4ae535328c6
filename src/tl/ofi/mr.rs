//! Registration of user memory that a provider accesses in place (zcopy), at either end: a registration cache for the
//! domain of a worker.

use super::address::{MAX_INTERFACES, OfiTarget};
use super::object::{OfiAccess, OfiRegistered};
use super::rail::MIN_SHARED;
use super::shared_ep::OfiSharedEp;
use crate::options::Options;
use crate::sys::cma::IoSpan;
use crate::sys::lock::MtLock;
use crate::sys::log;
use crate::sys::mem_monitor;
use crate::sys::regcache::{self, CachePolicy, Handle, LocalCache, RegCache};
use crate::sys::sync::OnceLock;
use crate::tl::rma::{MrKey, MrKeys};
use std::ffi::c_void;
use std::io;
use std::ptr::null_mut;
use std::sync::{Arc, Weak};

/// Registered user memory. Deregistered when it is dropped, or with the domain, by any thread that does not hold the
/// lock of the interface.
pub struct OfiMr {
    ep: Weak<OfiSharedEp>,
    registered: OfiRegistered,
    access: OfiAccess,
}

impl OfiMr {
    /// Registers memory in the domain of an endpoint.
    ///
    /// # Errors
    /// The provider's error.
    ///
    /// # Safety
    /// `len` bytes at `base` stay mapped as long as the value, or no operation uses the registration after that.
    pub unsafe fn new(
        ep: &Arc<OfiSharedEp>,
        base: *mut u8,
        len: usize,
        access: OfiAccess,
    ) -> io::Result<OfiMr> {
        Ok(OfiMr {
            // SAFETY: the caller's memory.
            registered: unsafe { ep.register(base, len, access)? },
            ep: Arc::downgrade(ep),
            access,
        })
    }

    /// The key by which peers access the memory.
    pub fn key(&self) -> u64 {
        self.registered.key
    }

    /// What operations on the memory have to pass.
    pub fn desc(&self) -> *mut c_void {
        self.registered.desc
    }
}

impl Drop for OfiMr {
    fn drop(&mut self) {
        if let Some(ep) = self.ep.upgrade() {
            ep.deregister(self.registered.index);
        }
    }
}

/// Registers memory in the domain of an endpoint.
pub struct DomainRegistrar(Weak<OfiSharedEp>);

impl regcache::Registrar for DomainRegistrar {
    type Region = OfiMr;

    fn register(&self, addr: usize, len: usize) -> io::Result<OfiMr> {
        let ep = self.0.upgrade().ok_or(io::ErrorKind::NotFound)?;
        let register = |access| {
            // SAFETY: the holder of a handle keeps the memory mapped, or ensures that nothing uses the registration any
            // more.
            unsafe { OfiMr::new(&ep, addr as *mut u8, len, access) }
        };
        // Read-only memory, such as constants, can be sent, too.
        match register(OfiAccess::All) {
            Err(e) if is_refused(&e) => register(OfiAccess::ReadOnly),
            registered => registered,
        }
    }
}

/// Whether the error means that the memory does not allow the access, as for pages that are not writable.
fn is_refused(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(libc::EFAULT | libc::EACCES | libc::EPERM | libc::EINVAL)
    )
}

/// The registration cache of a domain, created on first use.
pub struct OfiMrCache {
    ep: Weak<OfiSharedEp>,
    cache: OnceLock<Option<Arc<RegCache<DomainRegistrar>>>>,
    local: MtLock<Option<LocalCache<DomainRegistrar>>>,
}

impl OfiMrCache {
    /// `mt`: calls of several threads may overlap.
    pub fn new(ep: &Arc<OfiSharedEp>, mt: bool) -> OfiMrCache {
        OfiMrCache {
            ep: Arc::downgrade(ep),
            cache: OnceLock::new(),
            local: MtLock::new(mt, None),
        }
    }

    /// The registration of user memory. `writes`: operations write the memory. `None`: it cannot be registered, and its
    /// data are copied.
    pub fn register(
        &self,
        (ptr, len): (*mut u8, usize),
        writes: bool,
        options: &Options,
    ) -> Option<Handle<OfiMr>> {
        if len == 0 {
            return None;
        }
        let make = || {
            let mut policy = CachePolicy::of_all(options);
            // Memory that cannot be registered is copied: that is not logged.
            policy.spared = usize::MAX;
            let watch = mem_monitor::watch(options).clone();
            RegCache::new(DomainRegistrar(self.ep.clone()), policy, watch)
                .inspect_err(|e| log::error!("memory cannot be kept registered: {e}"))
                .ok()
        };
        let cache = self.cache.get_or_init(make).as_ref()?;
        let mut local = self.local.lock();
        let local = local.get_or_insert_with(|| cache.lookaside());
        let refused = match local.get(ptr as usize, len) {
            Ok(memory) if !writes || memory.region().access == OfiAccess::All => {
                return Some(memory);
            }
            Ok(_) => "it cannot be written".to_owned(),
            Err(e) => e.to_string(),
        };
        log::diag!("{len} bytes at {ptr:p} are not registered, and are copied: {refused}");
        None
    }

    /// Deregisters unmapped memory. Called periodically.
    pub fn trim(&self) {
        if let Some(cache) = self.cache.get().and_then(Option::as_ref) {
            cache.tidy();
        }
    }
}

/// Registrations of one piece of memory, in the domains of some interfaces of the worker.
type PieceMrs = [Option<Handle<OfiMr>>; MAX_INTERFACES];

/// The memory of a transfer in place: contiguous, or a list of pieces.
#[derive(Default)]
pub struct OfiZcopy {
    /// Registrations of all of it, or of the first piece.
    first: PieceMrs,
    /// Those of the other pieces, in their order; empty if no interface needs them.
    others: Vec<PieceMrs>,
    /// The peer's key for the rail, of a message that this side reads.
    pub(super) rail_key: Option<MrKey>,
    /// Parts that a rail, or a connection with failover, has not read before it failed.
    pub(super) again: Vec<Unread>,
    /// Number of the peer's interface by which a connection with failover reads.
    pub(super) read_by: Option<u16>,
}

/// A part of a message that was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unread {
    pub offset: u64,
    /// Bytes.
    pub len: usize,
}

impl OfiZcopy {
    /// The rails of both sides read parts of the message, by this key.
    pub fn set_rail_key(&mut self, key: MrKey) {
        self.rail_key = Some(key);
    }

    /// `len` bytes from `offset` on were not read, because a connection has failed: they are to be read another way.
    pub fn post_again(&mut self, offset: u64, len: usize) {
        self.again.push(Unread { offset, len });
    }

    /// What operations of this interface on a piece of the memory, by its number, have to pass. `None`: it has to be
    /// registered for them, and is not.
    pub fn desc(&self, ep: &Arc<OfiSharedEp>, piece: usize) -> Option<*mut c_void> {
        let is_here = |mr: &&Handle<OfiMr>| mr.region().ep.as_ptr() == Arc::as_ptr(ep);
        let registered = match piece {
            0 => Some(&self.first),
            n => self.others.get(n - 1),
        };
        match registered.and_then(|piece| piece.iter().flatten().find(is_here)) {
            Some(mr) => Some(mr.region().desc()),
            None => (!ep.needs_local).then_some(null_mut()),
        }
    }
}

/// The domain of an interface, as all threads of a worker use it to register memory. Does not keep the endpoint open.
pub struct OfiDomain {
    pub mrs: Arc<OfiMrCache>,
    /// Operations of this side pass a registration of their memory (`FI_MR_LOCAL`).
    pub needs_local: bool,
    /// Operations of peers pass addresses of this process (`FI_MR_VIRT_ADDR`).
    pub is_virtual: bool,
    /// Pieces of local memory of one operation on memory of a peer, at most.
    pub max_iov: usize,
    /// Number of the interface in the registry.
    pub number: u16,
}

/// Registers user memory for the interfaces of a worker. `None` of its functions: its data go by message.
pub struct OfiRegistrar<'a> {
    /// Those of its interfaces, in the order of its address; `None`: the interface accesses no memory of peers.
    pub domains: &'a [Option<OfiDomain>],
    /// The shortest memory that is accessed in place, bytes.
    pub zcopy: usize,
    pub options: &'a Options,
}

impl OfiRegistrar<'_> {
    /// Memory for operations of this side, by whichever interface leads to the peer. `writes`: they write it.
    pub fn for_own(&self, memory: (*mut u8, usize), writes: bool) -> Option<OfiZcopy> {
        Some(OfiZcopy {
            first: self.register_own(memory, writes)?,
            ..OfiZcopy::default()
        })
    }

    /// Pieces of memory for operations of this side, by whichever interface leads to the peer. `writes`: they write
    /// them. `None`, too, if the pieces are so short that to copy them costs less.
    pub fn pieces_for_own(&self, pieces: &[IoSpan], writes: bool) -> Option<OfiZcopy> {
        let domains = || self.domains.iter().flatten();
        let max_iov = domains().map(|domain| domain.max_iov).min()?;
        let bytes: usize = pieces.iter().map(|piece| piece.len).sum();
        // An operation has at least as many bytes as one on contiguous memory, on average.
        if bytes < pieces.len().div_ceil(max_iov) * self.zcopy {
            return None;
        }
        let (head, tail) = pieces.split_first()?;
        let register =
            |piece: &IoSpan| self.register_own((piece.addr as *mut u8, piece.len), writes);
        let first = register(head)?;
        let others = if domains().any(|domain| domain.needs_local) {
            tail.iter().map(register).collect::<Option<_>>()?
        } else {
            Vec::new()
        };
        Some(OfiZcopy {
            first,
            others,
            ..OfiZcopy::default()
        })
    }

    /// Memory for a message that a peer at `target` reads, and the keys for that: for the interface that reaches it,
    /// and, if the message is long, for the rail.
    pub fn offer(
        &self,
        target: &OfiTarget,
        memory: (*mut u8, usize),
    ) -> Option<(OfiZcopy, MrKeys)> {
        let (mut zcopy, first) = self.for_peer(target.first.iface, memory, false)?;
        let rail = target.rail.as_ref().filter(|_| memory.1 >= MIN_SHARED);
        let rail = rail.and_then(|rail| self.for_peer(rail.iface, memory, false));
        let rail = rail.map(|(mut registered, key)| {
            zcopy.first[1] = registered.first[0].take();
            key
        });
        Some((zcopy, MrKeys { first, rail }))
    }

    /// Registers memory where operations of this side need that. `None`: no interface accesses it.
    fn register_own(&self, memory: (*mut u8, usize), writes: bool) -> Option<PieceMrs> {
        let mut registered = PieceMrs::default();
        let mut can_use = false;
        for (domain, mr) in self.domains.iter().zip(&mut registered) {
            let Some(domain) = domain else { continue };
            if domain.needs_local {
                *mr = domain.mrs.register(memory, writes, self.options);
            }
            can_use |= mr.is_some() || !domain.needs_local;
        }
        can_use.then_some(registered)
    }

    /// Memory for an operation of the peer that the interface with this index reaches, and the key for that. `writes`:
    /// it writes the memory.
    pub fn for_peer(
        &self,
        ep: usize,
        memory: (*mut u8, usize),
        writes: bool,
    ) -> Option<(OfiZcopy, MrKey)> {
        let domain = self.domains.get(ep)?.as_ref()?;
        let mr = domain.mrs.register(memory, writes, self.options)?;
        let base = if domain.is_virtual {
            0
        } else {
            mr.extent().start as u64
        };
        let key = MrKey::new(mr.region().key(), base, domain.number)?;
        let mut zcopy = OfiZcopy::default();
        zcopy.first[0] = Some(mr);
        Some((zcopy, key))
    }
}
