//! Accepted values of every kind, by table and by property, and the resulting typed fields.

use std::time::Duration;

use proptest::prelude::*;
use ucp::options::{Interval, LogLevel, OpFlag, Options, RndvScheme, Size};

/// The value of an option after it was set, or that it was rejected.
fn set(name: &str, value: &str) -> Option<String> {
    let mut options = Options::default();
    options.set(name, value).ok()?;
    options.get(name)
}

/// Compares inputs with UCX 1.22's results (`ucx_info -c` with the variable set).
fn check(name: &str, cases: &[(&str, Option<&str>)]) {
    for (input, expected) in cases {
        assert_eq!(set(name, input).as_deref(), *expected, "{name}={input:?}");
    }
}

#[test]
fn sizes() {
    check(
        "SEG_SIZE",
        &[
            ("8k", Some("8K")),
            ("8KB", Some("8K")),
            ("8b", Some("8")),
            ("1025", Some("1025")),
            ("1m", Some("1M")),
            ("3t", Some("3T")),
            ("8kBytes", Some("8K")),
            ("8MB/s", Some("8M")),
            ("8kx", None),
            ("8bb", Some("8")),
            ("8bx", None),
            ("8\u{212a}", None),
            ("INF", Some("inf")),
            ("Auto", Some("auto")),
            ("-1", Some("inf")),
            (" 8k", Some("8K")),
            ("0", Some("0")),
            ("99999999999999999999", Some("9223372036854775807")),
            ("16777216g", Some("16P")),
            ("1.5k", None),
            ("8 k", None),
            ("4p", None),
            ("8x", None),
            ("0x10", None),
            ("infinity", None),
            ("", None),
        ],
    );
}

#[test]
fn times() {
    check(
        "KEEPALIVE_INTERVAL",
        &[
            ("1", Some("1000000.00us")),
            ("1m", Some("60000000.00us")),
            ("2ms", Some("2000.00us")),
            (".5s", Some("500000.00us")),
            ("1e3us", Some("1000.00us")),
            ("4ns", Some("0.004us")),
            ("inf", Some("inf")),
            ("auto", Some("auto")),
            ("1 s", None),
            ("5S", None),
            ("-1", Some("inf")),
            (" -2ms", Some("inf")),
            ("-0", Some("0.00us")),
            ("--1", None),
            ("-", None),
            ("-inf", None),
            ("s", None),
            ("", None),
            ("nan", None),
        ],
    );
}

#[test]
fn time_spans_are_kept_in_microseconds() {
    check(
        "RC_TIMEOUT",
        &[("1", Some("1000000.00us")), ("2e303", None), ("-1", None)],
    );
}

#[test]
fn bandwidths() {
    check(
        "BCOPY_BW",
        &[
            ("1MBs", Some("1024.00KBps")),
            ("1MB/s", Some("1024.00KBps")),
            ("2GBps", Some("2048.00MBps")),
            ("3Gbps", Some("384.00MBps")),
            ("10KBs", Some("10240.00Bps")),
            ("12000MBs", Some("12000.00MBps")),
            ("64GBs", Some("64.00GBps")),
            ("5TBs", Some("5120.00GBps")),
            ("50001Bs", Some("48.83KBps")),
            ("49999Bs", Some("49999.00Bps")),
            ("auto", Some("auto")),
            ("1MB", None),
            ("100", None),
            ("0", None),
            ("-1MBs", None),
            ("1mBs", None),
            ("", None),
        ],
    );
}

#[test]
fn switches() {
    check(
        "USE_MT_MUTEX",
        &[
            ("Y", Some("y")),
            ("No", Some("n")),
            ("on", Some("y")),
            ("0", Some("n")),
            ("try", None),
            ("true", None),
            ("", None),
        ],
    );
    check(
        "RCACHE_ENABLE",
        &[
            ("maybe", Some("try")),
            ("TRY", Some("try")),
            ("off", Some("n")),
            ("auto", None),
        ],
    );
    check(
        "PROTO_INDIRECT_ID",
        &[
            ("y", Some("on")),
            ("0", Some("off")),
            ("try", Some("auto")),
            ("", None),
        ],
    );
    check(
        "IB_PCI_RELAXED_ORDERING",
        &[
            ("try", Some("try")),
            ("auto", Some("auto")),
            ("on", Some("y")),
            ("x", None),
        ],
    );
}

