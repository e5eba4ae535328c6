//! placeholder until the helper's file is merged
macro_rules! error { ($($a:tt)*) => { eprintln!($($a)*) } }
macro_rules! warn_ { ($($a:tt)*) => { eprintln!($($a)*) } }
macro_rules! diag { ($($a:tt)*) => { { let _ = format_args!($($a)*); } } }
macro_rules! info { ($($a:tt)*) => { { let _ = format_args!($($a)*); } } }
macro_rules! debug { ($($a:tt)*) => { { let _ = format_args!($($a)*); } } }
#[allow(unused_imports)]
pub(crate) use {debug, diag, error, info, warn_ as warn};
