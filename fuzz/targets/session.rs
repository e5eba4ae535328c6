//! Messages between clients and listeners: bytes that decode encode to the same bytes and are within their limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ucp::wire::address::MAX_LEN;
use ucp::wire::cm_msg::{Hello, MAGIC, NUMBER_BITS, Reply, begins};
use ucp::wire::header::EpImm;

fn check(bytes: &[u8]) {
    if let Some(hello) = Hello::decode(bytes) {
        assert_eq!(hello.encode(), bytes[..Hello::SIZE]);
        assert!(begins(bytes) && usize::from(hello.address_len) <= MAX_LEN);
        assert!(hello.number >> NUMBER_BITS == 0 && hello.err_mode <= 2);
    }
    if let Some(reply) = Reply::decode(bytes) {
        assert_eq!(reply.encode(), bytes[..Reply::SIZE]);
        assert!(begins(bytes) && usize::from(reply.address_len) <= MAX_LEN && reply.status <= 0);
    }
    // A valid beginning is that of a message.
    let n = bytes.len().min(8);
    assert_eq!(begins(bytes), bytes[..n] == MAGIC.to_le_bytes()[..n]);
}

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    check(&[&MAGIC.to_le_bytes()[..], bytes].concat());
    if let Some(imm) = bytes.first_chunk().map(|b| u64::from_le_bytes(*b)) {
        assert_eq!(EpImm::from_u64(imm).to_u64(), imm & 0xFFFF_FFFF);
    }
});
