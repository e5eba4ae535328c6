//! A received message.

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
