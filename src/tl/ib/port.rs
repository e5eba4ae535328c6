//! A port of a device: its addresses in the network, and the address vectors to other ports.

use super::IbTuning;
use super::bindings::*;
use super::hca::Hca;
use super::roce_reach::{RoceDistance, RocePlace};
use super::verbs::check;
use crate::options::DeviceFilter;
use crate::sys::log;
use crate::wire::ib_port::{PortFlags, PortLocator};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// Default traffic class of RoCE v2: DSCP 26 (AF31, priority 3), for which lossless networks are usually configured,
/// and ECN-capable.
const ROCE_CLASS: u8 = 26 << 2 | 2;

/// `UCX_RMA_ZCOPY_MAX_SEG_SIZE` makes no shorter segments than this, bytes: each costs a work request.
const MIN_SEGMENT: usize = 4 << 10;

/// The GID of a port, and its index in the port's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gid {
    pub raw: [u8; 16],
    pub index: u8,
    pub roce_v2: bool,
}

/// A port that is up.
pub struct Port {
    pub hca: Arc<Hca>,
    pub number: u8,
    /// Its name in `UCX_NET_DEVICES`: `mlx5_0:1`.
    pub name: String,
    pub ethernet: bool,
    /// Address inside of an InfiniBand subnet.
    pub lid: u16,
    pub gid: Gid,
    /// IP address and device of the GID; `None` of InfiniBand.
    place: Option<RocePlace>,
    pub pkey_index: u16,
    /// Maximum packet size, as `ibv_mtu`.
    pub mtu: ibv_mtu,
    /// Speed of the link, Mb/s.
    pub mbps: u32,
    /// Maximum bytes of one work request.
    pub longest: usize,
    pub tuning: IbTuning,
}

/// The ports of this host's devices that are up and that the options allow.
pub fn usable(filter: &DeviceFilter, tuning: &IbTuning) -> Vec<Arc<Port>> {
    // The list names ports, or devices for all of their ports.
    let hcas =
        Hca::all(|name| filter.is_all() || (1..=4).any(|n| filter.allows(&format!("{name}:{n}"))));
    let ports = hcas
        .iter()
        .flat_map(|hca| all(hca, tuning, |name| filter.allows(name)));
    ports.map(Arc::new).collect()
}

/// The ports of a device that are up and whose names `wanted` accepts.
fn all(hca: &Arc<Hca>, tuning: &IbTuning, wanted: impl Fn(&str) -> bool) -> Vec<Port> {
    let numbers = 1..=hca.limits.phys_port_cnt;
    let named = numbers.map(|number| (number, format!("{}:{number}", hca.name)));
    let wanted = named.filter(|(_, name)| wanted(name));
    wanted
        .filter_map(
            |(number, name)| match Port::query(hca, number, &name, tuning) {
                Ok(port) => Some(port),
                Err(e) => {
                    // The options select a GID or a partition key that does not exist.
                    let named = tuning.gid_index.is_some() || tuning.pkey.is_some();
                    if named && e.kind() == ErrorKind::NotFound {
                        log::error!("InfiniBand port {name} is not used: {e}")
                    } else {
                        log::diag!("InfiniBand port {name} is not used: {e}")
                    }
                    None
                }
            },
        )
        .collect()
}

/// Maximum bytes of a work request: the limit of the port, if it has one, and the option.
fn longest(port: u32, wanted: Option<usize>) -> usize {
    let most = match port {
        0 => 1 << 30,
        n => n as usize,
    };
    wanted.map_or(most, |wanted| most.min(wanted.max(MIN_SEGMENT)))
}

impl Port {
    /// Whether the link is up now. Queries the device.
    pub fn is_active(&self) -> bool {
        let mut attr = ibv_port_attr::default();
        let hca = &self.hca;
        // SAFETY: the device is open; `attr` is writable, and longer than what the function writes.
        let answer = unsafe { (hca.verbs.query_port)(hca.context(), self.number, &mut attr) };
        answer == 0 && attr.state == IBV_PORT_ACTIVE
    }

    fn query(hca: &Arc<Hca>, number: u8, name: &str, tuning: &IbTuning) -> io::Result<Port> {
        let mut attr = ibv_port_attr::default();
        // SAFETY: the device is open; `attr` is writable, and longer than what the function writes.
        check(unsafe { (hca.verbs.query_port)(hca.context(), number, &mut attr) })?;
        if attr.state != IBV_PORT_ACTIVE {
            return Err(io::Error::other("its link is down"));
        }
        let ethernet = u32::from(attr.link_layer) == IBV_LINK_LAYER_ETHERNET;
        let gid = choose_gid(hca, number, ethernet, tuning.gid_index)?;
        let limit = tuning.path_mtu.map_or(attr.active_mtu, mtu_code);
        Ok(Port {
            hca: hca.clone(),
            number,
            name: name.to_owned(),
            ethernet,
            lid: attr.lid,
            gid,
            place: ethernet.then(|| RocePlace {
                addr: ip(&gid.raw),
                device: net_device(&hca.name, number, gid.index),
            }),
            pkey_index: pkey_index(hca, number, &attr, tuning.pkey)?,
            mtu: limit.min(attr.active_mtu),
            mbps: mbps(attr.active_speed, attr.active_width),
            longest: longest(attr.max_msg_sz, tuning.rc.zcopy_seg),
            tuning: tuning.clone(),
        })
    }

