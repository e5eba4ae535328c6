//! What the tests of bad input share, and the fuzz targets with them.
#![allow(dead_code, reason = "each of them uses a part")]

pub mod impostor;
pub mod random;
pub mod scene;
pub mod server;
