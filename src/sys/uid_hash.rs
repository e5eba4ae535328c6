//! Hash of worker uids and other random numbers that processes have chosen.
#![forbid(unsafe_code)]

use std::hash::{BuildHasher, Hasher, RandomState};

/// Makes the hash of numbers by one multiplication. Its two random numbers differ from map to map, so that no process
/// can choose numbers that collide.
#[derive(Clone, Copy, Debug)]
pub struct UidHash {
    mask: u64,
    factor: u64,
}

impl Default for UidHash {
    fn default() -> Self {
        let random = RandomState::new();
        Self {
            mask: random.hash_one(1),
            factor: random.hash_one(2) | 1,
        }
    }
}

impl BuildHasher for UidHash {
    type Hasher = UidHasher;

    #[inline]
    fn build_hasher(&self) -> UidHasher {
        UidHasher {
            with: *self,
            hash: 0,
        }
    }
}

/// The hasher of [`UidHash`].
pub struct UidHasher {
    with: UidHash,
    hash: u64,
}

impl Hasher for UidHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.hash
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        // Both halves of the product: a table uses the upper bits of the hash and the lower ones.
        let masked = self.hash.rotate_left(8) ^ number ^ self.with.mask;
        let product = u128::from(masked) * u128::from(self.with.factor);
        self.hash = product as u64 ^ (product >> 64) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Numbers that differ in few bits, at either end, have hashes that differ at both ends.
    #[test]
    fn similar_numbers_have_different_hashes() {
        let hash = UidHash::default();
        for shift in [0, 20, 56] {
            let of = |bits: u32| {
                let hashes = (0..128_u64).map(|i| hash.hash_one(i << shift));
                let parts: HashSet<u64> = hashes.map(|h| h.rotate_left(bits) & 0xFFFF).collect();
                parts.len()
            };
            assert!(of(0) > 64 && of(16) > 64, "{shift}: {} {}", of(0), of(16));
        }
        assert_ne!(hash.hash_one(7_u64), UidHash::default().hash_one(7_u64));
    }
}
