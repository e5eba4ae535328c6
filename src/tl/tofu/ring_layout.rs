//! Where frames lie in a ring that a peer writes by puts: both ends compute it alike, without messages.
//!
//! A frame begins at a multiple of 32 bytes and is contiguous: where a frame of maximum length would not fit before the
//! end, the next one begins at the start, however short it is. From time to time the receiver puts a credit, one word,
//! to the sender.
#![forbid(unsafe_code)]

/// Frames begin at multiples of this, the bytes that a descriptor carries.
pub const GRAIN: u64 = 32;
/// Bytes at the end of a ring without frames: the count of frames lies there, and a notice about the last frame names
/// an address in the ring, whether it is that of the frame's first byte or the one behind its last.
pub const TAIL: usize = 256;

/// Parameters of a ring, known to both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLayout {
    /// Bytes of the ring's memory.
    pub size: u32,
    /// Bytes of the longest frame.
    pub packet: u32,
    /// Frames that may be in flight or unread.
    pub window: u32,
}

impl RingLayout {
    /// Whether a ring cannot stall with records of up to `frames` frames: the writer waits for room for all of them and
    /// for a skipped end, while a reader that has read everything may withhold the credit for a quarter.
    pub fn is_sound(&self, frames: u32) -> bool {
        let packet = u64::from(self.packet);
        frames > 0
            && 4 * u64::from(frames) <= 3 * u64::from(self.window)
            && packet >= 2 * GRAIN
            && packet % GRAIN == 0
            && 4 * u64::from(frames + 1) * packet <= 3 * self.data_bytes()
    }

    /// The most frames of maximum length for which [`is_sound`](Self::is_sound) holds.
    pub fn most_frames(&self) -> usize {
        let by_window = 3 * u64::from(self.window) / 4;
        let by_room = 3 * self.data_bytes() / (4 * u64::from(self.packet.max(1)));
        by_window.min(by_room.saturating_sub(1)) as usize
    }

    /// Offset of the count of frames.
    pub fn count_at(&self) -> u64 {
        u64::from(self.size) - TAIL as u64
    }

    fn data_bytes(&self) -> u64 {
        (u64::from(self.size)).saturating_sub(TAIL as u64) / GRAIN * GRAIN
    }
}

/// Position of one end in the ring.
#[derive(Clone, Debug)]
struct LayoutCursor {
    shape: RingLayout,
    /// No frame begins behind this offset.
    last: u64,
    /// Offset of the next frame, or the start if this is behind `last`.
    at: u64,
    /// Bytes in all, skipped ones included.
    bytes: u64,
    frames: u32,
}

impl LayoutCursor {
    fn new(shape: RingLayout) -> LayoutCursor {
        LayoutCursor {
            shape,
            last: shape.data_bytes().saturating_sub(shape.packet.into()),
            at: 0,
            bytes: 0,
            frames: 0,
        }
    }

    /// Offset of the next frame.
    #[inline(always)]
    fn begin(&self) -> u64 {
        if self.at > self.last { 0 } else { self.at }
    }

    /// Steps over a frame of `len` bytes: returns its offset.
    #[inline(always)]
    fn step(&mut self, len: usize) -> u64 {
        if self.at > self.last {
            self.bytes += self.shape.data_bytes() - self.at;
            self.at = 0;
        }
        let begin = self.at;
        let taken = (len as u64).next_multiple_of(GRAIN);
        self.at += taken;
        self.bytes += taken;
        self.frames = self.frames.wrapping_add(1);
        begin
    }

    /// Bytes in all after `frames` more frames, all but the last of maximum length.
    fn behind(&self, frames: usize, last: usize) -> u64 {
        let mut ahead = self.clone();
        for _ in 1..frames {
            ahead.step(self.shape.packet as usize);
        }
        ahead.step(last);
        ahead.bytes
    }
}

/// The credit word: frames modulo 2^32, and bytes in units of [`GRAIN`] modulo 2^32.
fn credit(frames: u32, bytes: u64) -> u64 {
    u64::from(frames) | (bytes / GRAIN) << 32
}

/// The sender's end.
#[derive(Clone, Debug)]
pub struct RingWriter {
    cursor: LayoutCursor,
    /// From the last credit.
    read_bytes: u64,
    read_frames: u32,
}

impl RingWriter {
    /// The writer of a ring that has no frame yet.
    pub fn new(shape: RingLayout) -> RingWriter {
        RingWriter {
            cursor: LayoutCursor::new(shape),
            read_bytes: 0,
            read_frames: 0,
        }
    }

