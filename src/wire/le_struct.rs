//! Declares structures that are encoded little-endian and without padding.
#![forbid(unsafe_code)]

/// `Name, size { fields }`, and after `valid when` what a decoded value has to satisfy.
macro_rules! packed {
    ($(#[$doc:meta])* $name:ident, $size:literal {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
    } valid when |$value:ident| $valid:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        const _: () = assert!($name::SIZE == 0 $(+ size_of::<$type>())*);

        impl $name {
            /// Bytes on the wire.
            pub const SIZE: usize = $size;

            /// The bytes of the fields, in the order of their declaration.
            #[inline]
            pub fn encode(&self) -> [u8; Self::SIZE] {
                let mut bytes = [0; Self::SIZE];
                let rest = &mut bytes[..];
                $(
                    let (field, rest) = rest.split_at_mut(size_of::<$type>());
                    field.copy_from_slice(&self.$field.to_le_bytes());
                )*
                debug_assert!(rest.is_empty());
                bytes
            }

            /// Decodes the begin of `bytes`; `None` when they are too few or invalid.
            #[inline]
            pub fn decode(bytes: &[u8]) -> Option<Self> {
                let rest = bytes.first_chunk::<{ Self::SIZE }>()?.as_slice();
                $(let (&$field, rest) = rest.split_first_chunk::<{ size_of::<$type>() }>()?;)*
                debug_assert!(rest.is_empty());
                let $value = $name { $($field: <$type>::from_le_bytes($field),)* };
                if $valid { Some($value) } else { None }
            }
        }
    };
    ($(#[$doc:meta])* $name:ident, $size:literal { $($body:tt)* }) => {
        packed! { $(#[$doc])* $name, $size { $($body)* } valid when |value| true }
    };
}

/// Declares the flags of a field of such a structure. Bits without a name, of another version, stay.
macro_rules! packed_flags {
    ($(#[$doc:meta])* $name:ident: $int:ty { $($flags:tt)* }) => {
        bitflags::bitflags! {
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub struct $name: $int {
                $($flags)*
                const _ = !0;
            }
        }

        impl $name {
            const fn to_le_bytes(self) -> [u8; size_of::<$int>()] {
                self.bits().to_le_bytes()
            }

            const fn from_le_bytes(bytes: [u8; size_of::<$int>()]) -> Self {
                Self::from_bits_retain(<$int>::from_le_bytes(bytes))
            }
        }
    };
}

pub(crate) use {packed, packed_flags};
