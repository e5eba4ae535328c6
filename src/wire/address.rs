//! The worker address: the blob that a program passes to the worker's peers, and by which they reach the worker.
//!
//! `prefix (4) | uid (8) | sections | CRC-32 (4)`, a section being `kind (1) | length (1) | body`. Client id and name
//! are sections of this module; the bodies of the others are encoded and decoded by the transports
//! ([`crate::tl::address`]). Sections of an unknown kind are skipped, and so are bytes behind the known ones of a body:
//! later versions can add lanes.
//!
//! `ucp_ep_create` gets a pointer without a length, so that the length has to be in the blob itself: the prefix has it
//! twice, once inverted, and is checked before any byte behind it is read. The checksum covers everything before it;
//! CRC-32 because it finds every error of up to three bits and every burst of 32, and from the crate `crc` because that
//! is a table made at compile time, without dispatch at run time, and has the CRC-8 of the packed rkey too.
#![forbid(unsafe_code)]

use crc::{CRC_32_ISO_HDLC, Crc};
use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU64;

const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);

/// The prefix as a little-endian word: magic (8 bits), version (4), length (10), inverted length (10).
const MAGIC: u32 = 0xCB;
/// Incremented when the format of data between two workers changes: addresses, messages, rings.
pub const VERSION: u32 = 5;
const LENGTH_BITS: u32 = 10;

/// Longest address, bytes. LCI sends addresses as hexadecimal text through PMI values of 4095 bytes.
pub const MAX_LEN: usize = (1 << LENGTH_BITS) - 1;
const _: () = assert!(MAX_LEN * 2 <= 4095);

const PREFIX: usize = 4;
const CHECKSUM: usize = 4;
/// Prefix, uid and checksum: an address without sections.
const MIN_LEN: usize = PREFIX + size_of::<u64>() + CHECKSUM;

/// Longest name, bytes; longer ones are cut. Names are for debugging only.
const MAX_NAME: usize = 64;

const CLIENT_ID: u8 = 1;
const NAME: u8 = 2;

/// The code of a speed in Mb/s: 8 times its binary logarithm.
pub fn speed_code(mbps: u32) -> u8 {
    (f64::from(mbps.max(1)).log2() * 8.0).round() as u8
}

/// The speed of a code, Mb/s, to within 5 %.
pub fn mbps_of(code: u8) -> u32 {
    (f64::from(code) / 8.0).exp2() as u32
}

/// A transport's section of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressSection<'a> {
    pub kind: u8,
    /// At most 255 bytes.
    pub body: Cow<'a, [u8]>,
}

/// An address as sections. The transports encode and decode their bodies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedAddress<'a> {
    /// Unique id of the worker, not 0.
    pub uid: u64,
    /// The client id that the program gave to the worker.
    pub client_id: Option<u64>,
    /// The worker's name, if debugging information is enabled.
    pub name: Option<Cow<'a, str>>,
    /// The transports' sections, in the order of the blob.
    pub sections: Vec<AddressSection<'a>>,
}

/// Why a blob is not a worker address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressError {
    /// The prefix is wrong: it is of another library, or not an address at all.
    Foreign,
    /// It is of a later version of this library.
    Version,
    /// The length that it states is impossible, or there are fewer bytes than that.
    Length,
    /// Its checksum is wrong.
    Checksum,
    /// Its checksum is right, but its sections are invalid.
    Malformed,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AddressError::Foreign => {
                "not a worker address of this library: all processes of a job have to use it (LD_PRELOAD)"
            }
            AddressError::Version => "worker address of an unknown version",
            AddressError::Length => "worker address of a wrong length",
            AddressError::Checksum => "worker address with a wrong checksum",
            AddressError::Malformed => "worker address with malformed contents",
        })
    }
}

impl std::error::Error for AddressError {}

