//! The part of a packed key with the STADDs of the memory for adapters of the Tofu interconnect: around the rest of the
//! key.
//!
//! `kind (1) | CRC-8 (1) | count (2) | count inverted (2) | base (8) | length (8)`, then `count` times `worker (2) |
//! STADD (8)`, and the key. A bit of the count says that the owner's adapters execute atomic operations. A STADD is
//! valid for one VCQ: each worker of the memory's owner has a VCQ of its own, and a number. `ucp_ep_rkey_unpack` gets a
//! pointer without a length: the count, which is there twice, gives the length.
#![forbid(unsafe_code)]

use super::rkey::{self, checksum};

/// Differs in two bits or more from any kind of key.
const KIND: u8 = b'k';
/// Bytes in front of the addresses.
const FRONT: usize = 2 + 2 + 2 + 8 + 8;
/// Bytes of a STADD with its worker.
const ENTRY: usize = 2 + 8;
/// Most workers of one process that a key has; accesses to others go by message.
pub const MOST: usize = 1024;
/// Flag in the count: adapters execute atomic operations.
const ATOMICS: u16 = 1 << 15;

/// STADDs of a memory region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TofuRkey {
    /// The registered range.
    pub base: u64,
    pub len: u64,
    /// Whether the owner's adapters, and nothing else, execute atomic operations on it; possible without STADDs too.
    pub atomics: bool,
    /// Numbers of the owner's workers, and the STADD of the first byte for the VCQ of each. At most [`MOST`].
    pub addresses: Vec<(u16, u64)>,
}

/// Length of the key that begins here; `None` if it is not a key. `at` returns its bytes, no more of them than the
/// previous ones say that there are.
pub fn total_len(at: impl Fn(usize) -> u8) -> Option<usize> {
    if at(0) != KIND {
        return rkey::total_len(at);
    }
    let word = |i: usize| u16::from_le_bytes([at(i), at(i + 1)]);
    let count = word(2) & !ATOMICS;
    if word(4) != !word(2) || usize::from(count) > MOST {
        return None;
    }
    let inner = FRONT + ENTRY * usize::from(count);
    Some(inner + rkey::total_len(|i| at(inner + i))?)
}

/// Decodes `bytes`, whose length is that of [`total_len`]: the Tofu part, if there is one, and the key inside. `None`
/// if it is damaged.
pub fn read(bytes: &[u8]) -> Option<(Option<TofuRkey>, &[u8])> {
    if *bytes.first()? != KIND {
        return Some((None, bytes));
    }
    let covered = bytes.get(2..)?;
    if *bytes.get(1)? != checksum(KIND, covered) {
        return None;
    }
    let (count, rest) = covered.split_first_chunk()?;
    let word = u16::from_le_bytes(*count);
    let (count, atomics) = (usize::from(word & !ATOMICS), word & ATOMICS != 0);
    let (base, rest) = rest.get(2..)?.split_first_chunk()?;
    let (len, rest) = rest.split_first_chunk()?;
    let (entries, key) = rest.split_at_checked(count * ENTRY)?;
    let entry = |entry: &[u8]| {
        let (number, at) = entry.split_first_chunk()?;
        Some((
            u16::from_le_bytes(*number),
            u64::from_le_bytes(*at.first_chunk()?),
        ))
    };
    let steering = TofuRkey {
        base: u64::from_le_bytes(*base),
        len: u64::from_le_bytes(*len),
        atomics,
        addresses: entries.chunks(ENTRY).map(entry).collect::<Option<_>>()?,
    };
    Some((Some(steering), key))
}

impl TofuRkey {
    /// The bytes of this part, around those of a key.
    pub fn around(&self, key: &[u8]) -> Vec<u8> {
        let count = self.addresses.len().min(MOST) as u16;
        let word = count | if self.atomics { ATOMICS } else { 0 };
        let mut bytes = vec![KIND, 0];
        bytes.extend(word.to_le_bytes());
        bytes.extend((!word).to_le_bytes());
        bytes.extend(self.base.to_le_bytes());
        bytes.extend(self.len.to_le_bytes());
        for (number, at) in self.addresses.iter().take(count.into()) {
            bytes.extend(number.to_le_bytes());
            bytes.extend(at.to_le_bytes());
        }
        bytes.extend(key);
        if let Some(crc) = bytes.get(2..).map(|body| checksum(KIND, body))
            && let Some(at) = bytes.get_mut(1)
        {
            *at = crc;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::rkey::PackedRkey;

    #[test]
    fn keys_with_addresses_are_whole_or_none() {
        let (key, len) = PackedRkey::Plain.encode().expect("fits");
        let key = &key[..len];
        for count in [0, 1, 48] {
            let steering = TofuRkey {
                base: 0x7f00_0000_1000,
                len: 12,
                atomics: count != 1,
                addresses: (0..count).map(|n| (n, u64::from(n) << 32 | 5)).collect(),
            };
            let bytes = steering.around(key);
            let at = |i: usize| bytes[i];
            assert_eq!(total_len(at), Some(bytes.len()));
            assert_eq!(read(&bytes), Some((Some(steering), key)));
            for bit in 0..(bytes.len() - len) * 8 {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                let found = read(&damaged);
                assert!(
                    found.is_none_or(|(s, k)| s.is_none() && rkey::read(k).is_none()),
                    "bit {bit}"
                );
            }
            for cut in 0..bytes.len() - len {
                assert!(read(&bytes[..cut]).is_none(), "cut to {cut}");
            }
        }
        assert_eq!(read(key), Some((None, key)));
        assert_eq!(total_len(|i| key[i]), Some(len));
    }
}
