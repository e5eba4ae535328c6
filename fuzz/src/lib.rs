//! Shared by the fuzz targets that run a whole worker and by the seeds.

pub mod program;
pub mod script;
#[path = "../../tests/support/mod.rs"]
pub mod support;
