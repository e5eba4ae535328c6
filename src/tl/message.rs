//! A received message.

use crate::wire::frame::{self, HEADER};

/// A message as a transport delivers it. `record` points into a ring, a packet or a buffer of the transport, and is
/// valid until the layer above returns. Another process may be able to write there, so that its bytes are copied before
/// they are checked.
#[derive(Clone, Copy)]
pub struct Message {
    /// Kind, auxiliary byte and immediate as `wire::header` has them.
    pub kind: u8,
    pub aux: u8,
    pub imm: u64,
    /// Bytes of the record.
    pub len: usize,
    pub record: *const u8,
}

impl Message {
    /// The message in a packet that has one frame. `None`: it is malformed.
    #[inline(always)]
    pub fn in_packet(packet: &[u8]) -> Option<Message> {
        let (head, record) = packet.split_first_chunk::<HEADER>()?;
        let frame = frame::decode(head).filter(|frame| frame.len == record.len())?;
        Some(Message {
            kind: frame.kind as u8,
            aux: frame.aux,
            imm: frame.imm,
            len: frame.len,
            record: record.as_ptr(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::header::Kind;

    #[test]
    fn malformed_packets_are_no_messages() {
        let head = |kind, len| frame::encode(kind, 0, 0, len).to_vec();
        let eager = Kind::TagEager as u8;
        assert!(Message::in_packet(&[head(eager, 8), vec![0; 8]].concat()).is_some());
        for wrong in [
            vec![],
            head(eager, 8)[..HEADER - 1].to_vec(),
            head(eager, 8),
            [head(eager, 8), vec![0; 7]].concat(),
            [head(eager, 8), vec![0; 9]].concat(),
            [head(200, 8), vec![0; 8]].concat(),
        ] {
            assert!(Message::in_packet(&wrong).is_none(), "{wrong:?}");
        }
    }
}
