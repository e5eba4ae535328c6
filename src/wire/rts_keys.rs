//! STADDs in an RTS over the Tofu interconnect, by which the rails of a receiver read the message: behind the RTS
//! header, in the place of keys.
//!
//! `mark (4)`, and for each rail that the mark names `STADD (8)`. The lowest bit of the mark is set: the address in the
//! RTS header is a STADD, too, for the sender's first VCQ. The bits behind it are the sender's rails, in their order.
#![forbid(unsafe_code)]

use super::tofu_msg::MAX_RAILS;

const STEERED: u32 = 1;
/// Bytes of a STADD.
const ADDRESS: usize = size_of::<u64>();
/// Bytes of the STADDs for the maximum of rails.
pub const MOST: usize = MAX_RAILS * ADDRESS;
/// Mask with a bit for each rail.
const ALL: u8 = (1 << MAX_RAILS) - 1;

/// STADDs of a message's first byte for its sender's rails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RailStadds([Option<u64>; MAX_RAILS]);

/// Bytes of the STADDs for these rails, a bit each.
pub fn len(rails: u8) -> usize {
    rails.count_ones() as usize * ADDRESS
}

/// The rails in a mark, which begins so many bytes; `None`: it is invalid.
pub fn rails(mark: u32, bytes: usize) -> Option<u8> {
    let rails = u8::try_from(mark >> 1).ok()?;
    let sound = mark & STEERED != 0 && rails & !ALL == 0;
    (sound && bytes == size_of::<u32>() + len(rails)).then_some(rails)
}

impl RailStadds {
    /// From pairs of rail and STADD; the other rails have none. Rails beyond the maximum are left out.
    pub fn of(all: impl Iterator<Item = (usize, u64)>) -> Self {
        let mut addresses = RailStadds::default();
        for (rail, stadd) in all {
            if let Some(place) = addresses.0.get_mut(rail) {
                *place = Some(stadd);
            }
        }
        addresses
    }

    /// Decodes the STADDs in `bytes`, for these rails; missing ones are left out.
    pub fn read(rails: u8, bytes: &[u8]) -> Self {
        let named = (0..MAX_RAILS).filter(|rail| rails >> rail & 1 != 0);
        let words = bytes.chunks_exact(ADDRESS).map_while(<[u8]>::first_chunk);
        RailStadds::of(named.zip(words.map(|word| u64::from_le_bytes(*word))))
    }

    /// The bytes behind the RTS header.
    pub fn encode(&self) -> Vec<u8> {
        let all = self.0.iter().enumerate();
        let rails = all.fold(0, |rails, (i, there)| {
            rails | u32::from(there.is_some()) << i
        });
        let mark = rails << 1 | STEERED;
        let mut bytes = mark.to_le_bytes().to_vec();
        bytes.extend(
            self.0
                .iter()
                .flatten()
                .flat_map(|there| there.to_le_bytes()),
        );
        bytes
    }

    /// The STADD of each rail, in their order, if there is one.
    pub fn iter(&self) -> impl Iterator<Item = Option<u64>> + '_ {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(bytes: &[u8]) -> Option<(u8, &[u8])> {
        let (mark, rest) = bytes.split_first_chunk()?;
        let rails = rails(u32::from_le_bytes(*mark), bytes.len())?;
        Some((rails, rest))
    }

    #[test]
    fn addresses_are_those_that_were_written() {
        for mask in 0..=ALL {
            let named = (0..MAX_RAILS).filter(|rail| mask >> rail & 1 != 0);
            let addresses = RailStadds::of(named.map(|rail| (rail, u64::MAX - rail as u64)));
            let bytes = addresses.encode();
            let (rails, rest) = split(&bytes).expect("sound");
            assert_eq!((rails, rest.len()), (mask, len(mask)));
            assert_eq!(RailStadds::read(rails, rest), addresses);
            let cut = rest.len().saturating_sub(1);
            let fewer = RailStadds::read(rails, &rest[..cut])
                .iter()
                .flatten()
                .count();
            assert_eq!(fewer, mask.count_ones().saturating_sub(1) as usize);
        }
    }

    #[test]
    fn bytes_are_as_documented() {
        let addresses = RailStadds::of([(1, 0x0807_0605_0403_0201), (MAX_RAILS, 7)].into_iter());
        assert_eq!(addresses.encode(), [5, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(RailStadds::default().encode(), [1, 0, 0, 0]);
    }

    #[test]
    fn invalid_marks_are_refused() {
        assert_eq!(rails(1, 4), Some(0));
        assert_eq!(rails(1 | 0b11111 << 1, 44), Some(0b11111));
        for (mark, bytes) in [
            (0, 4),
            (1, 0),
            (1, 8),
            (1, 12),
            (2, 12),
            (3, 4),
            (3, 11),
            (3, 13),
            (1 | 1 << 6, 12),
            (1 | 1 << 9, 4),
            (u32::MAX, 260),
        ] {
            assert_eq!(rails(mark, bytes), None, "{mark:#x}, {bytes} bytes");
        }
    }
}
