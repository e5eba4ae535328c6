//! Frames of TCP: bytes that decode, encode to the same bytes and are within their limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ucp::wire::frame::{self, HEADER, MAX_BULK, MAX_RECORD};
use ucp::wire::tcp_hello::{self, Answer, Greeting};

fuzz_target!(|bytes: &[u8]| {
    if let Some(greeting) = Greeting::decode(bytes) {
        assert_eq!(greeting.encode(), bytes[..Greeting::SIZE]);
        let to = (greeting.to, greeting.secret);
        assert!(
            tcp_hello::is_for(&greeting, to.0, to.1)
                == (greeting.purpose != tcp_hello::TO_LISTENER)
        );
        assert!(!tcp_hello::is_for(&greeting, to.0, !to.1));
    }
    if let Some(answer) = Answer::decode(bytes) {
        assert_eq!(answer.encode(), bytes[..Answer::SIZE]);
    }
    // A stream of frames is parsed to its end, as the receiver does.
    let mut rest = bytes;
    while let Some((header, record)) = rest.split_first_chunk::<HEADER>() {
        let Some(f) = frame::decode(header) else {
            return;
        };
        let again = frame::encode(f.kind as u8, f.aux, f.imm, f.len);
        assert_eq!(&again, header);
        let most = if frame::in_pieces(f.kind) {
            MAX_BULK
        } else {
            MAX_RECORD
        };
        assert!(f.len <= most && f.len >= f.kind.header_size());
        rest = record.get(f.len..).unwrap_or_default();
    }
});
