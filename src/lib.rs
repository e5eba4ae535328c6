//! rucp: `libucp.so.0`, the UCP layer of Unified Communication X, written again in Rust.
//!
//! The order of the modules is the architecture: a module uses only modules declared above it
//! (`scripts/check-layers` enforces it). docs/ARCHITECTURE.md says what lives where and why.

pub mod ctypes;
pub mod options;
pub mod sys;
pub mod wire;
pub mod tl;
pub mod engine;
pub mod proto;
pub mod op;
pub mod fast;
pub mod abi;
