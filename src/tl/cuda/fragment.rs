//! A part of an operation's bytes in host memory, between devices and the processor.

use crate::sys::cuda::{Event, Pinned};
use std::ops::Range;

/// Some bytes of the operation, in host memory.
pub(super) struct Fragment {
    pub buffer: Pinned,
    /// The bytes of the operation that are in the buffer.
    pub bytes: Range<usize>,
    /// Where the copies of the fragment end: the numbers of their streams, and marks there.
    pub marks: Vec<(usize, Event)>,
    pub phase: Phase,
}

impl Fragment {
    /// The bytes in a buffer that no copy uses yet.
    pub fn new(buffer: Pinned, bytes: Range<usize>, phase: Phase) -> Fragment {
        Fragment {
            buffer,
            bytes,
            marks: Vec::new(),
            phase,
        }
    }
}

/// What uses the buffer of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The processor writes into it; no device has begun to copy.
    Processor,
    /// Devices copy until the marks are passed.
    Device,
    /// The copies of devices have ended. The processor may read it.
    Copied,
}
