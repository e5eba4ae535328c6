//! The domains of libfabric's providers that have reliable endpoints for messages.

use super::bindings::*;
use super::fabric::{API, Libfabric, text};
use crate::sys::log;
use crate::sys::sync::OnceLock;
use std::ffi::{CString, c_int};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ptr::null_mut;
use std::sync::Arc;

/// A description that [`Libfabric::getinfo`] has returned, of one domain.
struct Info(*mut fi_info);

// SAFETY: the description is written by nothing after it was returned; providers read it when objects are opened.
unsafe impl Send for Info {}
// SAFETY: the description is written by nothing after it was returned; providers read it when objects are opened.
unsafe impl Sync for Info {}

impl Drop for Info {
    fn drop(&mut self) {
        if let Some(fabric) = Libfabric::get() {
            // SAFETY: the description is this value's own, and used by nothing any more.
            unsafe { (fabric.freeinfo)(self.0) };
        }
    }
}

/// A domain of a provider, with the attributes of its endpoints.
#[derive(Clone)]
pub struct OfiDevice {
    info: Arc<Info>,
    /// The provider: `cxi`, or `tcp;ofi_rxm` where a utility provider is layered over it.
    pub provider: String,
    /// Domain, as `UCX_NET_DEVICES` names it.
    pub domain: String,
    pub fabric: String,
    /// Bits per second; 0: unknown.
    pub speed: u64,
    /// A completion may say that data are in the peer's memory (`FI_DELIVERY_COMPLETE`). Known only of a device that
    /// was returned by [`with_rma`](Self::with_rma).
    delivers: bool,
}

/// The last version of libfabric whose provider `shm` is known to receive several messages into one buffer: with 2.5
/// workers wait for ever for messages of some lengths (`c_tests/ofi/versions`).
const MAX_SHM_MULTI_RECV: u32 = 1 << 16 | 18;

/// How this side finds out that the data of a write are in the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfiDelivery {
    /// The completion of the write says so (`FI_DELIVERY_COMPLETE`).
    Completion,
    /// A message behind the write is answered: the peer gets it when the data are there (`FI_ORDER_SAW`).
    Answer,
    /// There is no way.
    Unknown,
}

/// Where addresses of a device are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfiScope {
    /// On this host, by shared memory.
    Memory,
    /// In this network namespace of this host.
    Loopback,
    /// On the link of a network device.
    Link,
    /// On all hosts that the fabric connects.
    Fabric,
}

impl OfiDevice {
    /// The description of the device. Valid as long as `self`.
    pub fn info(&self) -> *mut fi_info {
        self.info.0
    }

    fn attributes(&self) -> &fi_info {
        // SAFETY: the description stays as long as `self`.
        unsafe { &*self.info.0 }
    }

    /// The name of the provider that drives the device, without utility providers over it.
    pub fn core_provider(&self) -> &str {
        core_provider(&self.provider)
    }

    /// Attributes of the endpoint's sending half.
    pub fn tx(&self) -> &fi_tx_attr {
        // SAFETY: a returned description has all of its attributes.
        unsafe { &*self.attributes().tx_attr }
    }

    /// Attributes of the endpoint's receiving half.
    pub fn rx(&self) -> &fi_rx_attr {
        // SAFETY: a returned description has all of its attributes.
        unsafe { &*self.attributes().rx_attr }
    }

    /// Attributes of the endpoint.
    pub fn ep(&self) -> &fi_ep_attr {
        // SAFETY: a returned description has all of its attributes.
        unsafe { &*self.attributes().ep_attr }
    }

    /// Whether registration of the requested kind (`FI_MR_*`) is required.
    pub fn needs(&self, mr_mode: u32) -> bool {
        // SAFETY: a returned description has all of its attributes.
        let mode = unsafe { (*self.attributes().domain_attr).mr_mode };
        mode as u32 & mr_mode != 0
    }

    /// Whether messages to one peer arrive in the order in which they were sent.
    pub fn is_ordered(&self) -> bool {
        let order = u64::from(FI_ORDER_SAS);
        self.tx().msg_order & self.rx().msg_order & order != 0
    }

    /// Whether its endpoints receive several messages into one buffer, and release it behind the last write into it.
    pub fn has_multi_recv(&self) -> bool {
        let caps = self.attributes().caps & self.rx().caps;
        let fabric = Libfabric::get();
        // SAFETY: the function has no arguments and no condition.
        let version = fabric.map_or(0, |fabric| unsafe { (fabric.version)() });
        let is_recent_shm = self.ep().protocol == FI_PROTO_SHM && version > MAX_SHM_MULTI_RECV;
        caps & u64::from(FI_MULTI_RECV) != 0
            && !is_recent_shm
            && !releases_early(self.ep().protocol, self.core_provider())
    }

    /// Whether its endpoints access memory of peers, and peers that of this process.
    pub fn has_rma(&self) -> bool {
        let all = FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
        // A description without the modifiers has all of them.
        let (caps, modifiers) = (self.attributes().caps, u64::from(all & !FI_RMA));
        caps & u64::from(FI_RMA) != 0
            && (caps & modifiers == modifiers || caps & modifiers == 0)
            && !self.needs(FI_MR_RAW | FI_MR_RMA_EVENT)
    }

