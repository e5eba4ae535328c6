//! Puts, gets and atomic operations by an adapter: keys, and what is posted.

use super::Token;
use super::amo::AmoOp;
use crate::wire::ib_port::MAX_PORTS;

/// A kind of adapter that accesses memory of peers. As wide as an address, so that a path that is either is passed in
/// registers.
#[repr(usize)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RmaDevice {
    Ib,
    Tofu,
    /// A provider of libfabric.
    Ofi,
}

impl RmaDevice {
    /// The kind whose adapters execute atomic operations on regions that their keys say so of, and on no others. On
    /// these regions nothing else executes any.
    pub const EXECUTOR: RmaDevice = RmaDevice::Tofu;
}

/// What an adapter needs, besides its address, to access memory of a peer.
#[derive(Clone, Copy, Debug, Default)]
pub enum RmaKey {
    /// No adapter accesses it.
    #[default]
    None,
    /// The rkey for each port of the peer; 0: none.
    Rkeys([u32; MAX_PORTS]),
    /// The STADD of its first byte, in place of the address.
    Stadd(u64),
    /// The key of the memory's registration.
    Mr(MrKey),
}

/// The key of a memory registration of libfabric, `fi_mr_key`, in whose domain it is valid, and how memory is addressed
/// by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MrKey {
    key: u64,
    /// `base` in the lower [`BASE_BITS`](Self::BASE_BITS), and `number` above.
    base_and_number: u64,
}

/// The keys of a message that a peer's providers read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrKeys {
    /// For the interface of the lane.
    pub first: MrKey,
    /// For that of a rail, if it reads parts of the message.
    pub rail: Option<MrKey>,
}

/// The kind of a packed [`RmaKey`].
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RmaKeyKind {
    /// Rkeys, or none.
    Rkeys,
    Stadd,
    Mr,
}

impl MrKey {
    /// Bits of an address of a process.
    const BASE_BITS: u32 = 48;

    /// A key that is valid in the domain of the owner's interface with this number. `base`: what is subtracted from
    /// an address of the owner's process: where the registration begins, or 0 if the provider takes addresses of the
    /// process (`FI_MR_VIRT_ADDR`). `None`: the address is too large.
    pub fn new(key: u64, base: u64, number: u16) -> Option<MrKey> {
        let number = u64::from(number) << Self::BASE_BITS;
        (base >> Self::BASE_BITS == 0).then_some(MrKey {
            key,
            base_and_number: base | number,
        })
    }

    /// What the provider calls the key.
    #[inline(always)]
    pub fn key(self) -> u64 {
        self.key
    }

    /// Number of the owner's interface in whose domain the key is valid.
    #[inline(always)]
    pub fn number(self) -> u16 {
        (self.base_and_number >> Self::BASE_BITS) as u16
    }

    /// The key in words: those of the provider's, then those of the base and the number.
    #[inline(always)]
    pub fn words(self) -> [u32; 4] {
        let MrKey {
            key,
            base_and_number: base,
        } = self;
        [key, key >> u32::BITS, base, base >> u32::BITS].map(|word| word as u32)
    }

    /// The key with these [words](Self::words).
    #[inline(always)]
    pub fn of_words(words: [u32; 4]) -> MrKey {
        let [key, key_high, base, base_high] = words.map(u64::from);
        MrKey {
            key: key | key_high << u32::BITS,
            base_and_number: base | base_high << u32::BITS,
        }
    }

    /// What an operation on this address of the owner's process passes to the provider.
    #[inline(always)]
    pub fn offset(self, addr: u64) -> u64 {
        let base = self.base_and_number & ((1 << Self::BASE_BITS) - 1);
        addr.wrapping_sub(base)
    }
}

impl MrKeys {
    /// Bytes of a key in an RTS.
    pub const KEY: usize = 4 * size_of::<u32>();
    /// Bytes of the most keys.
    pub const MOST: usize = 2 * Self::KEY;

    /// How many keys take so many bytes. `None`: none do.
    pub fn count(bytes: usize) -> Option<u8> {
        match bytes {
            Self::KEY => Some(1),
            Self::MOST => Some(2),
            _ => None,
        }
    }

    /// The keys in an RTS.
    pub fn encode(&self) -> Vec<u8> {
        let keys = [Some(self.first), self.rail].into_iter().flatten();
        keys.flat_map(MrKey::words)
            .flat_map(u32::to_le_bytes)
            .collect()
    }

    /// Decodes the keys in an RTS. `None`: they are too few bytes.
    pub fn decode(bytes: &[u8]) -> Option<MrKeys> {
        let key = |at: usize| {
            let key: &[u8; Self::KEY] = bytes.get(at..)?.first_chunk()?;
            let word = |i: usize| u32::from_le_bytes([0, 1, 2, 3].map(|j| key[4 * i + j]));
            Some(MrKey::of_words([0, 1, 2, 3].map(word)))
        };
        let (first, rail) = (key(0)?, key(Self::KEY));
        Some(MrKeys { first, rail })
    }
}

impl RmaKey {
    /// The key in fewer bytes, for a request: its kind, and its words. [`unpack`](Self::unpack) gets them.
    #[inline(always)]
    pub fn pack(self) -> (RmaKeyKind, [u32; MAX_PORTS]) {
        match self {
            RmaKey::None => (RmaKeyKind::Rkeys, [0; MAX_PORTS]),
            RmaKey::Rkeys(rkeys) => (RmaKeyKind::Rkeys, rkeys),
            RmaKey::Stadd(stadd) => {
                let mut words = [0; MAX_PORTS];
                (words[0], words[1]) = (stadd as u32, (stadd >> u32::BITS) as u32);
                (RmaKeyKind::Stadd, words)
            }
            RmaKey::Mr(key) => (RmaKeyKind::Mr, key.words()),
        }
    }

