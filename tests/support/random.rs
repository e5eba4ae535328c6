//! Pseudo-random numbers that are the same every time.

/// A generator (xorshift64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Mostly small numbers: those are valid ids and offsets.
    pub fn id(&mut self) -> u64 {
        match self.next() % 4 {
            0 => self.next(),
            1 => ((self.next() % 4) << 32) | (self.next() % 8),
            _ => self.next() % 64,
        }
    }
}