    /// The layout that was agreed on with the receiver; it does not change.
    pub fn shape(&self) -> RingLayout {
        self.cursor.shape
    }

    /// Number of frames written.
    #[inline(always)]
    pub fn frames(&self) -> u32 {
        self.cursor.frames
    }

    /// Applies a credit word. One that claims more than was written is ignored.
    pub fn credit(&mut self, word: u64) {
        let frames = (word as u32).wrapping_sub(self.read_frames);
        let units = ((word >> 32) as u32).wrapping_sub((self.read_bytes / GRAIN) as u32);
        let bytes = u64::from(units) * GRAIN;
        if frames <= self.flying() && bytes <= self.cursor.bytes - self.read_bytes {
            self.read_frames = self.read_frames.wrapping_add(frames);
            self.read_bytes += bytes;
        }
    }

    /// Frames without a credit.
    fn flying(&self) -> u32 {
        self.cursor.frames.wrapping_sub(self.read_frames)
    }

    /// Whether `frames` frames, all but the last of maximum length, have room.
    #[inline]
    pub fn has_room(&self, frames: usize, last: usize) -> bool {
        if self.flying() as usize + frames > self.shape().window as usize {
            return false;
        }
        self.cursor.behind(frames, last) - self.read_bytes <= self.shape().data_bytes()
    }

    /// A lower bound of the number of shortest frames that have room.
    pub fn has_room_for_short(&self) -> u32 {
        let shape = self.shape();
        let taken = self.cursor.bytes - self.read_bytes;
        // Up to a frame of maximum length may have to be skipped at the end.
        let free = shape
            .data_bytes()
            .saturating_sub(taken + u64::from(shape.packet));
        let window = shape.window.saturating_sub(self.flying());
        window.min((free / GRAIN) as u32)
    }

    /// Offset of the last frame, which has `len` bytes.
    pub fn last(&self, len: usize) -> u64 {
        self.cursor.at - (len as u64).next_multiple_of(GRAIN)
    }

    /// Offset of the next frame, of `len` bytes, which has room; steps over it.
    #[inline(always)]
    pub fn place(&mut self, len: usize) -> u64 {
        self.cursor.step(len)
    }
}

/// The receiver's end.
#[derive(Clone, Debug)]
pub struct RingReader {
    cursor: LayoutCursor,
    acked_bytes: u64,
    acked_frames: u32,
}

impl RingReader {
    /// The reader of a ring that has no frame yet.
    pub fn new(shape: RingLayout) -> RingReader {
        RingReader {
            cursor: LayoutCursor::new(shape),
            acked_bytes: 0,
            acked_frames: 0,
        }
    }

    /// The layout that was agreed on with the sender; it does not change.
    #[inline(always)]
    pub fn shape(&self) -> RingLayout {
        self.cursor.shape
    }

    /// Number of frames read.
    #[inline(always)]
    pub fn frames(&self) -> u32 {
        self.cursor.frames
    }

    /// Offset of the next frame.
    #[inline(always)]
    pub fn at(&self) -> usize {
        self.cursor.begin() as usize
    }

    /// Steps over the next frame, of `len` bytes, at most a frame's maximum.
    #[inline(always)]
    pub fn advance(&mut self, len: usize) {
        self.cursor.step(len);
    }

    /// Whether a credit is due once there is nothing else to do: a quarter of the window, or of the ring, was read.
    #[inline(always)]
    pub fn is_due(&self) -> bool {
        self.has_read(4)
    }

    /// Whether a credit is due at once: half of the window, or of the ring, was read.
    pub fn is_overdue(&self) -> bool {
        self.has_read(2)
    }

    /// Whether one part in `parts` of the window, or of the ring, was read since the last credit.
    #[inline(always)]
    fn has_read(&self, parts: u32) -> bool {
        let new_frames = self.cursor.frames.wrapping_sub(self.acked_frames);
        let new_bytes = self.cursor.bytes - self.acked_bytes;
        let shape = self.shape();
        parts * new_frames >= shape.window || u64::from(parts) * new_bytes >= shape.data_bytes()
    }

