//! The one table of `UCX_*` options.
