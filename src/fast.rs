//! Hot path, an entry point of the API at a time: [`send`], [`recv`], [`rma`], [`atomics`], [`signals`] and [`flush`];
//! then [`progress`], which polls the transports, and [`arrival`], which matches and completes. Puts, gets, atomic
//! operations and flushes by adapters are in [`adapter`], atomic operations by message in [`amo_message`].
//!
//! In single-thread mode: no allocation, no system call, no lock, no thread-local variable, and at most one atomic
//! read-modify-write per message. What the paths ask before they take an operation is in [`plain`]; less frequent cases
//! are in functions of other modules, called out of line.

mod adapter;
mod amo_message;
mod arrival;
pub mod atomics;
pub mod flush;
mod length;
mod plain;
pub mod progress;
pub mod recv;
mod request;
pub mod rma;
pub mod send;
mod sender;
pub mod signals;
