//! Frames of TCP: bytes that decode, encode to the same bytes and are within their limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ucp::wire::frame::{self, HEADER, MAX_BULK, MAX_RECORD};
use ucp::wire::tcp_hello::{self, Answer, TcpHello};

fuzz_target!(|bytes: &[u8]| {
    if let Some(hello) = TcpHello::decode(bytes) {
        assert_eq!(hello.encode(), bytes[..TcpHello::SIZE]);
        let to = (hello.to, hello.secret);
        assert!(
            tcp_hello::is_for(&hello, to.0, to.1)
                == (hello.purpose != tcp_hello::TO_LISTENER)
        );
        assert!(!tcp_hello::is_for(&hello, to.0, !to.1));
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
