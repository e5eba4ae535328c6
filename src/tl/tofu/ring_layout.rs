//! Where frames lie in a ring that a peer writes by puts: both ends compute it alike, and neither asks the other.
//!
//! A frame begins at a multiple of 32 bytes and lies in one piece: where the longest one would not fit before the end,
//! the next begins at the start again, however short it is. The receiver tells now and then how far it is, by a put of
//! one word.
#![forbid(unsafe_code)]

/// Frames begin at multiples of this, bytes: what rides in a descriptor.
pub const GRAIN: u64 = 32;
/// Bytes at the end of a ring that frames do not take: the count of frames lies there, and a notice about the last
/// frame names an address in the ring, whether that of its first byte or that behind its last.
pub const TAIL: usize = 256;

/// What both ends know of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLayout {
    /// Bytes of the ring's memory.
    pub size: u32,
    /// Bytes of the longest frame.
    pub packet: u32,
    /// Frames that may be under way or unread.
    pub window: u32,
}

impl RingLayout {
    /// Whether a ring can work so, for records of up to so many frames: a writer waits for room for all of them, and
    /// for what may have to be skipped, while a reader that has read everything, and found nothing more, may not have
    /// told of a quarter.
    pub fn is_sound(&self, frames: u32) -> bool {
        let packet = u64::from(self.packet);
        frames > 0
            && 4 * u64::from(frames) <= 3 * u64::from(self.window)
            && packet >= 2 * GRAIN
            && packet % GRAIN == 0
            && 4 * u64::from(frames + 1) * packet <= 3 * self.area()
    }

    /// Frames, as long as they can be, for which this is true.
    pub fn most_frames(&self) -> usize {
        let by_window = 3 * u64::from(self.window) / 4;
        let by_room = 3 * self.area() / (4 * u64::from(self.packet.max(1)));
        by_window.min(by_room.saturating_sub(1)) as usize
    }

    /// Where the count of frames lies.
    pub fn count_at(&self) -> u64 {
        u64::from(self.size) - TAIL as u64
    }

    fn area(&self) -> u64 {
        (u64::from(self.size)).saturating_sub(TAIL as u64) / GRAIN * GRAIN
    }
}

/// How far one of the ends is.
#[derive(Clone, Debug)]
struct LayoutCursor {
    shape: RingLayout,
    /// No frame begins behind this.
    last: u64,
    /// Where the next frame begins, or at the start if that is behind the last.
    at: u64,
    /// Bytes in all, skipped ones among them.
    bytes: u64,
    frames: u32,
}

impl LayoutCursor {
    fn new(shape: RingLayout) -> LayoutCursor {
        LayoutCursor {
            shape,
            last: shape.area().saturating_sub(shape.packet.into()),
            at: 0,
            bytes: 0,
            frames: 0,
        }
    }

    /// Where the next frame lies.
    #[inline(always)]
    fn begin(&self) -> u64 {
        if self.at > self.last { 0 } else { self.at }
    }

    /// Goes behind a frame of so many bytes: where it lies.
    #[inline(always)]
    fn step(&mut self, len: usize) -> u64 {
        if self.at > self.last {
            self.bytes += self.shape.area() - self.at;
            self.at = 0;
        }
        let begin = self.at;
        let taken = (len as u64).next_multiple_of(GRAIN);
        self.at += taken;
        self.bytes += taken;
        self.frames = self.frames.wrapping_add(1);
        begin
    }

    /// Bytes in all, behind so many frames of which all but the last are as long as they can be.
    fn behind(&self, frames: usize, last: usize) -> u64 {
        let mut ahead = self.clone();
        for _ in 1..frames {
            ahead.step(self.shape.packet as usize);
        }
        ahead.step(last);
        ahead.bytes
    }
}

/// How far the reader is, as it tells: frames modulo 2^32, and bytes in units of [`GRAIN`] modulo 2^32.
fn credit(frames: u32, bytes: u64) -> u64 {
    u64::from(frames) | (bytes / GRAIN) << 32
}

/// The sender's end.
#[derive(Clone, Debug)]
pub struct RingWriter {
    cursor: LayoutCursor,
    /// What the reader has told.
    read_bytes: u64,
    read_frames: u32,
}

impl RingWriter {
    pub fn new(shape: RingLayout) -> RingWriter {
        RingWriter {
            cursor: LayoutCursor::new(shape),
            read_bytes: 0,
            read_frames: 0,
        }
    }

