//! Where a put or a get by message is in a scatter-gather list.

/// Position of an access in its list, in `aux` of its message. [`PutRest`](super::header::PutRest) has smaller values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListPiece {
    /// In no list, or to be executed at once.
    Alone,
    /// Others of the list follow: the owner of the memory may collect them.
    Further,
    /// The last one: the owner executes what it has collected.
    Last,
}

/// Longest piece that may be collected, bytes. A copy of a longer one takes longer than the calls of the driver for it.
pub const MAX_COLLECTED_PIECE: usize = 8 << 10;
/// Most bytes of a list that may be collected: the owner copies what is read from memory of devices.
pub const MAX_COLLECTED_LIST: usize = 8 << 20;

const FURTHER: u8 = 0x80;
const LAST: u8 = 0x81;

impl ListPiece {
    #[inline(always)]
    pub const fn from_aux(aux: u8) -> ListPiece {
        match aux {
            FURTHER => ListPiece::Further,
            LAST => ListPiece::Last,
            _ => ListPiece::Alone,
        }
    }

    pub const fn aux(self) -> u8 {
        match self {
            ListPiece::Alone => 0,
            ListPiece::Further => FURTHER,
            ListPiece::Last => LAST,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::header::PutRest;

    #[test]
    fn positions_are_no_rest_of_a_put() {
        for piece in [ListPiece::Alone, ListPiece::Further, ListPiece::Last] {
            assert_eq!(ListPiece::from_aux(piece.aux()), piece);
        }
        for bytes in [0, 1, 8 << 10, u64::MAX] {
            let aux = PutRest::of(bytes).aux();
            assert_eq!(ListPiece::from_aux(aux), ListPiece::Alone);
        }
    }
}
