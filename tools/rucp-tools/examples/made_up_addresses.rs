//! Addresses of workers that do not exist, in the form of one that does: for programs that measure how a worker scales
//! with its peers (`ucpbench scale`).
//!
//! usage: made_up_addresses NUMBER < ADDRESS > ADDRESSES
//!
//! Reads the address of a worker of this library, and writes this many others, one behind the other, each as long as
//! the first. They have the same sections, encoded by the library itself, with other values: four workers for each
//! host, hosts with addresses of their own in every network, and uids, secrets, ports and queue pairs of their own. The
//! status is 1, without output, if the address is not of this library, or has a section whose addresses have a format
//! that is unknown here.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::ExitCode;
use ucp::tl::address::WorkerAddress;
use ucp::tl::ofi::address::{OfiLocator, OfiLocators};

/// Workers of one host, as Fugaku has memory groups.
const WORKERS_PER_HOST: u64 = 4;
/// Most workers: their hosts have addresses of 24 bits in each network.
const MAX_WORKERS: u64 = WORKERS_PER_HOST * ((1 << 24) - 2);
/// `AF_INET` and `AF_INET6`, as providers of libfabric write them.
const FAMILIES: [u16; 2] = [libc::AF_INET as u16, libc::AF_INET6 as u16];

/// A worker that does not exist.
struct MadeUp {
    /// Number of its host, not 0: that of the worker that exists.
    host: u64,
    /// Its number on the host.
    local: u64,
    /// Number of the worker.
    number: u64,
}

impl MadeUp {
    fn new(number: u64) -> MadeUp {
        MadeUp {
            host: 1 + number / WORKERS_PER_HOST,
            local: number % WORKERS_PER_HOST,
            number,
        }
    }

    /// A value that differs between any two workers, and by `salt`, and is not 0 (SplitMix64, a bijection).
    fn unique(&self, salt: u64) -> u64 {
        scattered(self.number.wrapping_mul(8).wrapping_add(1 + salt))
    }

    /// A value of its host.
    fn of_host(&self) -> u64 {
        scattered(self.host << 32)
    }

    /// The address of its host in the network of `ip`.
    fn ip(&self, ip: IpAddr) -> IpAddr {
        match ip {
            IpAddr::V4(_) => Ipv4Addr::from_bits(10 << 24 | self.host as u32).into(),
            IpAddr::V6(ip) => Ipv6Addr::from_bits(self.gid(ip.to_bits())).into(),
        }
    }

    /// A GID, or an address of IPv6: the lowest 24 bits are the host's.
    fn gid(&self, gid: u128) -> u128 {
        gid ^ u128::from(self.host)
    }

    /// An address of an endpoint of libfabric: that of a socket, whose port is the worker's own. `None`: the format is
    /// unknown.
    fn fabric_name(&self, name: &[u8]) -> Option<Vec<u8>> {
        let family = u16::from_ne_bytes(*name.first_chunk()?);
        FAMILIES.contains(&family).then_some(())?;
        let mut made_up = name.to_vec();
        let octets = match family == FAMILIES[0] {
            true => made_up.get_mut(5..8)?,
            false => made_up.get_mut(21..24)?,
        };
        let host = (self.host as u32).to_be_bytes();
        octets
            .iter_mut()
            .zip(&host[1..])
            .for_each(|(to, from)| *to ^= from);
        made_up[2..4].copy_from_slice(&self.port().to_be_bytes());
        Some(made_up)
    }

    fn port(&self) -> u16 {
        20_000 + self.local as u16
    }
}

