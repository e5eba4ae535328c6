//! Frames: the encoding of messages in a stream of bytes.
//!
//! `length (4) | kind (1) | aux (1) | 0 (2) | imm (8)`, then the record: the fixed header of the kind and
//! the payload, as in a slot of a ring.
#![forbid(unsafe_code)]

use super::header::Kind;

/// Bytes in front of a record.
pub const HEADER: usize = 16;
/// Longest record that is handled as a whole, and so has to fit into a buffer: an eager message with its user header.
pub const MAX_RECORD: usize = (1 << 20) + (16 << 10);
/// Longest record of a kind that can be handled in parts.
pub const MAX_BULK: usize = (1 << 20) + 64;

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: Kind,
    pub aux: u8,
    pub imm: u64,
    /// Bytes of the record, at least those of the kind's fixed header.
    pub len: usize,
}

/// The bytes in front of a record of `len` bytes.
#[inline]
pub fn encode(kind: u8, aux: u8, imm: u64, len: usize) -> [u8; HEADER] {
    let word = len as u64 | u64::from(kind) << 32 | u64::from(aux) << 40;
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(&word.to_le_bytes());
    bytes[8..].copy_from_slice(&imm.to_le_bytes());
    bytes
}

/// Decodes a head; `None` for a value that no sender writes. Lengths are checked here.
#[inline]
pub fn decode(bytes: &[u8; HEADER]) -> Option<Frame> {
    let (word, imm) = bytes.split_first_chunk::<8>()?;
    let word = u64::from_le_bytes(*word);
    let kind = Kind::from_u8((word >> 32) as u8)?;
    let len = word as u32 as usize;
    let max = if in_pieces(kind) {
        MAX_BULK
    } else {
        MAX_RECORD
    };
    (word >> 48 == 0 && len >= kind.header_size() && len <= max).then_some(Frame {
        kind,
        aux: (word >> 40) as u8,
        imm: u64::from_le_bytes(*imm.first_chunk()?),
        len,
    })
}

/// Whether a record of this kind can be handled in parts: its bytes have a known destination.
pub const fn in_pieces(kind: Kind) -> bool {
    matches!(kind, Kind::Data | Kind::GetRep | Kind::PutReq)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_as_documented() {
        let bytes = encode(Kind::TagSync as u8, 0xFF, 0x0807_0605_0403_0201, 0x0102);
        assert_eq!(bytes, [2, 1, 0, 0, 2, 0xFF, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        let frame = decode(&bytes).unwrap();
        assert_eq!(
            (frame.kind, frame.aux, frame.len),
            (Kind::TagSync, 0xFF, 0x0102)
        );
        assert_eq!(frame.imm, 0x0807_0605_0403_0201);
    }

    #[test]
    fn impossible_frames_are_refused() {
        let wrong = [
            encode(0, 0, 0, 8),
            encode(200, 0, 0, 8),
            encode(Kind::TagEager as u8, 0, 0, MAX_RECORD + 1),
            encode(Kind::Data as u8, 0, 0, MAX_BULK + 1),
            encode(Kind::TagSync as u8, 0, 0, 7),
            [8, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ];
        for bytes in wrong {
            assert_eq!(decode(&bytes), None, "{bytes:?}");
        }
        assert!(decode(&encode(Kind::TagEager as u8, 0, 0, MAX_RECORD)).is_some());
        assert!(decode(&encode(Kind::Data as u8, 0, 0, MAX_BULK)).is_some());
    }
}