    /// The key that was packed; rkeys of 0 if it was none.
    #[inline(always)]
    pub fn unpack(kind: RmaKeyKind, words: [u32; MAX_PORTS]) -> RmaKey {
        match kind {
            RmaKeyKind::Rkeys => RmaKey::Rkeys(words),
            RmaKeyKind::Stadd => {
                let (low, high) = (u64::from(words[0]), u64::from(words[1]));
                RmaKey::Stadd(low | high << u32::BITS)
            }
            RmaKeyKind::Mr => RmaKey::Mr(MrKey::of_words(words)),
        }
    }

    /// The rkey for a port of the peer.
    #[inline(always)]
    pub(super) fn of_port(&self, port: usize) -> Option<u32> {
        match self {
            RmaKey::Rkeys(rkeys) => rkeys.get(port).copied().filter(|&rkey| rkey != 0),
            RmaKey::None | RmaKey::Stadd(_) | RmaKey::Mr(_) => None,
        }
    }

    /// The key of the memory's registration.
    #[inline(always)]
    pub(super) fn mr(&self) -> Option<MrKey> {
        match self {
            RmaKey::Mr(key) => Some(*key),
            RmaKey::None | RmaKey::Rkeys(_) | RmaKey::Stadd(_) => None,
        }
    }

    /// The STADD of the first byte.
    #[inline(always)]
    pub(super) fn stadd(&self) -> Option<u64> {
        match self {
            RmaKey::Stadd(stadd) => Some(*stadd),
            RmaKey::None | RmaKey::Rkeys(_) | RmaKey::Mr(_) => None,
        }
    }
}

/// What an adapter of a peer needs, besides its address, to execute atomic operations on a word.
#[derive(Clone, Copy, Debug)]
pub enum AmoKey {
    /// One of the ports of the mask executes them.
    Rkey { rkey: u32, port_mask: u8 },
    /// The STADD of the word, in place of the address.
    Stadd(u64),
    /// The key of the memory's registration.
    Mr(MrKey),
}

/// An atomic operation on a word of the peer's memory.
#[derive(Clone, Copy)]
pub struct AmoPost {
    pub addr: u64,
    pub key: AmoKey,
    pub amo: AmoOp,
    /// Where the previous value goes, and the token of the operation that completes then; `None`: nothing waits.
    pub reply: Option<(*mut u8, Token)>,
}

/// A put or get that is posted in part.
pub struct RmaPart<'a> {
    /// A put.
    pub writes: bool,
    /// The memory of the request with this token, if it is contiguous; else null.
    pub data: *mut u8,
    pub len: usize,
    pub token: Token,
    /// The first byte of the peer's memory.
    pub addr: u64,
    pub key: &'a RmaKey,
    /// Bytes that are posted.
    pub offset: &'a mut u64,
    /// Posted operations that the lane will report by the token.
    pub outstanding: &'a mut u32,
}

impl RmaPart<'_> {
    /// Posts the rest by copies through buffers of the lane: `post` gets the offset of a piece in both memories, its
    /// first byte here, and the bytes from there on, and returns how many of them it has posted; 0: there is no room.
    /// Returns whether all is posted.
    ///
    /// # Safety
    /// `len` bytes are at `data`.
    #[inline(always)]
    pub(super) unsafe fn by_copies(
        self,
        mut post: impl FnMut(u64, *mut u8, usize) -> usize,
    ) -> bool {
        while (*self.offset as usize) < self.len {
            let at = *self.offset as usize;
            // SAFETY: the piece is within the caller's memory.
            let here = unsafe { self.data.add(at) };
            let n = post(*self.offset, here, self.len - at);
            if n == 0 {
                return false;
            }
            *self.offset += n as u64;
            // A put is complete when it is posted.
            *self.outstanding += u32::from(!self.writes);
        }
        true
    }
}

/// Which option limits the number of devices that share a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Striping {
    /// That of puts and gets.
    Rma,
    /// That of messages.
    Rndv,
    /// The transfer is not shared.
    Never,
}

/// What the progress of a worker has to do for the rails of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RailWork {
    /// Rails are to be requested.
    Request,
    /// The device has refused an operation: the rail with this interface and queue pair is to be closed.
    Close((usize, u32)),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_rts_has_one_key_or_two() {
        let key = |n: u64| MrKey::new(n << 40 | 5, n << 20, n as u16).unwrap();
        for rail in [None, Some(key(2))] {
            let first = key(1);
            let keys = MrKeys { first, rail };
            let bytes = keys.encode();
            assert_eq!(MrKeys::decode(&bytes), Some(keys));
            assert_eq!(
                MrKeys::count(bytes.len()),
                Some(1 + u8::from(rail.is_some()))
            );
            assert_eq!(MrKeys::decode(&bytes[..MrKeys::KEY - 1]), None);
        }
        for bytes in [0, MrKeys::KEY - 4, MrKeys::KEY + 4, 3 * MrKeys::KEY] {
            assert_eq!(MrKeys::count(bytes), None);
        }
    }
}
