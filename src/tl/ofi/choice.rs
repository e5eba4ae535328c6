//! Which devices are used: `UCX_TLS`, `UCX_OFI_PROVIDER`, `UCX_NET_DEVICES`, and the hardware of the host.

use super::buffers::MAX_PACKET;
use super::device::{self, OfiDevice, OfiScope, core_provider};
use super::fabric_hash::fabric_hash;
use crate::options::Options;
use std::path::Path;

/// Providers that `UCX_TLS` names, too.
pub const NAMED: [&str; 4] = ["cxi", "efa", "opx", "psm3"];

/// Providers that are used only if they are named: others carry their messages, or rucp does itself.
const ONLY_IF_NAMED: [&str; 5] = ["tcp", "net", "udp", "shm", "sockets"];

/// What `UCX_OFI_PROVIDER` has to be for any provider.
const ANY: &str = "auto";

/// The providers that may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OfiProviders {
    /// None: libfabric is not opened.
    None,
    /// These alone, by the names of their cores or their full names.
    Only(Vec<String>),
    /// All but those that have to be named.
    Any,
}

impl OfiProviders {
    /// The providers that these options allow. `asked`: the value of `FI_PROVIDER`, which restricts libfabric itself;
    /// `has_hardware`: whether the host has a device of a provider of [`NAMED`].
    pub fn new(
        options: &Options,
        asked: Option<&str>,
        has_hardware: impl Fn(&str) -> bool,
    ) -> OfiProviders {
        let list = |text: &str| -> Vec<String> {
            let names = text.split(',').map(str::trim);
            names.filter(|n| !n.is_empty()).map(String::from).collect()
        };
        let tls = &options.tls;
        let provider = options.ofi.provider.trim();
        let chosen = (provider != ANY && !provider.is_empty()).then(|| list(provider));
        if tls.allows("ofi") && (tls.is_selection() || chosen.is_some()) {
            let asked = asked.filter(|text| !text.starts_with('^')).map(list);
            return match chosen.or(asked.filter(|names| !names.is_empty())) {
                Some(names) => OfiProviders::Only(names),
                None => OfiProviders::Any,
            };
        }
        // By itself a provider is used where its hardware is.
        let allowed = NAMED.into_iter().filter(|name| {
            let named = tls.is_selection() || tls.allows("ofi") && has_hardware(name);
            tls.allows(name) && named
        });
        let allowed: Vec<String> = allowed.map(String::from).collect();
        if allowed.is_empty() {
            OfiProviders::None
        } else {
            OfiProviders::Only(allowed)
        }
    }

    /// Whether a provider of this name may be used.
    pub fn allow(&self, provider: &str) -> bool {
        let core = core_provider(provider);
        match self {
            OfiProviders::None => false,
            OfiProviders::Only(names) => names.iter().any(|n| n == provider || n == core),
            OfiProviders::Any => !ONLY_IF_NAMED.contains(&core),
        }
    }
}

/// Whether the host has a device that this provider drives, as the kernel lists it: nothing is loaded for that.
fn has_hardware(provider: &str) -> bool {
    match provider {
        "cxi" => Path::new("/sys/class/cxi").exists(),
        "opx" => Path::new("/dev/hfi1_0").exists(),
        "efa" => {
            let devices = std::fs::read_dir("/sys/class/infiniband");
            let mut names = devices.into_iter().flatten().flatten();
            names.any(|entry| entry.file_name().as_encoded_bytes().starts_with(b"efa_"))
        }
        // Drives any network device: only if it is named.
        _ => false,
    }
}

/// Whether the domain is a bridge of this host, of which another host may have one with the same address.
fn is_bridge(device: &OfiDevice) -> bool {
    let device = Path::new("/sys/class/net").join(&device.domain);
    device.join("bridge").exists()
}

/// The devices that the options allow, preferred first: those that reach other hosts before others, and bridges of this
/// host behind them.
pub fn usable(options: &Options) -> Vec<OfiDevice> {
    let asked = std::env::var("FI_PROVIDER").ok();
    let providers = OfiProviders::new(options, asked.as_deref(), has_hardware);
    if providers == OfiProviders::None {
        return Vec::new();
    }
    let allowed = |device: &&OfiDevice| {
        providers.allow(&device.provider)
            && options.net_devices.allows(&device.domain)
            && device.scope() != OfiScope::Link
            && device.ep().max_msg_size >= MAX_PACKET
    };
    let mut devices: Vec<OfiDevice> = device::all().iter().filter(allowed).cloned().collect();
    devices.sort_by_key(|device| (device.scope() == OfiScope::Loopback, is_bridge(device)));
    devices.dedup_by(|a, b| (&a.provider, &a.domain) == (&b.provider, &b.domain));
    devices
}

/// What an interface of a worker is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfaceRole {
    /// Lanes to peers.
    Lane,
    /// Parts of long messages of peers that have a lane to the same fabric.
    Rail,
}

