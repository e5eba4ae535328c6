//! The exported functions: a file per group, each a few lines that turn handles into references.

pub mod config;