    /// The port's entry in a worker address. `qpn`: of the worker's UD queue pair; 0: it has none.
    pub fn locator(&self, qpn: u32) -> PortLocator {
        let mut flags = PortFlags::empty();
        flags.set(PortFlags::ETHERNET, self.ethernet);
        flags.set(PortFlags::ROCE_V2, self.gid.roce_v2);
        PortLocator {
            flags,
            mtu: self.mtu as u8,
            speed: crate::wire::address::speed_code(self.mbps),
            lid: self.lid,
            qpn,
            gid: u128::from_be_bytes(self.gid.raw),
        }
    }

    /// The distance to another port, from the addresses and the kernel's routes: the links must be of one kind,
    /// InfiniBand ports in one subnet. RoCE v2 is routed like IP, within one address family. `None`: the port is not
    /// reachable.
    pub fn distance(&self, to: &PortLocator) -> Option<RoceDistance> {
        let there = to.gid.to_be_bytes();
        let alike = if self.ethernet {
            self.gid.roce_v2 == to.is_roce_v2() && is_v4(&self.gid.raw) == is_v4(&there)
        } else {
            self.gid.raw[..8] == there[..8]
        };
        if self.ethernet != to.is_ethernet() || !alike {
            return None;
        }
        match self.place {
            Some(place) if self.gid.roce_v2 => place.distance(ip(&there), self.tuning.reach),
            _ => Some(RoceDistance::Near),
        }
    }

    /// Whether the other port is reachable.
    pub fn reaches(&self, to: &PortLocator) -> bool {
        self.distance(to).is_some()
    }

    /// Maximum packet size on the path to another port.
    pub fn mtu_to(&self, to: &PortLocator) -> ibv_mtu {
        self.mtu.min(to.mtu.into()).clamp(IBV_MTU_256, IBV_MTU_4096)
    }

    /// Bytes of the port's maximum packet.
    pub fn mtu_bytes(&self) -> usize {
        mtu_bytes(self.mtu)
    }

    /// The address vector to another port.
    pub fn path(&self, to: &PortLocator) -> ibv_ah_attr {
        let tuning = &self.tuning;
        let mut path = ibv_ah_attr {
            dlid: to.lid,
            sl: tuning.service_level,
            port_num: self.number,
            ..Default::default()
        };
        if self.ethernet || tuning.global {
            path.is_global = 1;
            path.grh.dgid.raw = to.gid.to_be_bytes();
            path.grh.sgid_index = self.gid.index;
            path.grh.hop_limit = tuning.hop_limit;
            let usual = if self.gid.roce_v2 { ROCE_CLASS } else { 0 };
            path.grh.traffic_class = tuning.traffic_class.unwrap_or(usual);
        }
        path
    }
}

/// Bytes of an `ibv_mtu`: 256 for 1, 4096 for 5.
pub fn mtu_bytes(code: ibv_mtu) -> usize {
    128 << code.clamp(IBV_MTU_256, IBV_MTU_4096)
}

fn mtu_code(bytes: u32) -> ibv_mtu {
    let codes = IBV_MTU_256..=IBV_MTU_4096;
    let fits = |&code: &ibv_mtu| mtu_bytes(code) <= bytes as usize;
    codes.rev().find(fits).unwrap_or(IBV_MTU_256)
}

/// Speed of a link in Mb/s. Widths are bits for 1, 4, 8, 12 and 2 lanes, speeds bits for the rate of one lane
/// (`ibv_query_port(3)`).
fn mbps(speed: u8, width: u8) -> u32 {
    let lane = match speed {
        1 => 2_500,
        2 => 5_000,
        4 | 8 => 10_000,
        16 => 14_062,
        32 => 25_781,
        64 => 50_000,
        128 => 100_000,
        _ => 2_500,
    };
    let lanes = match width {
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 1,
    };
    lane * lanes
}

/// The IP address of a GID.
fn ip(gid: &[u8; 16]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(*gid)).to_canonical()
}

/// Whether a GID is an IPv4 address.
fn is_v4(gid: &[u8; 16]) -> bool {
    ip(gid).is_ipv4()
}

/// Index of the network device of a GID.
fn net_device(hca: &str, port: u8, gid: u8) -> Option<u32> {
    let path = format!("/sys/class/infiniband/{hca}/ports/{port}/gid_attrs/ndevs/{gid}");
    let name = std::fs::read_to_string(path).ok()?;
    let index = std::fs::read_to_string(format!("/sys/class/net/{}/ifindex", name.trim())).ok()?;
    index.trim().parse().ok()
}

