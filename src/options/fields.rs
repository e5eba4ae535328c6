//! Structures of typed options, made from a list of fields.
#![forbid(unsafe_code)]

/// A structure that [`option_fields`] makes.
pub trait OptionFields: Sized {
    /// Builds every field from the text that `text_of` has for its option.
    fn build(text_of: &dyn Fn(&str) -> &'static str) -> Option<Self>;

    /// Sets a field to the new value of the option `name`; an option without a field is ignored.
    fn update(&mut self, name: &str, text: &str);
}

/// Defines a structure of typed options from its fields, each with its type and the name of its option, and, behind a
/// semicolon, from such structures of transports.
macro_rules! option_fields {
    ($(#[$about:meta])* $name:ident {
        $($field:ident: $type:ty = $option:literal,)+
        $(; $($part:ident: $part_type:ty,)+)?
    }) => {
        $(#[$about])*
        #[derive(Clone, Debug)]
        pub struct $name {
            $(#[doc = concat!("`UCX_", $option, "`.")] pub $field: $type,)+
            $($(pub $part: $part_type,)+)?
        }

        impl $name {
            /// The names of the options behind the fields.
            pub fn names() -> Vec<&'static str> {
                [&[$($option),+][..], $($(&<$part_type>::names(),)+)?].concat()
            }
        }

        impl $crate::options::fields::OptionFields for $name {
            fn build(text_of: &dyn Fn(&str) -> &'static str) -> Option<Self> {
                use $crate::options::value::Value;
                Some($name {
                    $($field: <$type>::from_text(text_of($option))?,)+
                    $($($part: <$part_type>::build(text_of)?,)+)?
                })
            }

            fn update(&mut self, name: &str, text: &str) {
                use $crate::options::value::Value;
                match name {
                    // A normalised text has a value: a test checks that kinds and types agree.
                    $($option => if let Some(value) = <$type>::from_text(text) {
                        self.$field = value
                    },)+
                    _ => { $($(self.$part.update(name, text);)+)? }
                }
            }
        }
    };
}

pub(super) use option_fields;
