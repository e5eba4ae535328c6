//! How a message travels: choice of the protocol, the way out, rendezvous, wireup, failure.

pub mod attach;
pub mod dial;
pub mod failure;
pub mod failover;
pub mod fence;
pub mod flush;
pub mod hall;
pub mod info;
pub mod internal;
pub mod lanes;
pub mod letters;
pub mod named;
pub mod pairing;
pub mod opening;
pub mod parting;
pub mod rails;
pub mod release;
pub mod resources;
pub mod rndv;
pub mod select;
pub mod session;
pub mod share;
pub mod tcp_close;
pub mod tx;
pub mod wireup;
pub mod withdraw;
