//! The verdict on a message that a peer of this library does not send.

/// A message that no version of this library sends: the connection to its sender must fail.
pub struct Malformed;