#[test]
fn numbers() {
    check(
        "MAX_EAGER_RAILS",
        &[
            ("1", Some("1")),
            ("inf", Some("inf")),
            ("-3", Some("4294967293")),
            ("010", Some("10")),
            ("1k", Some("1")),
            ("3.5", Some("3")),
            ("auto", None),
            ("", None),
        ],
    );
    check(
        "NUM_EPS",
        &[
            ("3", Some("3")),
            ("Inf", Some("inf")),
            ("auto", Some("auto")),
            ("x", None),
        ],
    );
    check("RKEY_MPOOL_MAX_MD", &[("-1", Some("-1")), ("inf", None)]);
    check(
        "RNDV_PERF_DIFF",
        &[
            ("1", Some("1.000")),
            ("1e3", Some("1000.000")),
            ("-1", Some("-1.000")),
            ("inf", Some("inf")),
            ("x", None),
        ],
    );
    check(
        "MULTI_PATH_RATIO",
        &[
            ("2.5", Some("2.500")),
            ("Auto", Some("auto")),
            ("0", None),
            ("-1", None),
        ],
    );
    check("LOG_DATA_SIZE", &[("3", Some("3")), ("inf", None)]);
    check(
        "TCP_PORT_RANGE",
        &[
            ("1-5", Some("1-5")),
            ("1000-1000", Some("1000")),
            ("0", Some("0")),
            ("5x", Some("5")),
            ("5-2", Some("5-2")),
            ("x", None),
            ("5-", None),
            ("-5", None),
            ("5--7", None),
        ],
    );
    check(
        "RC_VERBS_PKEY",
        &[
            ("0x7fff", Some("0x7fff")),
            ("ffff", Some("0xffff")),
            ("auto", Some("auto")),
            ("x", None),
        ],
    );
    check(
        "DC_MLX5_DCT_PORT_AFFINITY",
        &[("random", Some("random")), ("2", Some("2")), ("x", None)],
    );
}

#[test]
fn lists() {
    check(
        "TLS",
        &[
            ("a,b", Some("a,b")),
            ("^a,b", Some("^a,b")),
            ("^all", Some("all")),
            ("", Some("")),
            ("all,x", None),
        ],
    );
    check(
        "NET_DEVICES",
        &[
            ("mlx5_[0-2]", Some("mlx5_0,mlx5_1,mlx5_2")),
            ("^mlx5_[1-2]:1", Some("^mlx5_1:1,mlx5_2:1")),
            ("a[3-1]", Some("a[3-1]")),
            ("a[1", Some("a[1")),
            ("[0-1]b,c", Some("0b,1b,c")),
            ("x[0-99999999]", Some("x[0-99999999]")),
        ],
    );
    check(
        "EXTRA_OP_ATTR_FLAGS",
        &[
            ("multi_send,NO_IMM_CMPL", Some("no_imm_cmpl,multi_send")),
            ("", Some("")),
            ("foo", None),
        ],
    );
    check("SELF_ALLOC", &[("heap,MD", Some("heap,md")), ("foo", None)]);
    check(
        "RX_MPOOL_SIZES",
        &[("64,1k", Some("64,1K")), ("", Some("")), ("64,x", None)],
    );
    check(
        "ERROR_SIGNALS",
        &[
            ("SEGV,SIGBUS", Some("SEGV,BUS")),
            ("11", Some("SEGV")),
            ("x", None),
            ("99", None),
        ],
    );
    check(
        "DEBUG_SIGNO",
        &[
            ("hup", Some("HUP")),
            ("SIGHUP", Some("HUP")),
            ("0", Some("SIGNAL0")),
            ("", Some("SIGNAL0")),
        ],
    );
    check(
        "RNDV_SCHEME",
        &[
            ("Get_Zcopy", Some("get_zcopy")),
            (" am", None),
            ("1", None),
            ("", None),
        ],
    );
}

