//! What the fuzz targets that run a whole worker share with each other and with the seeds.

pub mod program;
pub mod script;
#[path = "../../tests/support/mod.rs"]
pub mod support;
