//! Sources of values.
#![forbid(unsafe_code)]

/// Source of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    File,
    Environment,
    /// In the environment, behind the prefix of the program.
    Prefixed,
    Call,
}
