//! The kinds of interfaces.

use super::networks::networks;

macro_rules! iface_kind {
    ($($(#[$cfg:meta])* $Kind:ident $net:ident $Context:ident;)* @) => {
        /// A kind of interface that a worker's progress polls only while it has something to do, or to connect. (Rings
        /// in shared memory are polled in each call.)
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum IfaceKind {
            $($(#[$cfg])* $Kind,)*
        }

        impl IfaceKind {
            /// In the order in which progress polls them.
            pub const ALL: &[IfaceKind] = &[$($(#[$cfg])* IfaceKind::$Kind),*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();
        }
    };
}
networks!(iface_kind);

impl IfaceKind {
    /// Sockets: beside their own messages they carry those of fallback connections, out-of-band connections, and
    /// listeners and clients by socket address.
    pub const SOCKETS: IfaceKind = IfaceKind::Tcp;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_its_index() {
        for (i, kind) in IfaceKind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, i);
        }
    }
}
