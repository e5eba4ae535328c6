//! Contexts, workers, endpoints and what they hold; the tag matcher is a pure module of its own.

pub mod matcher;
