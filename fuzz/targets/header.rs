//! Message headers: bytes that decode, encode to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ucp::wire::ib_port::PortLocator;
use ucp::wire::header::{
    AmImm, AmoHdr, DataHdr, FragmentHdr, GetHdr, Kind, NoteHdr, RailImm, RtrDeviceHdr, RtrHdr,
    RtsHdr, SplitCopyHdr, SignalHdr, SyncHdr, ValueHdr,
};
use ucp::wire::rts_keys::{self, RailStadds};

/// Decodes a message as its receiver does: the header of its kind, then the payload.
macro_rules! check {
    ($header:ident, $body:expr) => {
        match $header::decode($body) {
            Some(header) => assert_eq!(header.encode(), $body[..$header::SIZE]),
            None => assert!(
                $body.len() < $header::SIZE
                    || [AmoHdr::SIZE, SignalHdr::SIZE].contains(&$header::SIZE)
            ),
        }
    };
}

/// The part behind the header of an RTS over the Tofu interconnect: a mark and the addresses that it announces, or
/// none.
fn check_rails(bytes: &[u8]) {
    let Some((mark, rest)) = bytes.split_first_chunk() else {
        return;
    };
    let Some(rails) = rts_keys::rails(u32::from_le_bytes(*mark), bytes.len()) else {
        return;
    };
    assert_eq!(rts_keys::len(rails), rest.len());
    assert_eq!(RailStadds::read(rails, rest).encode(), bytes);
}

fuzz_target!(|message: &[u8]| {
    let Some((&number, rest)) = message.split_first() else {
        return;
    };
    let Some((imm, body)) = rest.split_first_chunk() else {
        return;
    };
    let Some(kind) = Kind::from_u8(number) else {
        return;
    };
    match kind {
        Kind::TagSync | Kind::RndvCancelReq => check!(SyncHdr, body),
        Kind::TagRts | Kind::AmRts => {
            check!(RtsHdr, body);
            check_rails(body.get(RtsHdr::SIZE..).unwrap_or_default());
        }
        Kind::Rtr => check!(RtrHdr, body),
        Kind::AmFragment | Kind::TagFragment => check!(FragmentHdr, body),
        Kind::Data | Kind::GetRep => check!(DataHdr, body),
        Kind::GetReq => check!(GetHdr, body),
        Kind::AmoReq => check!(AmoHdr, body),
        Kind::Signal => check!(SignalHdr, body),
        Kind::Note => check!(NoteHdr, body),
        Kind::AmoRep => check!(ValueHdr, body),
        Kind::SplitCopy => check!(SplitCopyHdr, body),
        Kind::RtrDevice => check!(RtrDeviceHdr, body),
        Kind::RailReq | Kind::RailRep => {
            let rail = RailImm::from_u64(u64::from_le_bytes(*imm));
            assert_eq!(rail.to_u64().to_le_bytes(), *imm);
            check!(PortLocator, body);
        }
        Kind::AmEager => {
            let am = AmImm::from_u64(u64::from_le_bytes(*imm));
            assert_eq!(am.to_u64().to_le_bytes(), *imm);
            if let Some((data, header)) = am.split(body) {
                assert_eq!(
                    (data.len() + header.len(), header.len()),
                    (body.len(), am.header_len.into())
                );
            }
        }
        _ => assert_eq!(kind.header_size(), 0),
    }
});
