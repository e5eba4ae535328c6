//! Shared by the tests of invalid input and the fuzz targets.
#![allow(dead_code, reason = "each of them uses a part")]

pub mod again;
pub mod raw_peer;
pub mod random;
pub mod scene;
pub mod server;