    /// Whether its endpoints may have atomic operations on memory of peers.
    pub fn has_atomics(&self) -> bool {
        self.has_rma() && self.attributes().caps & u64::from(FI_ATOMIC) != 0
    }

    /// How this side finds out that the data of a write are in the peer's memory.
    pub fn delivery(&self) -> OfiDelivery {
        let order = self.tx().msg_order & self.rx().msg_order;
        match (self.delivers, order & u64::from(FI_ORDER_SAW) != 0) {
            (true, _) => OfiDelivery::Completion,
            (false, true) => OfiDelivery::Answer,
            (false, false) => OfiDelivery::Unknown,
        }
    }

    /// Bytes of a key of registered memory.
    pub fn key_bytes(&self) -> usize {
        // SAFETY: a returned description has all of its attributes.
        unsafe { (*self.attributes().domain_attr).mr_key_size }
    }

    /// The device with access to memory of peers, if its provider has that; else the device itself. Asks the provider
    /// alone.
    pub fn with_rma(self) -> OfiDevice {
        let Some(fabric) = Libfabric::get() else {
            return self;
        };
        // Whether a completion may say that data have arrived, and whether there are atomic operations.
        let wanted = [(true, true), (true, false), (false, true), (false, false)];
        let found = wanted.into_iter().find_map(|(delivers, atomics)| {
            let hints = self.hints_with_rma(fabric, delivers, atomics)?;
            let devices = list(fabric, &hints).ok()?;
            let same = |device: &OfiDevice| {
                let names = |device: &OfiDevice| {
                    let OfiDevice {
                        provider,
                        domain,
                        fabric,
                        ..
                    } = device;
                    [provider, domain, fabric].map(String::clone)
                };
                let numbers = |device: &OfiDevice| (device.ep().protocol, device.address_format());
                names(device) == names(&self) && numbers(device) == numbers(&self)
            };
            let found = devices
                .into_iter()
                .find(|device| same(device) && device.has_rma())?;
            Some((found, delivers))
        });
        let Some((mut found, delivers)) = found else {
            return self;
        };
        found.delivers = delivers;
        found
    }

    /// A description of the device with access to memory of peers. `None`: there is no memory for it.
    fn hints_with_rma(&self, fabric: &Libfabric, delivers: bool, atomics: bool) -> Option<Info> {
        let hints = hints(fabric)?;
        // SAFETY: the description was made with all of its attributes, and nothing else has it; it frees its strings,
        // of which it has none yet.
        unsafe {
            let info = &mut *hints.0;
            info.caps |= u64::from(FI_RMA | if atomics { FI_ATOMIC } else { 0 });
            if delivers {
                (*info.tx_attr).op_flags = FI_DELIVERY_COMPLETE.into();
            }
            let copy = |text: &str| {
                let text = CString::new(text).unwrap_or_default();
                libc::strdup(text.as_ptr())
            };
            (*info.fabric_attr).prov_name = copy(&self.provider);
            (*info.domain_attr).name = copy(&self.domain);
        }
        Some(hints)
    }

    /// Format of addresses (`FI_SOCKADDR_IN` and others).
    pub fn address_format(&self) -> u32 {
        self.attributes().addr_format
    }

    /// Where addresses of the device are valid.
    pub fn scope(&self) -> OfiScope {
        if self.ep().protocol == FI_PROTO_SHM {
            return OfiScope::Memory;
        }
        let info = self.attributes();
        if info.src_addr.is_null() {
            return OfiScope::Fabric;
        }
        let bytes = |len| {
            // SAFETY: the source address has `src_addrlen` bytes.
            let all = unsafe { std::slice::from_raw_parts(info.src_addr.cast(), info.src_addrlen) };
            all.get(..len)
        };
        match info.addr_format {
            FI_SOCKADDR_IN => bytes(8).map_or(OfiScope::Fabric, scope_of_v4),
            FI_SOCKADDR_IN6 => bytes(24).map_or(OfiScope::Fabric, scope_of_v6),
            _ => OfiScope::Fabric,
        }
    }
}

/// Scope of a `sockaddr_in`: the address is at offset 4.
fn scope_of_v4(sockaddr: &[u8]) -> OfiScope {
    let ip = sockaddr[4..].first_chunk().map(|&ip| Ipv4Addr::from(ip));
    match ip {
        Some(ip) if ip.is_loopback() => OfiScope::Loopback,
        Some(ip) if ip.is_link_local() => OfiScope::Link,
        _ => OfiScope::Fabric,
    }
}

/// Scope of a `sockaddr_in6`: the address is at offset 8.
fn scope_of_v6(sockaddr: &[u8]) -> OfiScope {
    let ip = sockaddr[8..].first_chunk().map(|&ip| Ipv6Addr::from(ip));
    match ip {
        Some(ip) if ip.is_loopback() => OfiScope::Loopback,
        Some(ip) if ip.is_unicast_link_local() => OfiScope::Link,
        _ => OfiScope::Fabric,
    }
}