/// Length of the address that begins with these bytes. Bytes behind them need not be readable.
pub fn total_len(prefix: &[u8; PREFIX]) -> Result<usize, AddressError> {
    let word = u32::from_le_bytes(*prefix);
    if word & 0xFF != MAGIC {
        return Err(AddressError::Foreign);
    }
    let len = word >> 12 & MAX_LEN as u32;
    if word >> 22 != len ^ MAX_LEN as u32 || (len as usize) < MIN_LEN {
        return Err(AddressError::Length);
    }
    if word >> 8 & 0xF != VERSION {
        return Err(AddressError::Version);
    }
    Ok(len as usize)
}

fn prefix(len: usize) -> [u8; PREFIX] {
    let len = len as u32 & MAX_LEN as u32;
    (MAGIC | VERSION << 8 | len << 12 | (len ^ MAX_LEN as u32) << 22).to_le_bytes()
}

impl<'a> PackedAddress<'a> {
    /// Encodes the address. Equal addresses give equal blobs.
    pub fn encode(&self) -> Vec<u8> {
        let mut blob = vec![0; PREFIX];
        blob.extend(self.uid.to_le_bytes());
        if let Some(client_id) = self.client_id {
            push_section(&mut blob, CLIENT_ID, &client_id.to_le_bytes());
        }
        if let Some(name) = &self.name {
            push_section(&mut blob, NAME, cut(name).as_bytes());
        }
        for section in &self.sections {
            push_section(&mut blob, section.kind, &section.body);
        }
        seal(blob)
    }

    /// Decodes the address at the begin of `blob`; bytes behind it are ignored.
    pub fn decode(blob: &'a [u8]) -> Result<PackedAddress<'a>, AddressError> {
        let len = total_len(blob.first_chunk().ok_or(AddressError::Length)?)?;
        let blob = blob.get(..len).ok_or(AddressError::Length)?;
        let (covered, checksum) = blob.split_last_chunk().ok_or(AddressError::Length)?;
        if CRC.checksum(covered) != u32::from_le_bytes(*checksum) {
            return Err(AddressError::Checksum);
        }
        covered
            .get(PREFIX..)
            .and_then(decode_body)
            .ok_or(AddressError::Malformed)
    }
}

/// The first [`MAX_NAME`] bytes of a name, or up to 3 less so that no character is split.
fn cut(name: &str) -> &str {
    let ends = name
        .char_indices()
        .map(|(at, character)| at + character.len_utf8());
    let end = ends.take_while(|&end| end <= MAX_NAME).last().unwrap_or(0);
    name.get(..end).unwrap_or_default()
}

fn push_section(blob: &mut Vec<u8>, kind: u8, body: &[u8]) {
    debug_assert!(body.len() <= u8::MAX as usize);
    blob.extend([kind, body.len() as u8]);
    blob.extend(body);
}

/// Fills in the prefix and adds the checksum.
fn seal(mut blob: Vec<u8>) -> Vec<u8> {
    let len = blob.len() + CHECKSUM;
    debug_assert!(len <= MAX_LEN);
    for (to, from) in blob.iter_mut().zip(prefix(len)) {
        *to = from;
    }
    let checksum = CRC.checksum(&blob);
    blob.extend(checksum.to_le_bytes());
    blob
}

/// Decodes the bytes between prefix and checksum.
fn decode_body(body: &[u8]) -> Option<PackedAddress<'_>> {
    let (uid, mut rest) = body.split_first_chunk()?;
    // 0 is the uid of no worker: that of a peer whose address is not known yet.
    let uid = NonZeroU64::new(u64::from_le_bytes(*uid))?.get();
    let mut address = PackedAddress {
        uid,
        client_id: None,
        name: None,
        sections: Vec::new(),
    };
    while let Some((&[kind, len], behind)) = rest.split_first_chunk() {
        let (body, next) = behind.split_at_checked(len as usize)?;
        match kind {
            CLIENT_ID => address.client_id = Some(u64::from_le_bytes(*body.first_chunk()?)),
            NAME => address.name = Some(std::str::from_utf8(body).ok()?.into()),
            kind => address.sections.push(AddressSection {
                kind,
                body: body.into(),
            }),
        }
        rest = next;
    }
    rest.is_empty().then_some(address)
}

#[cfg(test)]
mod tests;
