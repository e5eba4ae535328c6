//! Packets: parts of a record that is too long for one, over queue pairs and in the frames of a Tofu ring.
//!
//! A packet is `length (4) | kind (1) | aux (1) | credit (2) | imm (8)` and bytes: in the first packet of a record the
//! length is the whole record's, kind, auxiliary byte and immediate are the message's; further ones are of kind
//! [`MORE`].
#![forbid(unsafe_code)]

/// Bytes in front of those of a record.
pub const HEAD: usize = 16;
/// Kind of a packet that continues a record.
pub const MORE: u8 = 0xFF;
/// Kind of a packet that only returns credits; it does not take one itself.
pub const CREDIT: u8 = 0xFE;
/// Kind of the last packet: the sender's worker is destroyed in order.
pub const BYE: u8 = 0xFD;

/// Longest record, bytes: a sender waits until all of it fits into the window.
pub const MAX_RECORD: usize = 33 << 10;

/// Most packets that a record is cut into; `segment`: bytes of it in each.
pub const fn most_packets(segment: usize) -> usize {
    MAX_RECORD.div_ceil(segment)
}

/// Header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHdr {
    /// Bytes of the whole record in its first packet; of those in this one otherwise.
    pub len: usize,
    pub kind: u8,
    pub aux: u8,
    /// Packets that the sender has received on this connection, modulo 2^16.
    pub credit: u16,
    pub imm: u64,
}

impl PacketHdr {
    #[inline(always)]
    pub fn encode(self) -> [u8; HEAD] {
        let word = self.len as u64 & 0xFFFF_FFFF
            | u64::from(self.kind) << 32
            | u64::from(self.aux) << 40
            | u64::from(self.credit) << 48;
        let mut bytes = [0; HEAD];
        bytes[..8].copy_from_slice(&word.to_le_bytes());
        bytes[8..].copy_from_slice(&self.imm.to_le_bytes());
        bytes
    }

    /// Decodes any 16 bytes; the values are checked where the record is reassembled.
    #[inline(always)]
    pub fn decode(bytes: &[u8; HEAD]) -> PacketHdr {
        let word = u128::from_le_bytes(*bytes);
        PacketHdr {
            len: word as u32 as usize,
            kind: (word >> 32) as u8,
            aux: (word >> 40) as u8,
            credit: (word >> 48) as u16,
            imm: (word >> 64) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_as_documented() {
        let head = PacketHdr {
            len: 0x0403_0201,
            kind: 5,
            aux: 6,
            credit: 0x0807,
            imm: 0x100F_0E0D_0C0B_0A09,
        };
        let bytes = head.encode();
        assert_eq!(
            bytes,
            [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
        );
        assert_eq!(PacketHdr::decode(&bytes), head);
    }
}
