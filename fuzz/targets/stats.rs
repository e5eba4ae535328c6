//! Statistics pages: raw bytes, and the same bytes behind a valid header.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ucp::wire::stats::{self, ENTRIES, decode, header};

fn check(page: &[u8]) {
    let Ok(worker) = decode(page) else { return };
    assert!(worker.peers.len() <= ENTRIES);
    let texts = worker.peers.iter().flat_map(|peer| &peer.lanes);
    for text in texts.chain([&worker.name, &worker.context]) {
        assert!(!text.chars().any(char::is_control));
    }
}

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    let mut page = vec![0; stats::HEADER_LEN];
    let n = bytes.len().min(stats::HEADER_LEN);
    page[..n].copy_from_slice(&bytes[..n]);
    page[..8].copy_from_slice(&stats::MAGIC.to_le_bytes());
    page[header::VERSION..][..4].copy_from_slice(&stats::VERSION.to_le_bytes());
    // The same bytes once more as entries.
    page.extend_from_slice(bytes);
    check(&page);
});