/// Preference of a GID, larger is better: RoCE v2 before v1, routed addresses before link-local ones, IPv4 before IPv6.
/// Of equal ones the first.
fn worth(gid: &Gid) -> impl Ord + use<> {
    let ip = Ipv6Addr::from(gid.raw);
    let local = ip.is_unicast_link_local();
    (
        gid.roce_v2,
        !local,
        is_v4(&gid.raw),
        std::cmp::Reverse(gid.index),
    )
}

fn choose_gid(hca: &Hca, port: u8, ethernet: bool, wanted: Option<u32>) -> io::Result<Gid> {
    let gids = gids(hca, port);
    let missing = || io::Error::new(ErrorKind::NotFound, "it has no GID (UCX_IB_GID_INDEX)");
    let found = match wanted {
        Some(index) => gids.iter().find(|g| u32::from(g.index) == index),
        None if ethernet => gids.iter().max_by_key(|g| worth(g)),
        None => gids.first(),
    };
    found.copied().ok_or_else(missing)
}

/// The GID table of a port, without empty entries.
fn gids(hca: &Hca, port: u8) -> Vec<Gid> {
    const MOST: usize = 256;
    let Some(query) = hca.verbs.query_gid_table else {
        return gids_one_by_one(hca, port);
    };
    let mut entries = vec![ibv_gid_entry::default(); MOST * usize::from(hca.limits.phys_port_cnt)];
    // SAFETY: `entries` is writable for its length.
    let n = unsafe {
        query(
            hca.context(),
            entries.as_mut_ptr(),
            entries.len(),
            0,
            size_of::<ibv_gid_entry>(),
        )
    };
    entries.truncate(n.max(0) as usize);
    let own = entries.iter().filter(|e| e.port_num == u32::from(port));
    own.filter_map(|e| {
        Some(Gid {
            // SAFETY: any bytes are a valid array.
            raw: unsafe { e.gid.raw },
            index: u8::try_from(e.gid_index).ok()?,
            roce_v2: e.gid_type == IBV_GID_TYPE_ROCE_V2,
        })
    })
    .collect()
}

/// The GIDs of a port from a library without `query_gid_table`, which returns no types: on Ethernet RoCE v1 is assumed.
fn gids_one_by_one(hca: &Hca, port: u8) -> Vec<Gid> {
    let ask = |index: u8| {
        let mut gid = ibv_gid::default();
        // SAFETY: `gid` is writable.
        let answer = unsafe { (hca.verbs.query_gid)(hca.context(), port, index.into(), &mut gid) };
        // SAFETY: any bytes are a valid array.
        let raw = unsafe { gid.raw };
        (answer == 0 && raw != [0; 16]).then_some(Gid {
            raw,
            index,
            roce_v2: false,
        })
    };
    (0..16).filter_map(ask).collect()
}

/// Index of a partition key; of any valid one if `wanted` is None.
fn pkey_index(hca: &Hca, port: u8, attr: &ibv_port_attr, wanted: Option<u16>) -> io::Result<u16> {
    /// Bits of the key itself; the remaining bit marks full members.
    const KEY: u16 = 0x7FFF;
    for index in 0..attr.pkey_tbl_len {
        let mut key = 0u16;
        // SAFETY: `key` is writable.
        let answer = unsafe { (hca.verbs.query_pkey)(hca.context(), port, index.into(), &mut key) };
        let key = u16::from_be(key) & KEY;
        if answer == 0 && key != 0 && wanted.is_none_or(|wanted| wanted & KEY == key) {
            return Ok(index);
        }
    }
    Err(io::Error::new(
        ErrorKind::NotFound,
        "it has no such partition key (UCX_IB_PKEY)",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_packets() {
        let sizes: Vec<usize> = (IBV_MTU_256..=IBV_MTU_4096).map(mtu_bytes).collect();
        assert_eq!(sizes, [256, 512, 1024, 2048, 4096]);
        assert_eq!(
            (mtu_code(4096), mtu_code(1500)),
            (IBV_MTU_4096, IBV_MTU_1024)
        );
        assert_eq!(
            (mtu_code(0), mtu_code(u32::MAX)),
            (IBV_MTU_256, IBV_MTU_4096)
        );
    }

    #[test]
    fn routed_addresses_of_the_newer_kind_are_best() {
        let gid = |ip: &str, index, roce_v2| Gid {
            raw: ip.parse::<Ipv6Addr>().unwrap().octets(),
            index,
            roce_v2,
        };
        let table = [
            gid("fe80::1", 0, false),
            gid("fe80::1", 1, true),
            gid("::ffff:10.0.0.1", 2, false),
            gid("::ffff:10.0.0.1", 3, true),
            gid("fd00::1", 4, true),
            gid("::ffff:10.0.0.2", 5, true),
        ];
        let best = |gids: &[Gid]| gids.iter().max_by_key(|g| worth(g)).unwrap().index;
        assert_eq!(best(&table), 3);
        assert_eq!(best(&table[..3]), 1);
        assert_eq!(best(&table[..1]), 0);
    }
}
