//! Joins packets to records.

use crate::tl::Message;
use crate::wire::frame::MAX_RECORD;
use crate::wire::packet_hdr::{HEAD, MORE, PacketHdr};

/// The packets of the peer are no sequence of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorruptPacket;

/// A record that has arrived in part.
#[derive(Default)]
pub struct Reassembly {
    /// The bytes that have arrived; empty between two records.
    bytes: Vec<u8>,
    head: Option<PacketHdr>,
}

impl Reassembly {
    /// Takes a packet with this header and the bytes behind it. Returns the message if the packet completes one: it
    /// lies in the packet or in `self`, until the next call.
    pub fn take(
        &mut self,
        head: PacketHdr,
        bytes: &[u8],
    ) -> Result<Option<Message>, CorruptPacket> {
        match self.whole(head, bytes) {
            Some(message) => Ok(Some(message)),
            None => self.collect(head, bytes),
        }
    }

    /// The message, if the packet is all of it: it lies in the packet.
    #[inline(always)]
    pub fn whole(&self, head: PacketHdr, bytes: &[u8]) -> Option<Message> {
        let whole = self.is_empty() && head.len == bytes.len() && head.kind != MORE;
        whole.then(|| message(head, bytes))
    }

    /// Whether no record has begun: the next packet is the first of one, or all of it.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    #[inline(never)]
    fn collect(&mut self, head: PacketHdr, bytes: &[u8]) -> Result<Option<Message>, CorruptPacket> {
        match (self.head, head.kind) {
            (Some(_), MORE) => {}
            (None, kind) if kind != MORE && head.len <= MAX_RECORD => {
                self.bytes.clear();
                self.head = Some(head);
            }
            _ => return Err(CorruptPacket),
        }
        let first = self.head.ok_or(CorruptPacket)?;
        if bytes.is_empty() || bytes.len() > first.len - self.bytes.len() {
            return Err(CorruptPacket);
        }
        // The buffer grows with the bytes that arrive, not by the length that the peer claims.
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() < first.len {
            return Ok(None);
        }
        self.head = None;
        Ok(Some(message(first, &self.bytes)))
    }
}

#[inline(always)]
fn message(head: PacketHdr, bytes: &[u8]) -> Message {
    Message {
        kind: head.kind,
        aux: head.aux,
        imm: head.imm,
        len: bytes.len(),
        record: bytes.as_ptr(),
    }
}

/// The header of a packet and the bytes behind it.
#[inline(always)]
pub fn split(packet: &[u8]) -> Option<(PacketHdr, &[u8])> {
    let (head, bytes) = packet.split_first_chunk::<HEAD>()?;
    Some((PacketHdr::decode(head), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(kind: u8, len: usize) -> PacketHdr {
        PacketHdr {
            len,
            kind,
            aux: 3,
            credit: 0,
            imm: 4,
        }
    }

    fn bytes_of(message: &Message) -> Vec<u8> {
        // SAFETY: the record is in a slice of the test, or in the reassembly buffer, for `len` bytes.
        unsafe { std::slice::from_raw_parts(message.record, message.len) }.to_vec()
    }

    #[test]
    fn records_in_one_packet_and_in_several() {
        let mut assembly = Reassembly::default();
        let whole = assembly.take(head(1, 3), b"abc").unwrap().unwrap();
        assert_eq!((whole.kind, whole.aux, whole.imm), (1, 3, 4));
        assert_eq!(bytes_of(&whole), b"abc");
        let empty = assembly.take(head(1, 0), b"").unwrap().unwrap();
        assert_eq!(empty.len, 0);
        for _ in 0..2 {
            assert!(assembly.take(head(7, 6), b"ab").unwrap().is_none());
            assert!(assembly.take(head(MORE, 0), b"cd").unwrap().is_none());
            let last = assembly.take(head(MORE, 0), b"ef").unwrap().unwrap();
            assert_eq!((last.kind, bytes_of(&last)), (7, b"abcdef".to_vec()));
        }
    }

    #[test]
    fn invalid_records_are_refused() {
        let corrupt = |packets: &[(PacketHdr, &[u8])]| {
            let mut assembly = Reassembly::default();
            let mut last = Ok(false);
            for &(head, bytes) in packets {
                last = assembly.take(head, bytes).map(|m| m.is_some());
            }
            last == Err(CorruptPacket)
        };
        assert!(corrupt(&[(head(MORE, 0), b"a")]), "nothing has begun");
        assert!(corrupt(&[(head(1, 1), b"ab")]), "more than announced");
        assert!(corrupt(&[(head(1, 4), b"a"), (head(MORE, 0), b"abcd")]));
        assert!(
            corrupt(&[(head(1, 4), b"a"), (head(1, 4), b"a")]),
            "begun twice"
        );
        assert!(corrupt(&[(head(1, MAX_RECORD + 1), b"a")]));
        assert!(
            corrupt(&[(head(1, 4), b"a"), (head(MORE, 0), b"")]),
            "for ever"
        );
    }
}
