//! The bytes of packed remote keys: processes of different builds exchange them, so a change needs a new version.

use ucp::tl::ib::rkey::{IbRkey, RkeyAtomics};
use ucp::tl::ofi::rkey::{OfiRkey, OfiRkeys};
use ucp::tl::rkey::{self, RkeyMemory, UnpackedRkey};
use ucp::tl::shm::rkey::ShmRkey;
use ucp::tl::tofu::rkey::TofuRkey;

// Kind and CRC-8 are in front of each key.
const EMPTY: &[&str] = &["45 dc"];
const PLAIN: &[&str] = &["50 b7"];
/// Descriptor, inode, page numbers.
const SEGMENT_BODY: &str = "0201 14131211 2423222137333231";
/// Nothing, number, page numbers.
const BLOCK_BODY: &str = "0000 44434241 2423222137333231";
/// Count, page numbers, keys.
const PORTS: &str = "52 5453525167636261 84838281 94939291";
/// Count, ports with atomic operations, page numbers, keys.
const ATOMIC_PORTS: &str = "bc 8a 5453525167636261 a4a3a2a1 b4b3b2b1 c4c3c2c1 d4d3d2d1";
/// Count, count inverted, base, length, then number and STADD for each worker.
const STADDS: &str = "0200 fdff 0807060504030201 1817161514131211 \
                      b2b1 28272625242322c1 b4b3 38373635343332c1";
/// The same without workers; adapters execute atomic operations.
const TOFU_ATOMICS: &str = "0080 ff7f 0807060504030201 1817161514131211";
/// Count, count inverted, fabric, base, length, then number and key for each worker.
const OFI: &str =
    "0140 febf c8c7c6c5c4c3c2c1 0807060504030201 1817161514131211 b2b1 e8e7e6e5e4e3e2e1";

fn bytes(hex: &[&str]) -> Vec<u8> {
    let digits = hex.concat().replace(' ', "");
    let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(pair).collect()
}

const BASE: u64 = 0x7_2122_2324 << 12;
const LEN: u64 = 0x313_2333 << 12;

fn segment() -> RkeyMemory {
    RkeyMemory::Shared(ShmRkey::Segment {
        fd: 0x0102,
        ino: 0x1112_1314,
        base: BASE,
        len: LEN,
    })
}

fn block() -> RkeyMemory {
    RkeyMemory::Shared(ShmRkey::Block {
        number: 0x4142_4344,
        base: BASE,
        len: LEN,
    })
}

fn device_keys(keys: [u32; 4], count: u8, atomics: RkeyAtomics) -> IbRkey {
    IbRkey {
        base: 0x7_5152_5354 << 12,
        len: 0x616_2636 << 12,
        keys,
        count,
        atomics,
    }
}

fn ports() -> IbRkey {
    device_keys([0x8182_8384, 0x9192_9394, 0, 0], 2, RkeyAtomics::default())
}

fn atomic_ports() -> IbRkey {
    let atomics = RkeyAtomics {
        port_mask: 0b1010,
        alone: true,
    };
    let keys = [0xA1A2_A3A4, 0xB1B2_B3B4, 0xC1C2_C3C4, 0xD1D2_D3D4];
    device_keys(keys, 4, atomics)
}

fn tofu(atomics: bool, addresses: &[(u16, u64)]) -> TofuRkey {
    TofuRkey {
        base: 0x0102_0304_0506_0708,
        len: 0x1112_1314_1516_1718,
        atomics,
        addresses: addresses.to_vec(),
    }
}

fn stadds() -> TofuRkey {
    let addresses = [
        (0xB1B2, 0xC122_2324_2526_2728),
        (0xB3B4, 0xC132_3334_3536_3738),
    ];
    tofu(false, &addresses)
}

fn plain() -> RkeyMemory {
    RkeyMemory::Plain
}

