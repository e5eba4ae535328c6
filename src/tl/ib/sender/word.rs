//! Short writes that carry a word, which the peer gets behind the data.

use super::{MAX_INLINE, Sender, Way};
use crate::tl::ib::rc::Remote;

impl Sender {
    /// Writes no more than [`most_at_once`](Self::most_at_once), which `fill` copies, and a word, which takes the place
    /// of a packet. False: no room now, or no queue pair of its own; `fill` was not called.
    pub fn write_with_word(
        &mut self,
        to: Remote,
        len: usize,
        word: u32,
        fill: impl FnOnce(*mut u8),
    ) -> bool {
        let Way::Rc { line, .. } = &self.way else {
            return false;
        };
        let written = match len <= (line.qp.max_inline as usize).min(MAX_INLINE) {
            true => self.write_inline_with_word(to, len, word, fill),
            false => self.write_buffer_with_word(to, len, word, fill),
        };
        match written {
            None => return false,
            Some(true) => self.get_ready(),
            Some(false) => self.break_off(),
        }
        true
    }

    /// `None`: no room. False: the device refuses.
    fn write_inline_with_word(
        &mut self,
        to: Remote,
        len: usize,
        word: u32,
        fill: impl FnOnce(*mut u8),
    ) -> Option<bool> {
        let line = self.line_to_lend(true)?;
        let mut bytes = std::mem::MaybeUninit::<[u8; MAX_INLINE]>::uninit();
        fill(bytes.as_mut_ptr().cast());
        // SAFETY: written by `fill`.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), len) };
        Some(line.write_inline_with_word(bytes, to, word))
    }

    /// The same, by a buffer.
    fn write_buffer_with_word(
        &mut self,
        to: Remote,
        len: usize,
        word: u32,
        fill: impl FnOnce(*mut u8),
    ) -> Option<bool> {
        let iface = self.iface.clone();
        let buffer = iface.packets.lock().get()?;
        let Some(line) = self.line_to_lend(true) else {
            iface.packets.lock().put(buffer);
            return None;
        };
        fill(buffer.ptr);
        Some(line.write_buffer_with_word(buffer, len, to, word))
    }
}
