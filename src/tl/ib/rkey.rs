//! InfiniBand's section of a remote key: the keys of the memory at the owner's devices.
//!
//! `count (1) | atomics (1) | pages (8) | keys (4 each)`. The byte `atomics` is present if the count says so. The count
//! is there twice, the second time inverted.
#![forbid(unsafe_code)]

use crate::tl::rma::RmaKey;
use crate::tl::rma_pieces::RmaRegion;
use crate::wire::ib_port::MAX_PORTS;
use crate::wire::rkey::{decode_pages, encode_pages};

/// Bits of the count that say that the byte `atomics` follows: two, so that one flipped bit is detected.
const WITH_ATOMICS: u8 = 0x88;

/// Keys for devices: one for each port of the owner's address, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct IbRkey {
    /// The registered range; multiples of 4 KiB.
    pub base: u64,
    pub len: u64,
    pub keys: [u32; MAX_PORTS],
    /// Number of keys, at least one.
    pub count: u8,
    pub atomics: RkeyAtomics,
}

/// What executes atomic operations of 8 bytes on the memory: a device of the owner, with some of its ports, or only
/// processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RkeyAtomics {
    /// Bit mask of that device's ports; 0: processors.
    pub port_mask: u8,
    /// The device's operations are not atomic to processors: these must not execute any.
    pub alone: bool,
}

impl RkeyAtomics {
    const ALONE: u8 = 1 << 7;

    /// Whether this port is one of the device's.
    #[inline]
    pub fn has_port(self, port: usize) -> bool {
        port < MAX_PORTS && self.port_mask >> port & 1 == 1
    }

    fn to_byte(self) -> u8 {
        self.port_mask | if self.alone { Self::ALONE } else { 0 }
    }

    /// `None` where a port is named that does not exist, or none is.
    fn from_byte(byte: u8, count: u8) -> Option<RkeyAtomics> {
        let port_mask = byte & !Self::ALONE;
        let alone = byte & Self::ALONE != 0;
        (port_mask != 0 && port_mask >> count == 0).then_some(RkeyAtomics { port_mask, alone })
    }
}

impl IbRkey {
    /// Whether all of these bytes are in the registered range.
    #[inline]
    pub fn covers(&self, addr: u64, len: usize) -> bool {
        let left = self.len.checked_sub(addr.wrapping_sub(self.base));
        left.is_some_and(|left| len as u64 <= left)
    }

    /// The registered range, for a list of accesses.
    pub fn region(&self) -> RmaRegion {
        RmaRegion {
            base: self.base,
            len: self.len,
            key: RmaKey::Rkeys(self.keys),
        }
    }

    /// The key for a port of the owner.
    #[inline]
    pub fn of_port(&self, port: usize) -> Option<u32> {
        if port >= self.count.into() {
            return None;
        }
        self.keys.get(port).copied()
    }

    /// Length of the section whose bytes `at` returns, from its first byte; `None` if it is not one.
    pub fn section_len(at: &dyn Fn(usize) -> u8) -> Option<usize> {
        let (count, with_atomics) = count_of(at(0))?;
        let keys = size_of::<u32>() * usize::from(count);
        Some(1 + usize::from(with_atomics) + size_of::<u64>() + keys)
    }

    /// Encodes the section. `None` if a field does not fit.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let with_atomics = self.atomics.port_mask != 0;
        let mut section = vec![count_byte(self.count, with_atomics)];
        if with_atomics {
            RkeyAtomics::from_byte(self.atomics.to_byte(), self.count)?;
            section.push(self.atomics.to_byte());
        }
        section.extend(encode_pages(self.base, self.len)?.to_le_bytes());
        let keys = self.keys.get(..self.count.into())?;
        section.extend(keys.iter().flat_map(|key| key.to_le_bytes()));
        Some(section)
    }

    /// Decodes a section. `None`: it is malformed.
    pub fn decode(section: &[u8]) -> Option<IbRkey> {
        let (&count, mut rest) = section.split_first()?;
        let (count, with_atomics) = count_of(count)?;
        let mut atomics = RkeyAtomics::default();
        if with_atomics {
            let (&byte, behind) = rest.split_first()?;
            (atomics, rest) = (RkeyAtomics::from_byte(byte, count)?, behind);
        }
        let (pages, mut rest) = rest.split_first_chunk()?;
        let (base, len) = decode_pages(u64::from_le_bytes(*pages));
        let mut keys = [0; MAX_PORTS];
        for key in keys.iter_mut().take(count.into()) {
            let (bytes, behind) = rest.split_first_chunk()?;
            (*key, rest) = (u32::from_le_bytes(*bytes), behind);
        }
        rest.is_empty().then_some(IbRkey {
            base,
            len,
            keys,
            count,
            atomics,
        })
    }
}

/// Encodes a count twice, the second time inverted.
fn count_byte(count: u8, with_atomics: bool) -> u8 {
    count | (!count & 7) << 4 | if with_atomics { WITH_ATOMICS } else { 0 }
}

/// The count of keys, and whether the byte `atomics` follows.
fn count_of(byte: u8) -> Option<(u8, bool)> {
    let (count, with_atomics) = (byte & 7, byte & WITH_ATOMICS != 0);
    let right = byte == count_byte(count, with_atomics) && (1..=MAX_PORTS).contains(&count.into());
    right.then_some((count, with_atomics))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(count: u8, port_mask: u8) -> IbRkey {
        let mut keys = [0x1111_1111, 2, 3, 4];
        keys[count.into()..].fill(0);
        IbRkey {
            base: 0x7f00_0000_0000,
            len: 1 << 20,
            keys,
            count,
            atomics: RkeyAtomics {
                port_mask,
                alone: port_mask & 1 == 1,
            },
        }
    }

    #[test]
    fn sections_are_whole_or_none() {
        for count in 1..=MAX_PORTS as u8 {
            for key in [0, 1, 1 << (count - 1)].map(|ports| keys(count, ports)) {
                let section = key.encode().expect("fits");
                let len = section.len();
                assert_eq!(IbRkey::section_len(&|i| section[i]), Some(len));
                assert_eq!(IbRkey::decode(&section), Some(key));
                for bit in 0..8 {
                    let damaged = section[0] ^ 1 << bit;
                    assert_eq!(IbRkey::section_len(&|_| damaged), None, "bit {bit} flipped");
                }
                assert_eq!(IbRkey::decode(&section[..len - 1]), None);
                assert_eq!(IbRkey::decode(&[&*section, &[0]].concat()), None);
            }
        }
        assert_eq!(keys(1, 0).encode().map(|section| section.len()), Some(13));
    }

    #[test]
    fn keys_are_of_ports_and_a_range() {
        let keys = keys(2, 4);
        assert_eq!(keys.encode(), None, "no such port");
        assert!(keys.atomics.has_port(2) && !keys.atomics.has_port(1));
        assert!(!keys.atomics.has_port(64));
        assert_eq!((keys.of_port(1), keys.of_port(2)), (Some(2), None));
        assert!(keys.covers(keys.base, 1 << 20));
        assert!(!keys.covers(keys.base + 1, 1 << 20) && !keys.covers(keys.base - 1, 1));
    }
}