/// The provider that drives the device, of a name that may have utility providers: `verbs` of `verbs;ofi_rxm`.
pub fn core_provider(name: &str) -> &str {
    let mut parts = name.split(';');
    let is_core = |part: &&str| !part.starts_with("ofi_");
    parts.find(is_core).unwrap_or(name)
}

/// Whether a provider reports that a buffer of several messages is released (`FI_MULTI_RECV`) while it still writes a
/// message into it: posted again, the buffer gets messages that are written over one another.
///
/// `ofi_rxm` fetches long messages (more than 16 KiB) later, and releases the buffer with a short one behind them
/// (libfabric 1.17; `c_tests/ofi/late_rendezvous.c`). `tcp` without it (`net` in 1.17) releases it with the message
/// that has the last place, whatever other connections still write (before libfabric 1.20; its pull request 9420).
fn releases_early(protocol: u32, core_provider: &str) -> bool {
    matches!(protocol, FI_PROTO_RXM | FI_PROTO_RXM_TCP) || matches!(core_provider, "tcp" | "net")
}

/// All devices of this host, as the providers prefer them. They are found once: the providers that libfabric loads take
/// some hundred milliseconds to look for their hardware.
pub fn all() -> &'static [OfiDevice] {
    static DEVICES: OnceLock<Vec<OfiDevice>> = OnceLock::new();
    DEVICES.get_or_init(find)
}

fn find() -> Vec<OfiDevice> {
    let Some(fabric) = Libfabric::get() else {
        log::diag!("libfabric.so.1 of version 1.15 or later was not found");
        return Vec::new();
    };
    let Some(hints) = hints(fabric) else {
        return Vec::new();
    };
    list(fabric, &hints).unwrap_or_else(|answer| {
        let why = fabric.error_text(answer);
        log::diag!("libfabric has no provider with reliable endpoints for messages: {why}");
        Vec::new()
    })
}

/// What is asked of a provider, at least. `None`: there is no memory for it.
fn hints(fabric: &Libfabric) -> Option<Info> {
    // SAFETY: null asks for an empty description.
    let hints = Info(unsafe { (fabric.dupinfo)(std::ptr::null()) });
    if hints.0.is_null() {
        return None;
    }
    // SAFETY: the description was made with all of its attributes, and nothing else has it.
    unsafe { want(&mut *hints.0) };
    Some(hints)
}

/// The devices that are as `hints` says, as the providers prefer them.
///
/// # Errors
/// The number of libfabric's error: there are none.
fn list(fabric: &Libfabric, hints: &Info) -> Result<Vec<OfiDevice>, c_int> {
    let mut first = null_mut();
    // SAFETY: the hints are a complete description; the list is returned through `first`.
    let answer = unsafe {
        (fabric.getinfo)(
            API,
            std::ptr::null(),
            std::ptr::null(),
            0,
            hints.0,
            &mut first,
        )
    };
    if answer != 0 {
        return Err(answer);
    }
    let all = Info(first);
    let mut devices = Vec::new();
    let mut at = all.0;
    while !at.is_null() {
        // SAFETY: an element of the list, which `all` frees; each description is copied.
        unsafe {
            devices.extend(device(fabric, at));
            at = (*at).next;
        }
    }
    Ok(devices)
}

/// What is asked of a provider.
///
/// # Safety
/// The description has all of its attributes.
unsafe fn want(hints: &mut fi_info) {
    hints.caps = FI_MSG.into();
    hints.mode = FI_CONTEXT | FI_CONTEXT2;
    // SAFETY: the caller's description.
    unsafe {
        (*hints.ep_attr).type_ = FI_EP_RDM;
        let domain = &mut *hints.domain_attr;
        domain.mr_mode =
            (FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT)
                as i32;
        // A worker has a domain of its own, and a lock for it where threads share the worker.
        domain.threading = FI_THREAD_DOMAIN;
        domain.resource_mgmt = FI_RM_ENABLED;
    }
}

/// A copy of a description. `None`: it is not complete, or there is no memory.
///
/// # Safety
/// `info` is an element of a list that `getinfo` has returned.
unsafe fn device(fabric: &Libfabric, info: *mut fi_info) -> Option<OfiDevice> {
    // SAFETY: the caller's description; the strings stay as long as it does.
    unsafe {
        let (attr, domain) = ((*info).fabric_attr.as_ref()?, (*info).domain_attr.as_ref()?);
        let complete = !(*info).tx_attr.is_null() && !(*info).rx_attr.is_null();
        if !complete || (*info).ep_attr.is_null() {
            return None;
        }
        let link = (*info).nic.as_ref().and_then(|nic| nic.link_attr.as_ref());
        let copy = (fabric.dupinfo)(info);
        if copy.is_null() {
            return None;
        }
        // Operations say by themselves what their completions mean.
        (*(*copy).tx_attr).op_flags &= !u64::from(FI_DELIVERY_COMPLETE);
        Some(OfiDevice {
            info: Arc::new(Info(copy)),
            provider: text(attr.prov_name),
            domain: text(domain.name),
            fabric: text(attr.name),
            speed: link.map_or(0, |link| link.speed as u64),
            delivers: false,
        })
    }
}
