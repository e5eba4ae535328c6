//! TCP's section of a worker address: for messages, or for the wireup of queue pairs alone.
#![forbid(unsafe_code)]

use crate::wire::address::{mbps_of, speed_code};
use std::net::IpAddr;

/// Most network addresses of a worker; further ones are left out.
pub const MAX_ADDRESSES: usize = 8;

/// A network address of the worker's host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetAddress {
    pub ip: IpAddr,
    /// Speed of its device: 8 times the binary logarithm of Mb/s.
    pub speed: u8,
}

impl NetAddress {
    /// The address of a device of this speed, Mb/s.
    pub fn new(ip: IpAddr, mbps: u32) -> Self {
        let speed = speed_code(mbps);
        Self { ip, speed }
    }

    /// Speed of its device, Mb/s, to within 5 %.
    pub fn mbps(&self) -> u32 {
        mbps_of(self.speed)
    }
}

/// What a worker's sockets are used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpUsage {
    Messages,
    /// Only for the wireup of queue pairs: `UCX_TLS` excludes ud, by which they are connected otherwise, and tcp.
    Wireup,
}

/// The TCP section, of a kind for each usage: `port (2) | secret (8) | network (4)`, then the addresses as `family (1)
/// | speed (1) | address (4 or 16)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpLocator {
    pub usage: TcpUsage,
    /// Port of the listening socket.
    pub port: u16,
    /// Secret that a hello has to carry.
    pub secret: u64,
    /// Id of the network namespace, equal for the processes in it.
    pub network: u32,
    /// At most [`MAX_ADDRESSES`].
    pub addresses: Vec<NetAddress>,
}

const V4: u8 = 4;
const V6: u8 = 6;

impl TcpLocator {
    /// Whether an address is that of a device which leads to other network namespaces.
    pub fn leads_out(&self) -> bool {
        self.addresses.iter().any(|a| !a.ip.is_loopback())
    }

    /// The body of the section.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = self.port.to_le_bytes().to_vec();
        body.extend(self.secret.to_le_bytes());
        body.extend(self.network.to_le_bytes());
        for address in self.addresses.iter().take(MAX_ADDRESSES) {
            match address.ip {
                IpAddr::V4(ip) => {
                    body.extend([V4, address.speed]);
                    body.extend(ip.octets());
                }
                IpAddr::V6(ip) => {
                    body.extend([V6, address.speed]);
                    body.extend(ip.octets());
                }
            }
        }
        body
    }

    /// Decodes the body of a section. `None`: it is malformed.
    pub fn decode(usage: TcpUsage, body: &[u8]) -> Option<TcpLocator> {
        let (port, rest) = body.split_first_chunk()?;
        let (secret, rest) = rest.split_first_chunk()?;
        let (network, mut rest) = rest.split_first_chunk()?;
        let mut addresses = Vec::new();
        while let Some((&[family, speed], behind)) = rest.split_first_chunk() {
            let (ip, next): (IpAddr, &[u8]) = match family {
                V4 => {
                    let (octets, next) = behind.split_first_chunk::<4>()?;
                    ((*octets).into(), next)
                }
                V6 => {
                    let (octets, next) = behind.split_first_chunk::<16>()?;
                    ((*octets).into(), next)
                }
                _ => return None,
            };
            if addresses.len() == MAX_ADDRESSES {
                return None;
            }
            addresses.push(NetAddress { ip, speed });
            rest = next;
        }
        rest.is_empty().then_some(TcpLocator {
            usage,
            port: u16::from_le_bytes(*port),
            secret: u64::from_le_bytes(*secret),
            network: u32::from_le_bytes(*network),
            addresses,
        })
    }
}
