//! Packed remote keys: raw bytes, and the same bytes with a right checksum.
#![no_main]

use crc::{CRC_8_SMBUS, Crc};
use libfuzzer_sys::fuzz_target;
use ucp::wire::rkey::{MAX_KEYED_LEN, MAX_LEN, PackedRkey, encoded_len, read, total_len};
use ucp::wire::rkey_tofu;

/// An accepted key with keys of devices encodes to the same bytes.
fn check_keyed(bytes: &[u8]) {
    let Some((rkey, Some(device))) = read(bytes) else {
        return;
    };
    let len = total_len(|i| bytes[i]).expect("it was read");
    assert!(len <= MAX_KEYED_LEN);
    let (again, again_len) = rkey.encode_with(&device).expect("it was decoded");
    assert_eq!(again[..again_len], bytes[..len]);
}

/// An accepted key encodes to the same bytes.
fn check(bytes: &[u8]) -> bool {
    let Some(len) = bytes.first().copied().and_then(encoded_len) else {
        assert_eq!(PackedRkey::decode(bytes), None);
        return false;
    };
    assert!(len <= MAX_LEN);
    let Some(rkey) = PackedRkey::decode(bytes) else {
        return false;
    };
    let (again, again_len) = rkey.encode().expect("it was decoded");
    assert_eq!(again[..again_len], bytes[..len]);
    true
}

/// An accepted key with a Tofu section encodes to the same bytes.
fn check_tofu_section(bytes: &[u8]) {
    let Some(len) = rkey_tofu::total_len(|i| bytes.get(i).copied().unwrap_or(0)) else {
        return;
    };
    if let Some(bytes) = bytes.get(..len)
        && let Some((Some(steering), key)) = rkey_tofu::read(bytes)
    {
        assert_eq!(steering.around(key), bytes);
    }
}

fuzz_target!(|bytes: &[u8]| {
    check_tofu_section(bytes);
    if bytes.first() == Some(&b'k') && bytes.len() > 2 {
        let mut key = bytes.to_vec();
        let covered = [&key[..1], &key[2..]].concat();
        key[1] = Crc::<u8>::new(&CRC_8_SMBUS).checksum(&covered);
        check_tofu_section(&key);
    }
    check(bytes);
    check_keyed(bytes);
    if let Some(len) = total_len(|i| bytes.get(i).copied().unwrap_or(0))
        && let Some(key) = bytes.get(..len)
    {
        let mut key = key.to_vec();
        let covered = [&key[..1], &key[2..]].concat();
        key[1] = Crc::<u8>::new(&CRC_8_SMBUS).checksum(&covered);
        check_keyed(&key);
    }
    let Some(len) = bytes.first().copied().and_then(encoded_len) else {
        return;
    };
    if let Some(key) = bytes.get(..len) {
        let mut key = key.to_vec();
        let covered = [&key[..1], &key[2..]].concat();
        key[1] = Crc::<u8>::new(&CRC_8_SMBUS).checksum(&covered);
        // A block has no descriptor.
        let possible = key[0] != b'B' || key[2..4] == [0, 0];
        assert_eq!(
            check(&key),
            possible,
            "a right checksum is all that a key needs"
        );
    }
});