    pub fn shape(&self) -> RingLayout {
        self.cursor.shape
    }

    /// Frames that were written.
    #[inline(always)]
    pub fn frames(&self) -> u32 {
        self.cursor.frames
    }

    /// The reader tells how far it is. What it cannot be is not believed.
    pub fn credit(&mut self, word: u64) {
        let frames = (word as u32).wrapping_sub(self.read_frames);
        let units = ((word >> 32) as u32).wrapping_sub((self.read_bytes / GRAIN) as u32);
        let bytes = u64::from(units) * GRAIN;
        if frames <= self.flying() && bytes <= self.cursor.bytes - self.read_bytes {
            self.read_frames = self.read_frames.wrapping_add(frames);
            self.read_bytes += bytes;
        }
    }

    /// Frames that were not read, as far as the reader has told.
    fn flying(&self) -> u32 {
        self.cursor.frames.wrapping_sub(self.read_frames)
    }

    /// Whether so many frames, all but the last as long as they can be, have room.
    #[inline]
    pub fn has_room(&self, frames: usize, last: usize) -> bool {
        if self.flying() as usize + frames > self.shape().window as usize {
            return false;
        }
        self.cursor.behind(frames, last) - self.read_bytes <= self.shape().area()
    }

    /// How many of the shortest frames have room, at least.
    pub fn has_room_for_short(&self) -> u32 {
        let shape = self.shape();
        let taken = self.cursor.bytes - self.read_bytes;
        // As much as a packet may have to be skipped.
        let free = shape.area().saturating_sub(taken + u64::from(shape.packet));
        let window = shape.window.saturating_sub(self.flying());
        window.min((free / GRAIN) as u32)
    }

    /// Where the next frame goes, if it has room.
    #[inline(always)]
    pub fn next(&self) -> u64 {
        self.cursor.begin()
    }

    /// Where a frame of so many bytes goes, which has room.
    #[inline(always)]
    pub fn place(&mut self, len: usize) -> u64 {
        self.cursor.step(len)
    }
}

/// The receiver's end.
#[derive(Clone, Debug)]
pub struct RingReader {
    cursor: LayoutCursor,
    told_bytes: u64,
    told_frames: u32,
}

impl RingReader {
    pub fn new(shape: RingLayout) -> RingReader {
        RingReader {
            cursor: LayoutCursor::new(shape),
            told_bytes: 0,
            told_frames: 0,
        }
    }

    #[inline(always)]
    pub fn shape(&self) -> RingLayout {
        self.cursor.shape
    }

    /// Frames that were read.
    #[inline(always)]
    pub fn frames(&self) -> u32 {
        self.cursor.frames
    }

    /// Where the next frame begins.
    #[inline(always)]
    pub fn at(&self) -> usize {
        self.cursor.begin() as usize
    }

    /// The next frame, of so many bytes, no more than the longest has, is read.
    #[inline(always)]
    pub fn advance(&mut self, len: usize) {
        self.cursor.step(len);
    }

    /// Whether the writer is to be told when there is nothing else to do: a quarter of the window, or of the ring, is
    /// read.
    #[inline(always)]
    pub fn is_due(&self) -> bool {
        self.has_read(4)
    }

    /// The same at once: a half is.
    pub fn is_overdue(&self) -> bool {
        self.has_read(2)
    }

    /// Whether one of so many parts of the window, or of the ring, was read since the writer was told.
    #[inline(always)]
    fn has_read(&self, parts: u32) -> bool {
        let new_frames = self.cursor.frames.wrapping_sub(self.told_frames);
        let new_bytes = self.cursor.bytes - self.told_bytes;
        let shape = self.shape();
        parts * new_frames >= shape.window || u64::from(parts) * new_bytes >= shape.area()
    }

    /// What the writer is told.
    pub fn note_credit(&mut self) -> u64 {
        let LayoutCursor { frames, bytes, .. } = self.cursor;
        (self.told_bytes, self.told_frames) = (bytes, frames);
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

    /// Lengths of frames, no two runs of which are alike for long.
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
        let near = u64::from(u32::MAX) * GRAIN / SHAPE.area() * SHAPE.area();
        (
            writer.cursor.bytes,
            writer.read_bytes,
            writer.cursor.frames,
            writer.read_frames,
        ) = (near, near, u32::MAX - 5, u32::MAX - 5);
        (
            reader.cursor.bytes,
            reader.told_bytes,
            reader.cursor.frames,
            reader.told_frames,
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