/// Keys and their bytes.
fn all() -> Vec<(UnpackedRkey, Vec<u8>)> {
    let keys = vec![
        ((RkeyMemory::Empty, None, None), bytes(EMPTY)),
        ((plain(), None, None), bytes(PLAIN)),
        ((segment(), None, None), bytes(&["53 ea", SEGMENT_BODY])),
        ((block(), None, None), bytes(&["42 e0", BLOCK_BODY])),
        ((plain(), Some(ports()), None), bytes(&["93 89", PORTS])),
        (
            (segment(), Some(atomic_ports()), None),
            bytes(&["90 c2", ATOMIC_PORTS, SEGMENT_BODY]),
        ),
        (
            (block(), Some(ports()), None),
            bytes(&["81 47", PORTS, BLOCK_BODY]),
        ),
        (
            (plain(), None, Some(stadds())),
            bytes(&["6b a1", STADDS, PLAIN[0]]),
        ),
        (
            (segment(), None, Some(tofu(true, &[]))),
            bytes(&["6b 37", TOFU_ATOMICS, "53 ea", SEGMENT_BODY]),
        ),
        (
            (segment(), Some(atomic_ports()), Some(stadds())),
            bytes(&["6b 08", STADDS, "90 c2", ATOMIC_PORTS, SEGMENT_BODY]),
        ),
    ];
    let key = |((memory, ib, tofu), bytes)| {
        let key = UnpackedRkey {
            memory,
            ib,
            tofu,
            ofi: None,
        };
        (key, bytes)
    };
    let mut keys: Vec<_> = keys.into_iter().map(key).collect();
    let ofi = OfiRkey {
        fabric: 0xC1C2_C3C4_C5C6_C7C8,
        base: 0x0102_0304_0506_0708,
        len: 0x1112_1314_1516_1718,
        atomics: false,
        is_virtual: true,
        keys: vec![(0xB1B2, 0xE1E2_E3E4_E5E6_E7E8)],
    };
    let ofi = OfiRkeys::new(vec![ofi]).unwrap();
    let key = |memory, tofu| UnpackedRkey {
        memory,
        ib: None,
        tofu,
        ofi: Some(ofi.clone()),
    };
    keys.push((key(plain(), None), bytes(&["66 cc", OFI, PLAIN[0]])));
    let both = bytes(&["66 1d", OFI, "6b a1", STADDS, PLAIN[0]]);
    keys.push((key(plain(), Some(stadds())), both));
    keys
}

/// Length of the key that begins with these bytes. Those behind the bytes are 0.
fn total_len(bytes: &[u8]) -> Option<usize> {
    rkey::total_len(|i| bytes.get(i).copied().unwrap_or(0))
}

/// The key at the begin of `bytes`, as `ucp_ep_rkey_unpack` takes it: first its length, then the whole.
fn decode(bytes: &[u8]) -> Option<UnpackedRkey> {
    UnpackedRkey::decode(bytes.get(..total_len(bytes)?)?)
}

#[test]
fn each_key_has_its_bytes() {
    for (key, bytes) in all() {
        assert_eq!(key.encode(), bytes, "{key:?}");
        assert_eq!(total_len(&bytes), Some(bytes.len()), "{key:?}");
        assert_eq!(decode(&bytes), Some(key));
    }
}

#[test]
fn bytes_behind_a_key_are_ignored() {
    for (key, bytes) in all() {
        assert_eq!(decode(&[&*bytes, b"S\0"].concat()), Some(key));
    }
}

#[test]
fn damaged_keys_are_refused() {
    for (key, bytes) in all() {
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&damaged), None, "{key:?}: bit {bit} flipped");
        }
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes[..cut]), None, "{key:?}: cut to {cut}");
        }
    }
}

#[test]
fn fields_that_do_not_fit_are_left_out() {
    let too_high = IbRkey {
        base: 1 << 48,
        ..ports()
    };
    let no_page = IbRkey { len: 12, ..ports() };
    let no_port = IbRkey {
        atomics: RkeyAtomics {
            port_mask: 0b100,
            alone: false,
        },
        ..ports()
    };
    for ib in [too_high, no_page, no_port] {
        let key = UnpackedRkey {
            memory: plain(),
            ib: Some(ib),
            tofu: None,
            ofi: None,
        };
        assert_eq!(key.encode(), bytes(PLAIN), "{ib:?}");
    }
    let key = UnpackedRkey {
        memory: RkeyMemory::Shared(ShmRkey::Block {
            number: 1,
            base: 1 << 48,
            len: LEN,
        }),
        ib: None,
        tofu: None,
        ofi: None,
    };
    assert_eq!(key.encode(), bytes(PLAIN));
}
