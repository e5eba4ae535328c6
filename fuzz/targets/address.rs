//! Worker addresses: raw bytes, and the same bytes as sections between a right prefix and checksum; with the bodies of
//! the sections as they are, and as the transports decode them.
#![no_main]

use crc::{CRC_32_ISO_HDLC, Crc};
use libfuzzer_sys::fuzz_target;
use ucp::tl::address::WorkerAddress;
use ucp::wire::address::{MAX_LEN, PackedAddress, VERSION, total_len};

/// An accepted address must decode to the same after another round.
fn check(blob: &[u8]) {
    let Some(Ok(len)) = blob.first_chunk().map(total_len) else {
        assert!(PackedAddress::decode(blob).is_err() && WorkerAddress::decode(blob).is_err());
        return;
    };
    assert!(len <= MAX_LEN);
    let Ok(mut packed) = PackedAddress::decode(blob) else {
        assert!(WorkerAddress::decode(blob).is_err());
        return;
    };
    // A foreign name may be longer than this library's.
    packed.name = packed.name.filter(|name| name.len() <= 64);
    assert_eq!(PackedAddress::decode(&packed.encode()).as_ref(), Ok(&packed));
    if let Ok(mut address) = WorkerAddress::decode(blob) {
        address.name = address.name.filter(|name| name.len() <= 64);
        assert_eq!(WorkerAddress::decode(&address.encode()), Ok(address));
    }
}

/// Fuzzing alone does not find checksums: adds a valid prefix and checksum around the sections.
fn repaired(body: &[u8]) -> Vec<u8> {
    let len = body.len() as u32 + 8;
    let prefix = 0xCB | VERSION << 8 | len << 12 | (len ^ 1023) << 22;
    let mut blob = [&prefix.to_le_bytes(), body].concat();
    let checksum = Crc::<u32>::new(&CRC_32_ISO_HDLC).checksum(&blob);
    blob.extend(checksum.to_le_bytes());
    blob
}

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    if (8..=MAX_LEN - 8).contains(&bytes.len()) {
        check(&repaired(bytes));
    }
});
