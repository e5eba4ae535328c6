//! Puts with signal into memory that is mapped are not answered: the sender reads the target's position in the ring.
//! Flushes, fences and the report of refusals depend on nothing else, whatever the target does with its end of it.

#[path = "../support/mod.rs"]
mod support;

mod exposed;
mod flush;
mod invalid;
mod refusal;
mod senders;
