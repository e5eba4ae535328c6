//! Bytes of the headers and immediates.

use super::*;

#[test]
fn numbers_and_kinds_are_one_to_one() {
    let named: Vec<u8> = (0..=u8::MAX)
        .filter(|&n| Kind::from_u8(n).is_some_and(|k| k as u8 == n))
        .collect();
    assert_eq!(named, (1..=33).collect::<Vec<u8>>());
    assert_eq!(Kind::ALL.len(), 33);
}

#[test]
fn short_signals_are_words() {
    for (cq, value) in [(0, 0), (7, 0xFFF_FFFF), (3, 5)] {
        let word = SignalWord::encode(cq, value).unwrap();
        let value = value as u32;
        assert_eq!(SignalWord::decode(word), Some(SignalWord { cq, value }));
    }
    assert_eq!(SignalWord::encode(0, 1), Some(0x8000_0001));
    assert_eq!(SignalWord::encode(8, 0), None);
    assert_eq!(SignalWord::encode(0, 1 << 28), None);
    assert_eq!(SignalWord::decode(0x7FFF_FFFF), None);
}

#[test]
fn rails_fit_into_a_word() {
    let rail = RailImm {
        qpn: 0xFF_FFFF,
        psn: 0x01_0203,
        near: 4,
        far: 5,
    };
    assert_eq!(rail.to_u64(), 0x0504_0102_03FF_FFFF);
    assert_eq!(RailImm::from_u64(rail.to_u64()), rail);
}

/// The fixed encoding of the format.
#[test]
fn bytes_are_as_documented() {
    let rts = RtsHdr {
        req: 1,
        len: 0x0203,
        addr: 0x0A09_0807_0605_0400,
        pieces: 0x0E0D_0C0B,
        waiting: 0x1211_100F,
    };
    assert_eq!(
        rts.encode(),
        [
            1, 0, 0, 0, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 0, 0, 0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13,
            14, 15, 16, 17, 18
        ]
    );
    let amo = AmoHdr {
        req: 1,
        value: 2,
        compare: 3,
        op: 4,
        size: 8,
        fetch: 1,
    };
    assert_eq!(
        amo.encode(),
        [
            1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 8, 1
        ]
    );
    assert_eq!(SyncHdr { req: 7 }.encode(), 7u64.to_le_bytes());
}

#[test]
fn headers_that_ask_for_an_answer_begin_with_the_request() {
    const ID: u64 = 0x0102_0304_0506_0708;
    fn named<const N: usize>(header: [u8; N]) -> [u8; N] {
        let mut head = [0; 32];
        head[..N].copy_from_slice(&header);
        set_request(&mut head, ID);
        *head.first_chunk().unwrap()
    }
    let sync = |req| SyncHdr { req }.encode();
    assert_eq!(named(sync(UNNAMED)), sync(ID));
    let rts = |req| {
        let (len, addr, pieces, waiting) = (!0, !0, !0, !0);
        RtsHdr {
            req,
            len,
            addr,
            pieces,
            waiting,
        }
        .encode()
    };
    assert_eq!(named(rts(UNNAMED)), rts(ID));
    let get = |req| {
        GetHdr {
            req,
            len: !0,
            offset: !0,
        }
        .encode()
    };
    assert_eq!(named(get(UNNAMED)), get(ID));
    let amo = |req| {
        let (value, compare) = (!0, !0);
        AmoHdr {
            req,
            value,
            compare,
            op: 5,
            size: 8,
            fetch: 1,
        }
        .encode()
    };
    assert_eq!(named(amo(UNNAMED)), amo(ID));
}

#[test]
fn immediates_are_as_documented() {
    let am = AmImm {
        id: 0x1234,
        header_len: 0x5678,
        flags: 0x9A,
        sn: 0xBC_DEF0,
    };
    assert_eq!(am.to_u64(), 0xBCDE_F09A_5678_1234);
    assert_eq!(AmImm::from_u64(0xBCDE_F09A_5678_1234), am);
    let ep = EpImm {
        sn: 0x12_3456,
        err_mode: 0x78,
    };
    assert_eq!(ep.to_u64(), 0x7812_3456);
    assert_eq!(EpImm::from_u64(0xFFFF_FFFF_7812_3456), ep);
    // A serial number that has outgrown its bits wraps and touches nothing else.
    assert_eq!(
        AmImm {
            sn: 0x0100_0001,
            ..am
        }
        .to_u64(),
        0x0000_019A_5678_1234
    );
    assert_eq!(
        EpImm {
            sn: 0x0100_0001,
            err_mode: 0
        }
        .to_u64(),
        1
    );
}

#[test]
fn user_headers_are_no_longer_than_the_payload() {
    let am = AmImm {
        id: 0,
        header_len: 2,
        flags: 0,
        sn: 0,
    };
    assert_eq!(am.split(b"datahd"), Some((&b"data"[..], &b"hd"[..])));
    assert_eq!(am.split(b"hd"), Some((&b""[..], &b"hd"[..])));
    assert_eq!(am.split(b"h"), None);
}

#[test]
fn impossible_atomics_are_refused() {
    let add = AmoHdr {
        req: 1,
        value: 2,
        compare: 3,
        op: 0,
        size: 8,
        fetch: 1,
    };
    assert_eq!(AmoHdr::decode(&add.encode()), Some(add));
    for wrong in [
        AmoHdr { op: 6, ..add },
        AmoHdr { size: 5, ..add },
        AmoHdr { fetch: 2, ..add },
    ] {
        assert_eq!(AmoHdr::decode(&wrong.encode()), None);
    }
}

#[test]
fn the_rest_of_a_put_is_known_by_its_bits() {
    for (bytes, aux, most) in [
        (0, 0, 0),
        (1, 1, 1),
        (5, 3, 7),
        (1 << 32, 33, (1 << 33) - 1),
    ] {
        assert_eq!(PutRest::of(bytes).aux(), aux);
        assert_eq!(PutRest::from_aux(aux).most(), most);
    }
    assert_eq!(PutRest::NONE, PutRest::of(0));
    assert_eq!(PutRest::of(u64::MAX).most(), u64::MAX);
    assert_eq!(PutRest::from_aux(255).most(), u64::MAX);
}
