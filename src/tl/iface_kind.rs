//! The kinds of interfaces.

/// A kind of interface that a worker's progress polls only while it has something to do, or to connect. (Rings in
/// shared memory are polled in each call.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfaceKind {
    Ib,
    Tofu,
    Tcp,
}

impl IfaceKind {
    /// In the order in which progress polls them.
    pub const ALL: [IfaceKind; 3] = [IfaceKind::Ib, IfaceKind::Tofu, IfaceKind::Tcp];
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_its_index() {
        for (i, kind) in IfaceKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, i);
        }
    }
}
