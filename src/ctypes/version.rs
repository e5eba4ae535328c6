//! The API version that the headers state.

/// Major API version.
pub const UCP_API_MAJOR: u32 = 1;
/// Minor API version.
pub const UCP_API_MINOR: u32 = 22;