#[test]
fn keys_and_values() {
    check(
        "RNDV_THRESH",
        &[
            ("8k", Some("intra:8K,inter:8K")),
            ("intra:8k,4k", Some("intra:8K,inter:4K")),
            ("8k,inter:3", Some("intra:8K,inter:3")),
            ("inter:1,intra:2", Some("intra:2,inter:1")),
            ("8k,9k", Some("intra:9K,inter:9K")),
            ("intra:8k", None),
            ("foo:8", None),
            ("intra:8k,", None),
            ("intra:8k:inter:3", None),
            ("", None),
        ],
    );
    check(
        "DISTANCE_BW",
        &[(
            "auto,sys:16500MBs",
            Some("phb:auto,node:auto,sys:16500.00MBps"),
        )],
    );
}

#[test]
fn typed_fields_follow() {
    let mut options = Options::default();
    assert_eq!(options.log_level, LogLevel::Warn);
    assert_eq!(
        options.keepalive_interval,
        Interval::Every(Duration::from_secs(20))
    );
    assert_eq!(options.rndv_thresh.intra, Size::Auto);
    assert!(options.shm.posix_use_proc_link && options.warn_unused_env_vars);
    for (name, value) in [
        ("RNDV_THRESH", "8k,inter:inf"),
        ("KEEPALIVE_INTERVAL", "inf"),
        ("EXTRA_OP_ATTR_FLAGS", "fast_cmpl"),
        ("POSIX_USE_PROC_LINK", "n"),
        ("CM_REUSEADDR", "y"),
        ("TCP_PORT_RANGE", "5000-99999"),
        ("RNDV_SCHEME", "am"),
    ] {
        options
            .set(name, value)
            .unwrap_or_else(|error| panic!("{error}"));
    }
    assert_eq!(options.rndv_thresh.intra.bytes(), Some(8192));
    assert_eq!(options.rndv_thresh.inter.bytes(), Some(usize::MAX));
    assert_eq!(options.keepalive_interval.duration(), None);
    assert!(options.extra_op_attr_flags.contains(OpFlag::FastCmpl));
    assert!(!options.extra_op_attr_flags.contains(OpFlag::MultiSend));
    assert!(!options.shm.posix_use_proc_link);
    assert!(options.cm.tcp_reuseaddr, "by its prefix for all");
    assert_eq!(
        (options.tcp.port_range.first, options.tcp.port_range.last),
        (5000, 65535)
    );
    assert_eq!(options.rndv_scheme, RndvScheme::Am);
}

/// Texts similar to valid values, and any others.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[-+]?[0-9]{0,25}[.]?[0-9]{0,4}(e[-+]?[0-9]{0,4})?[kKmMgGtTbBpsun/]{0,4}",
        "[\\^a-z_:,\\[\\]0-9 -]{0,40}",
        "(intra|inter|sys|auto|inf)?:?[0-9]{0,3}[kmKMGBbps]{0,4}(,(intra|inter|sys|auto|inf)?:?[0-9]{0,3}){0,3}",
        ".*",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_value_is_taken_or_refused_and_what_is_kept_is_stable(text in text()) {
        for name in [
            "SEG_SIZE", "USE_MT_MUTEX", "RCACHE_ENABLE", "PROTO_INDIRECT_ID", "IB_PCI_RELAXED_ORDERING",
            "MAX_EAGER_RAILS", "RKEY_MPOOL_MAX_MD", "LOG_DATA_SIZE", "NUM_EPS", "RC_PKEY", "TLS", "NET_DEVICES",
            "RNDV_THRESH", "EXTRA_OP_ATTR_FLAGS", "SELF_ALLOC", "RX_MPOOL_SIZES", "ERROR_SIGNALS", "TCP_PORT_RANGE",
            "RC_LID_PATH_BITS",
        ] {
            if let Some(kept) = set(name, &text) {
                prop_assert_eq!(set(name, &kept), Some(kept.clone()), "{}={:?}", name, text);
            }
        }
    }

    /// Decimal fractions are rounded when they are printed: the stored value stays valid, exact or not.
    #[test]
    fn any_decimal_value_is_taken_or_refused_and_what_is_kept_is_a_value(text in text()) {
        for name in [
            "KEEPALIVE_INTERVAL", "RC_TIMEOUT", "BCOPY_BW", "RNDV_PERF_DIFF", "DISTANCE_LAT", "DISTANCE_BW",
            "PROTO_OVERHEAD",
        ] {
            if let Some(kept) = set(name, &text) {
                prop_assert!(set(name, &kept).is_some(), "{}={:?} kept as {:?}", name, text, kept);
            }
        }
    }
}