    /// The credit word to send.
    pub fn note_credit(&mut self) -> u64 {
        let LayoutCursor { frames, bytes, .. } = self.cursor;
        (self.acked_bytes, self.acked_frames) = (bytes, frames);
        credit(frames, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    const SHAPE: RingLayout = RingLayout {
        size: 4096 + TAIL as u32,
        packet: 1024,
        window: 8,
    };

    /// Lengths of frames, without a short period.
    fn lengths() -> impl Iterator<Item = usize> {
        (0u64..).map(|n| 16 + (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) as usize % 1009)
    }

    #[test]
    fn both_ends_compute_the_same_places_and_nothing_unread_is_written_over() {
        let (mut writer, mut reader) = (RingWriter::new(SHAPE), RingReader::new(SHAPE));
        let mut flying: VecDeque<(u64, usize)> = VecDeque::new();
        let mut lengths = lengths();
        let mut next = lengths.next().unwrap();
        for _ in 0..100_000 {
            while writer.has_room(1, next) {
                let at = writer.place(next);
                assert_eq!(writer.last(next), at);
                assert!(at % GRAIN == 0 && at + next as u64 <= SHAPE.count_at());
                for &(other, len) in &flying {
                    assert!(at + next as u64 <= other || other + len as u64 <= at);
                }
                flying.push_back((at, next));
                next = lengths.next().unwrap();
            }
            let (at, len) = flying.pop_front().expect("a writer that waits has written");
            assert_eq!(reader.at() as u64, at);
            reader.advance(len);
            if reader.is_due() {
                let word = reader.note_credit();
                writer.credit(word);
            }
        }
    }

    #[test]
    fn as_many_short_frames_have_room_as_is_said() {
        let (mut writer, mut reader) = (RingWriter::new(SHAPE), RingReader::new(SHAPE));
        let mut most = 0;
        for next in lengths().take(10_000) {
            let room = writer.has_room_for_short();
            most = most.max(room);
            let mut ahead = writer.clone();
            for _ in 0..room {
                assert!(ahead.has_room(1, GRAIN as usize));
                ahead.place(GRAIN as usize);
            }
            if writer.has_room(1, next) {
                writer.place(next);
                reader.advance(next);
            }
            if reader.is_due() {
                let word = reader.note_credit();
                writer.credit(word);
            }
        }
        assert_eq!(most, SHAPE.window, "an empty ring takes all that may fly");
    }

    #[test]
    fn records_of_several_frames_find_room_at_once_or_not_at_all() {
        let (mut writer, mut reader) = (RingWriter::new(SHAPE), RingReader::new(SHAPE));
        for _ in 0..1000 {
            assert!(writer.has_room(2, 100), "an empty ring takes two");
            let places = [1024, 100].map(|len| (writer.place(len), len));
            for (at, len) in places {
                assert_eq!(reader.at() as u64, at);
                reader.advance(len);
            }
            if reader.is_due() {
                let word = reader.note_credit();
                writer.credit(word);
            }
        }
        assert!(!writer.has_room(9, 16), "more than the window");
    }

    #[test]
    fn a_reader_that_lies_is_not_believed() {
        let mut writer = RingWriter::new(SHAPE);
        let mut written = 0;
        while writer.has_room(1, 500) {
            writer.place(500);
            written += 1;
        }
        for word in [u64::MAX, 100, 1000 << 32, 1 << 63] {
            writer.credit(word);
            assert!(!writer.has_room(1, 500), "{word:#x} after {written}");
        }
    }

    #[test]
    fn counts_wrap() {
        let (mut writer, mut reader) = (RingWriter::new(SHAPE), RingReader::new(SHAPE));
        let near = u64::from(u32::MAX) * GRAIN / SHAPE.data_bytes() * SHAPE.data_bytes();
        (
            writer.cursor.bytes,
            writer.read_bytes,
            writer.cursor.frames,
            writer.read_frames,
        ) = (near, near, u32::MAX - 5, u32::MAX - 5);
        (
            reader.cursor.bytes,
            reader.acked_bytes,
            reader.cursor.frames,
            reader.acked_frames,
        ) = (near, near, u32::MAX - 5, u32::MAX - 5);
        for len in lengths().take(1000) {
            assert!(writer.has_room(1, len));
            assert_eq!(writer.place(len), reader.at() as u64);
            reader.advance(len);
            if reader.is_due() {
                let word = reader.note_credit();
                writer.credit(word);
            }
        }
    }

    #[test]
    fn shapes_that_would_stall_are_none() {
        assert!(SHAPE.is_sound(2));
        assert!(!SHAPE.is_sound(0) && !SHAPE.is_sound(3));
        for wrong in [
            RingLayout { window: 0, ..SHAPE },
            RingLayout { window: 2, ..SHAPE },
            RingLayout {
                packet: 1056,
                ..SHAPE
            },
            RingLayout {
                packet: 1000,
                ..SHAPE
            },
            RingLayout {
                packet: 32,
                ..SHAPE
            },
            RingLayout { size: 0, ..SHAPE },
        ] {
            assert!(!wrong.is_sound(2), "{wrong:?}");
        }
    }
}
