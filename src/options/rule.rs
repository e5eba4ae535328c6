//! Conditions on the values of options, beyond their syntax.
#![forbid(unsafe_code)]

use super::number;

/// Condition on the value of an option.
pub struct Rule {
    /// The option, without `UCX_`.
    pub name: &'static str,
    pub condition: Condition,
    /// Description of the condition, for the message.
    pub needs: &'static str,
}

/// What a value must be.
pub enum Condition {
    /// A value for which this holds.
    Holds(fn(&str) -> bool),
    /// Negative, or not 0 and not below the value of this other option.
    NotBelow(&'static str),
}

pub const fn rule(name: &'static str, holds: fn(&str) -> bool, needs: &'static str) -> Rule {
    Rule {
        name,
        condition: Condition::Holds(holds),
        needs,
    }
}

/// The number is above 0.
pub const fn above_0(name: &'static str) -> Rule {
    rule(name, is_above_0, "it must be greater than 0")
}

/// Whether the number is above 0, with any unit.
fn is_above_0(text: &str) -> bool {
    text.trim_end_matches(char::is_alphabetic).parse() != Ok(0.0)
}

/// The rules of a pool of buffers with this prefix, as UCX 1.22 has them. 1.13.1 has that of the buffers, and does not
/// know the other options.
macro_rules! pool_rules {
    ($prefix:literal) => {
        [
            $crate::options::rule::buffers(
                concat!($prefix, "_MAX_BUFS"),
                concat!($prefix, "_BUFS_GROW"),
            ),
            $crate::options::rule::above_0(concat!($prefix, "_MAX_CHUNK_SIZE")),
            $crate::options::rule::grows(concat!($prefix, "_GROW_FACTOR")),
        ]
    };
}

pub(super) use pool_rules;

/// The most buffers of a pool, and the option with the number that it grows by.
pub const fn buffers(name: &'static str, growth: &'static str) -> Rule {
    Rule {
        name,
        condition: Condition::NotBelow(growth),
        needs: "it must be -1 for no limit, or at least the number of buffers that are added at a time (*_BUFS_GROW)",
    }
}

/// A factor of growth.
pub const fn grows(name: &'static str) -> Rule {
    rule(name, is_growth, "it must be 1 at least")
}

fn is_growth(text: &str) -> bool {
    number::float(text).is_some_and(|factor| factor >= 1.0)
}

/// Whether a number of buffers is negative, or at least the number that a pool grows by, which is 1 at least.
pub fn is_no_limit_or_at_least(text: &str, growth: &str) -> bool {
    let growth = number::uint(growth).unwrap_or(0).max(1);
    number::int(text).is_some_and(|most| most < 0 || most.unsigned_abs() >= growth)
}
