//! Bytes of worker addresses, valid and invalid.

use super::*;

const PLAIN: PackedAddress<'_> = PackedAddress {
    uid: 9,
    client_id: None,
    name: None,
    sections: Vec::new(),
};

fn sealed(sections: &[u8]) -> Vec<u8> {
    seal([&[0; PREFIX], &9u64.to_le_bytes()[..], sections].concat())
}

#[test]
fn sections_keep_their_order() {
    let section = |kind, body| AddressSection {
        kind,
        body: Cow::Borrowed(body),
    };
    let sections = vec![
        section(200, &[1, 2, 3][..]),
        section(3, &[]),
        section(200, &[4]),
    ];
    let address = PackedAddress { sections, ..PLAIN };
    let blob = address.encode();
    assert_eq!(blob, sealed(&[200, 3, 1, 2, 3, 3, 0, 200, 1, 4]));
    assert_eq!(PackedAddress::decode(&blob), Ok(address));
}

#[test]
fn sections_that_make_no_sense_are_refused() {
    let wrong: [&[u8]; 5] = [
        &[200],
        &[200, 1],
        &[CLIENT_ID, 2, 0, 0],
        &[NAME, 1, 0xFF],
        &[0, 0, 0],
    ];
    for sections in wrong {
        assert_eq!(
            PackedAddress::decode(&sealed(sections)),
            Err(AddressError::Malformed),
            "{sections:?}"
        );
    }
}

#[test]
fn no_worker_has_the_uid_0() {
    let blob = PackedAddress { uid: 0, ..PLAIN }.encode();
    assert_eq!(PackedAddress::decode(&blob), Err(AddressError::Malformed));
}

#[test]
fn names_are_cut_between_characters() {
    let named = |name: &str| PackedAddress {
        name: Some(name.to_owned().into()),
        ..PLAIN
    };
    let long = format!("x{}", "ü".repeat(100));
    let cut = format!("x{}", "ü".repeat(31));
    assert_eq!(
        PackedAddress::decode(&named(&long).encode()),
        Ok(named(&cut))
    );
}

#[test]
fn the_prefix_shows_the_error() {
    let word = |magic: u32, version: u32, len: u32, inverted: u32| {
        total_len(&(magic | version << 8 | len << 12 | inverted << 22).to_le_bytes())
    };
    let inverted = |len: u32| len ^ 1023;
    assert_eq!(word(MAGIC, VERSION, 16, inverted(16)), Ok(16));
    assert_eq!(word(MAGIC, VERSION, 1023, inverted(1023)), Ok(1023));
    assert_eq!(
        word(MAGIC, VERSION, 15, inverted(15)),
        Err(AddressError::Length)
    );
    assert_eq!(
        word(MAGIC, VERSION, 16, inverted(17)),
        Err(AddressError::Length)
    );
    assert_eq!(
        word(MAGIC, VERSION + 1, 16, inverted(16)),
        Err(AddressError::Version)
    );
    assert_eq!(
        word(0, VERSION, 16, inverted(16)),
        Err(AddressError::Foreign)
    );
}
