//! placeholder
#[derive(Clone)]
pub struct Options;
