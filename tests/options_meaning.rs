//! Values that the syntax of an option allows and its meaning does not: which calls fail because of them, and which do
//! not.

use ucp::options::{OptionError, Options};

/// The object that cannot be created with a value.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Refused {
    Nothing,
    Context,
    Worker,
}
use Refused::*;

fn refused(options: &Options) -> Refused {
    match (options.check_context(), options.check_worker()) {
        (Ok(()), Ok(())) => Nothing,
        (Err(OptionError::Senseless { .. }), _) => Context,
        (_, Err(OptionError::Senseless { .. })) => Worker,
        other => panic!("{other:?}"),
    }
}

fn with(settings: &[(&str, &str)]) -> Options {
    let mut options = Options::default();
    for (name, value) in settings {
        assert_eq!(options.set(name, value), Ok(()), "{name}={value}");
    }
    options
}

/// The results of `ucp_init` and `ucp_worker_create` of UCX 1.13.1 and 1.22, unless a comment says otherwise.
#[test]
fn values_that_make_no_sense() {
    for (name, value, expected) in [
        // UCX 1.13.1 accepts this one, as "whenever there is progress", and 1.22 does not: a script for either runs.
        ("KEEPALIVE_INTERVAL", "0", Nothing),
        ("KEEPALIVE_NUM_EPS", "0", Context),
        ("KEEPALIVE_NUM_EPS", "inf", Nothing),
        // UCX 1.13.1 does not know the next five: no script has them for it, and 1.22 rejects them.
        ("RECOVERY_RETRIES", "0", Context),
        ("MIN_RNDV_CHUNK_SIZE", "0k", Context),
        ("MIN_RMA_CHUNK_SIZE", "0", Context),
        ("DYNAMIC_TL_SWITCH_INTERVAL", "0ms", Context),
        ("DYNAMIC_TL_PROGRESS_FACTOR", "0", Context),
        ("DYNAMIC_TL_SWITCH_INTERVAL", "1ns", Nothing),
        ("TCP_KEEPIDLE", "0", Nothing),
        ("RNDV_FRAG_SIZE", "bogus", Context),
        // Both UCX crash on this one.
        ("RNDV_FRAG_SIZE", "host", Context),
        ("RNDV_FRAG_SIZE", "1k", Context),
        ("RNDV_FRAG_SIZE", "host:x", Context),
        ("RNDV_FRAG_SIZE", "HOST:1k,cuda:inf,", Nothing),
        ("RNDV_FRAG_SIZE", "", Nothing),
        ("RNDV_FRAG_ALLOC_COUNT", "host:1,bogus:1", Context),
        ("RNDV_FRAG_ALLOC_COUNT", "host:0", Nothing),
        ("ALLOC_PRIO", "", Context),
        ("ALLOC_PRIO", "mmap,bogus", Context),
        ("ALLOC_PRIO", "MMAP", Context),
        ("ALLOC_PRIO", "md", Context),
        ("ALLOC_PRIO", "huge,thp,md:any,mmap,heap,", Nothing),
        ("RX_MPOOL_SIZES", "", Worker),
        ("RX_MPOOL_SIZES", "64,63", Worker),
        ("RX_MPOOL_SIZES", "inf", Worker),
        ("RX_MPOOL_SIZES", "1,1m", Nothing),
        ("POSIX_FIFO_SIZE", "3", Worker),
        ("SYSV_FIFO_SIZE", "1", Worker),
        ("MM_FIFO_SIZE", "0", Worker),
        ("MM_FIFO_SIZE", "2", Nothing),
        ("POSIX_FIFO_RELEASE_FACTOR", "1", Worker),
        ("POSIX_FIFO_RELEASE_FACTOR", "-1", Worker),
        ("POSIX_FIFO_RELEASE_FACTOR", "0", Nothing),
        ("SYSV_FIFO_ELEM_SIZE", "28", Worker),
        ("SYSV_FIFO_ELEM_SIZE", "64", Nothing),
        ("TCP_PORT_RANGE", "5-2", Worker),
        ("TCP_PORT_RANGE", "70000-80000", Nothing),
        ("TCP_TX_SEG_SIZE", "0", Worker),
        ("TCP_RX_SEG_SIZE", "0", Worker),
        // UCX rejects these two: its segments limit its messages, those of rucp its copies.
        ("TCP_TX_SEG_SIZE", "1", Nothing),
        ("TCP_TX_SEG_SIZE", "inf", Nothing),
        ("TCP_MAX_CONN_RETRIES", "255", Nothing),
        ("TCP_MAX_CONN_RETRIES", "256", Worker),
        ("TCP_MAX_CONN_RETRIES", "-5", Worker),
        ("POSIX_FIFO_ELEM_SIZE", "-5", Worker),
        ("POSIX_ALLOC", "", Worker),
        ("TCP_ALLOC", "", Nothing),
        ("SELF_SEG_SIZE", "0", Worker),
        ("POSIX_SEG_SIZE", "0", Nothing),
        // Pools of buffers. UCX 1.13.1 knows the first only.
        ("TCP_TX_MAX_BUFS", "0", Worker),
        ("TCP_RX_MAX_BUFS", "7", Worker),
        ("TCP_RX_MAX_BUFS", "8", Nothing),
        ("CMA_TX_MAX_BUFS", "-5", Nothing),
        ("POSIX_RX_MAX_BUFS", "64", Worker),
        ("SYSV_RX_MAX_BUFS", "512", Nothing),
        ("TCP_RX_BUFS_GROW", "0", Nothing),
        ("SYSV_RX_BUFS_GROW", "0", Worker),
        ("CMA_TX_BUFS_GROW", "0", Worker),
        ("TCP_TX_MAX_CHUNK_SIZE", "0", Worker),
        ("TCP_TX_MAX_CHUNK_SIZE", "auto", Nothing),
        ("POSIX_RX_GROW_FACTOR", "0.5", Worker),
        ("POSIX_RX_GROW_FACTOR", "inf", Nothing),
        ("MAX_COMPONENT_MDS", "0", Context),
    ] {
        assert_eq!(refused(&with(&[(name, value)])), expected, "{name}={value}");
    }
}

#[test]
fn options_of_transports_that_are_not_used_do_not_matter() {
    for (name, value, tls, expected) in [
        ("POSIX_FIFO_SIZE", "3", "tcp", Nothing),
        ("POSIX_FIFO_SIZE", "3", "self,sysv", Nothing),
        ("POSIX_FIFO_SIZE", "3", "sm", Worker),
        ("TCP_PORT_RANGE", "5-2", "self", Nothing),
        ("TCP_PORT_RANGE", "5-2", "^tcp", Nothing),
        ("TCP_PORT_RANGE", "5-2", "^sm", Worker),
        ("RX_MPOOL_SIZES", "63", "self", Worker),
        ("ALLOC_PRIO", "x", "self", Context),
    ] {
        let options = with(&[(name, value), ("TLS", tls)]);
        assert_eq!(refused(&options), expected, "{name}={value} with {tls}");
    }
}

#[test]
fn the_message_says_what_it_must_be() {
    let error = with(&[("TCP_PORT_RANGE", "5-2")]).check_worker();
    assert_eq!(
        error.unwrap_err().to_string(),
        "UCX_TCP_PORT_RANGE is '5-2': the first port must not be above the last (0: the system chooses)"
    );
}