/// Where the interfaces of a worker lead: one of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// To workers that share memory.
    Memory,
    /// To workers of this host, at least.
    Network,
}

impl Reach {
    fn of(scope: OfiScope) -> Reach {
        match scope {
            OfiScope::Memory => Reach::Memory,
            OfiScope::Loopback | OfiScope::Link | OfiScope::Fabric => Reach::Network,
        }
    }
}

/// Those among these [usable] devices of which a worker opens an interface, preferred first: the first that
/// shares memory, and the first of the others.
pub fn per_worker(usable: &[OfiDevice]) -> Vec<OfiDevice> {
    let scopes: Vec<OfiScope> = usable.iter().map(OfiDevice::scope).collect();
    let chosen = per_reach(&scopes);
    chosen.map(|index| usable[index].clone()).collect()
}

/// The devices among these [usable] ones of which a worker opens an interface for rails: at most `most`, to the fabric
/// that other hosts are reached by.
pub fn rails(usable: &[OfiDevice], most: usize) -> Vec<OfiDevice> {
    let is_first = |device: &&OfiDevice| Reach::of(device.scope()) == Reach::Network;
    let Some(first) = usable.iter().find(is_first) else {
        return Vec::new();
    };
    let is_rail = |device: &&OfiDevice| {
        device.scope() == OfiScope::Fabric
            && device.domain != first.domain
            && fabric_hash(device) == fabric_hash(first)
            && !is_bridge(device)
    };
    let rails = usable.iter().filter(is_rail).take(most);
    rails.cloned().collect()
}

/// Indices of the devices with these scopes of which a worker opens an interface, preferred first.
fn per_reach(scopes: &[OfiScope]) -> impl Iterator<Item = usize> {
    let of = |reach| scopes.iter().position(|&scope| Reach::of(scope) == reach);
    [Reach::Memory, Reach::Network]
        .map(of)
        .into_iter()
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_has_one_interface_for_memory_and_one_for_the_network() {
        use OfiScope::{Fabric, Loopback, Memory};
        let chosen = |scopes: &[OfiScope]| per_reach(scopes).collect::<Vec<_>>();
        assert_eq!(chosen(&[Fabric, Memory]), [1, 0], "memory is preferred");
        assert_eq!(chosen(&[Memory, Fabric, Memory, Fabric]), [0, 1]);
        assert_eq!(chosen(&[Fabric, Fabric, Loopback]), [0]);
        assert_eq!(chosen(&[Memory, Loopback]), [0, 1]);
        assert_eq!(chosen(&[Memory]), [0]);
        assert_eq!(chosen(&[]), [0; 0]);
    }

    fn providers(settings: &[(&str, &str)], asked: Option<&str>, hardware: &str) -> OfiProviders {
        let mut options = Options::default();
        for (name, value) in settings {
            options.set(name, value).expect("a valid setting");
        }
        OfiProviders::new(&options, asked, |name| name == hardware)
    }

    fn only(names: &[&str]) -> OfiProviders {
        OfiProviders::Only(names.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn by_itself_only_hardware_is_used() {
        assert_eq!(providers(&[], None, ""), OfiProviders::None);
        assert_eq!(providers(&[], Some("tcp"), ""), OfiProviders::None);
        assert_eq!(providers(&[], None, "cxi"), only(&["cxi"]));
        let excluded = [("TLS", "^ofi")];
        assert_eq!(providers(&excluded, None, "cxi"), OfiProviders::None);
        let excluded = [("TLS", "^cxi")];
        assert_eq!(providers(&excluded, None, "cxi"), OfiProviders::None);
        assert_eq!(
            providers(&[("TLS", "tcp")], None, "cxi"),
            OfiProviders::None
        );
    }

    #[test]
    fn software_providers_have_to_be_named() {
        let ofi = [("TLS", "ofi,self")];
        assert_eq!(providers(&ofi, None, ""), OfiProviders::Any);
        assert_eq!(providers(&ofi, Some("^tcp"), ""), OfiProviders::Any);
        assert_eq!(providers(&ofi, Some("tcp"), ""), only(&["tcp"]));
        let both = [("TLS", "ofi,self"), ("OFI_PROVIDER", "shm, efa")];
        assert_eq!(providers(&both, Some("tcp"), ""), only(&["shm", "efa"]));
        assert_eq!(
            providers(&[("OFI_PROVIDER", "tcp")], None, ""),
            only(&["tcp"])
        );
        assert_eq!(providers(&[("TLS", "cxi,sm")], None, ""), only(&["cxi"]));
        assert!(
            !OfiProviders::Any.allow("tcp;ofi_rxm") && OfiProviders::Any.allow("verbs;ofi_rxm")
        );
        let tcp = only(&["tcp"]);
        assert!(tcp.allow("tcp") && tcp.allow("tcp;ofi_rxm") && !tcp.allow("net;ofi_rxm"));
        assert!(only(&["tcp;ofi_rxm"]).allow("tcp;ofi_rxm"));
        assert!(!OfiProviders::None.allow("cxi"));
    }
}
