//! Packed remote keys: raw bytes, the same bytes with right checksums, and each section alone.
#![no_main]

use crc::{CRC_8_SMBUS, Crc};
use libfuzzer_sys::fuzz_target;
use ucp::tl::ib::rkey::IbRkey;
use ucp::tl::ofi::rkey::OfiRkeys;
use ucp::tl::rkey::{RkeyMemory, UnpackedRkey, total_len};
use ucp::tl::shm::rkey::ShmRkey;
use ucp::tl::tofu::rkey::TofuRkey;
use ucp::wire::rkey::{FABRIC, MAX_LEN, OUTER, RkeyKind};

fn at(bytes: &[u8]) -> impl Fn(usize) -> u8 + '_ {
    |i| bytes.get(i).copied().unwrap_or(0)
}

/// An accepted key encodes to the same bytes.
fn check(bytes: &[u8]) -> bool {
    let Some(rkey) = UnpackedRkey::decode(bytes) else {
        return false;
    };
    let len = total_len(at(bytes)).expect("it was read");
    let has_section = rkey.ib.is_some() || rkey.tofu.is_some() || rkey.ofi.is_some();
    let is_exported = matches!(rkey.memory, RkeyMemory::Exported(_));
    assert!(len <= MAX_LEN || has_section || is_exported);
    assert_eq!(rkey.encode(), bytes[..len]);
    true
}

/// Accepted sections encode to the same bytes, and state their length.
fn check_sections(bytes: &[u8]) {
    if let Some(ib) = IbRkey::decode(bytes) {
        assert_eq!(ib.encode().as_deref(), Some(bytes));
        assert_eq!(IbRkey::section_len(&at(bytes)), Some(bytes.len()));
    }
    if let Some(tofu) = TofuRkey::decode(bytes) {
        assert_eq!(tofu.encode(), bytes);
        assert_eq!(TofuRkey::section_len(&at(bytes)), Some(bytes.len()));
    }
    if let Some(ofi) = OfiRkeys::decode(bytes) {
        assert_eq!(ofi.encode(), bytes);
        assert_eq!(OfiRkeys::section_len(&at(bytes)), Some(bytes.len()));
    }
    for kind in [RkeyKind::Segment, RkeyKind::Block] {
        if let Some(body) = bytes.get(..kind.body_len())
            && let Some(shm) = ShmRkey::decode(kind, body)
        {
            let (again, encoded) = shm.encode().expect("it was decoded");
            assert_eq!((again, &encoded[..]), (kind, body));
        }
    }
}

fn seal(key: &mut [u8]) {
    let covered = [&key[..1], &key[2..]].concat();
    key[1] = Crc::<u8>::new(&CRC_8_SMBUS).checksum(&covered);
}

/// The key with right checksums, and the number of bytes of its outer sections; `None` if its length is none.
fn sealed(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut key = bytes.get(..total_len(at(bytes))?)?.to_vec();
    let fabric = match key[0] {
        FABRIC => 2 + OfiRkeys::section_len(&at(&key[2..]))?,
        _ => 0,
    };
    let outer = match key[fabric] {
        OUTER => fabric + 2 + TofuRkey::section_len(&at(&key[fabric + 2..]))?,
        _ => fabric,
    };
    // From the inside out.
    seal(&mut key[outer..]);
    if outer > fabric {
        seal(&mut key[fabric..]);
    }
    if fabric > 0 {
        seal(&mut key);
    }
    Some((key, outer))
}

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    check_sections(bytes);
    let Some((key, outer)) = sealed(bytes) else {
        assert!(!check(bytes));
        return;
    };
    let accepted = check(&key);
    // With an inner section more has to be right than the checksum; a block has no descriptor.
    let possible = match key[outer] {
        b'E' | b'P' | b'S' => true,
        b'B' => key[outer + 2..outer + 4] == [0, 0],
        _ => accepted,
    };
    assert_eq!(
        accepted, possible,
        "right checksums are all that a key needs"
    );
});
