//! Sizes that programs and large jobs depend on: a change here is a decision, not an accident.

use ucp::engine::endpoint::Endpoint;
use ucp::engine::peer::Peer;
use ucp::engine::request::{REQUEST_SIZE, Request};
use ucp::engine::rkey::Rkey;
use ucp::tl::address::WorkerAddress;
use ucp::wire::rkey::MAX_LEN;

#[test]
fn request() {
    assert_eq!(REQUEST_SIZE, 272);
    assert!(size_of::<Request>() <= REQUEST_SIZE);
    // Open MPI places requests on its stack by this size.
    assert_eq!(REQUEST_SIZE % 8, 0);
}

#[test]
fn endpoint_and_peer() {
    // An endpoint that was never used costs less than 200 bytes.
    assert_eq!(size_of::<Endpoint>(), 96);
    // As much as `malloc` has in the chunk that 496 bytes take, too.
    assert_eq!(size_of::<Peer>(), 504);
}

#[test]
fn keys() {
    // LCI v1 sends keys in 16 bytes.
    assert_eq!(MAX_LEN, 16);
    // As much as `malloc` has in the chunk that 160 bytes take, too.
    assert_eq!(size_of::<Rkey>(), 168);
}

#[test]
fn address() {
    let bare = WorkerAddress {
        uid: 1,
        ..WorkerAddress::default()
    };
    assert_eq!(bare.encode().len(), 16);
    // With shared memory: `an_address_with_shm_is_small` in src/tl/address/tests.rs pins 59.
}
