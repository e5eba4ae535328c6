//! Conditions on the values of options, beyond their syntax.
#![forbid(unsafe_code)]

/// Condition on the value of an option.
pub struct Rule {
    /// The option, without `UCX_`.
    pub name: &'static str,
    pub holds: fn(&str) -> bool,
    /// Description of the condition, for the message.
    pub needs: &'static str,
}

pub const fn rule(name: &'static str, holds: fn(&str) -> bool, needs: &'static str) -> Rule {
    Rule { name, holds, needs }
}

/// The number is above 0.
pub const fn above_0(name: &'static str) -> Rule {
    rule(name, is_above_0, "it must be greater than 0")
}

/// Whether the number is above 0, with any unit.
fn is_above_0(text: &str) -> bool {
    text.trim_end_matches(char::is_alphabetic).parse() != Ok(0.0)
}