fn scattered(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

/// The address of a worker that does not exist, with the sections of one that does. `None`: one of them has a format
/// that is unknown here.
fn derived(real: &WorkerAddress, it: &MadeUp) -> Option<WorkerAddress> {
    let mut to = real.clone();
    to.uid = it.unique(0);
    if let Some(shm) = &mut to.shm {
        shm.host = it.of_host();
        shm.pid += it.local as u32;
        shm.ino = it.unique(1) as u32;
        shm.key = it.unique(2);
    }
    if let Some(ib) = &mut to.ib {
        ib.secret = it.unique(3);
        for port in &mut ib.ports {
            port.gid = it.gid(port.gid);
            port.lid = if port.lid == 0 {
                0
            } else {
                1 + it.host as u16 % 0xBFFE
            };
            port.qpn = if port.qpn == 0 {
                0
            } else {
                0x100 + it.local as u32
            };
        }
    }
    if let Some(tofu) = &mut to.tofu {
        tofu.secret = it.unique(4);
        // Bits 16 to 39 of a VCQ's id are x, y and z in the software Tofu (c_tests/tofu/torus.c).
        tofu.vcq ^= it.host << 16;
    }
    if let Some(tcp) = &mut to.tcp {
        tcp.secret = it.unique(5);
        tcp.network = it.of_host() as u32;
        tcp.port = it.port();
        for address in &mut tcp.addresses {
            address.ip = it.ip(address.ip);
        }
    }
    if let Some(ofi) = &mut to.ofi {
        let other = |locator: &OfiLocator| {
            let mut locator = locator.clone();
            locator.secret = it.unique(6);
            locator.liveness.host = it.of_host();
            locator.name = it.fabric_name(&locator.name)?;
            Some(locator)
        };
        *ofi = OfiLocators::new(ofi.all().iter().map(other).collect::<Option<_>>()?)?;
    }
    Some(to)
}

fn write(number: u64, real: &[u8], to: &mut impl Write) -> Result<(), Box<dyn std::error::Error>> {
    let real = WorkerAddress::decode(real)?;
    let len = real.encode().len();
    for i in 0..number {
        let made_up = derived(&real, &MadeUp::new(i)).ok_or("a format that is unknown here")?;
        let blob = made_up.encode();
        if blob.len() != len {
            return Err("an address of another length".into());
        }
        to.write_all(&blob)?;
    }
    Ok(to.flush()?)
}

fn main() -> ExitCode {
    let number = std::env::args().nth(1).and_then(|word| word.parse().ok());
    let Some(number) = number.filter(|number| *number <= MAX_WORKERS) else {
        eprintln!("usage: made_up_addresses NUMBER < ADDRESS > ADDRESSES");
        return ExitCode::from(2);
    };
    let mut real = Vec::new();
    let done = io::stdin()
        .read_to_end(&mut real)
        .map_err(Into::into)
        .and_then(|_| write(number, &real, &mut io::BufWriter::new(io::stdout())));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("made_up_addresses: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use ucp::tl::tcp::address::{NetAddress, TcpLocator, TcpUsage};

    #[test]
    fn workers_differ_and_hosts_have_four() {
        let real = WorkerAddress {
            uid: 7,
            tcp: Some(TcpLocator {
                usage: TcpUsage::Messages,
                port: 1,
                secret: 2,
                network: 3,
                addresses: vec![NetAddress::new("192.0.2.2".parse().unwrap(), 1000)],
            }),
            ..WorkerAddress::default()
        };
        let mut bytes = Vec::new();
        write(4000, &real.encode(), &mut bytes).unwrap();
        let len = real.encode().len();
        let all: Vec<_> = (bytes.chunks(len))
            .map(|blob| WorkerAddress::decode(blob).unwrap())
            .collect();
        let count = |value: &dyn Fn(&WorkerAddress) -> u64| {
            all.iter().map(value).collect::<HashSet<_>>().len()
        };
        let ip = |address: &WorkerAddress| match address.tcp.as_ref().unwrap().addresses[0].ip {
            IpAddr::V4(ip) => u64::from(ip.to_bits()),
            IpAddr::V6(_) => 0,
        };
        assert_eq!(all.len(), 4000);
        assert_eq!(count(&|address| address.uid), 4000);
        assert_eq!(count(&|address| address.tcp.as_ref().unwrap().secret), 4000);
        assert_eq!(count(&ip), 1000);
    }

    #[test]
    fn a_foreign_address_is_refused() {
        assert!(write(1, b"something else, and long enough", &mut Vec::new()).is_err());
    }
}
