//! Options as a program sets and reads them: what every kind of value accepts, by table and by property.

use std::time::Duration;

use proptest::prelude::*;
use ucp::options::{
    Count, FenceMode, Interval, LogLevel, OpFlag, OptionError, Options, PrintFlags, RndvScheme,
    Settings, Size, Ternary, reference,
};

/// What an option is after it was set, or that it refused.
fn set(name: &str, value: &str) -> Option<String> {
    let mut options = Options::default();
    options.set(name, value).ok()?;
    options.get(name)
}

/// Checks inputs against what UCX 1.22 makes of them (`ucx_info -c` with the variable set).
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
            ("s", None),
            ("", None),
            ("-1", None),
            ("nan", None),
        ],
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
            ("x", None),
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
    assert!(options.posix_use_proc_link && options.warn_unused_env_vars);
    for (name, value) in [
        ("RNDV_THRESH", "8k,inter:inf"),
        ("KEEPALIVE_INTERVAL", "inf"),
        ("FENCE_MODE", "STRONG"),
        ("EXTRA_OP_ATTR_FLAGS", "fast_cmpl"),
        ("NUM_EPS", "7"),
        ("MM_HUGETLB_MODE", "n"),
        ("MAX_RNDV_LANES", "4"),
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
    assert_eq!(options.fence_mode, FenceMode::Strong);
    assert!(options.extra_op_attr_flags.contains(OpFlag::FastCmpl));
    assert!(!options.extra_op_attr_flags.contains(OpFlag::MultiSend));
    assert_eq!(options.num_eps, Count::Number(7));
    assert_eq!(options.posix_hugetlb_mode, Ternary::No);
    assert_eq!(options.max_rndv_rails, 4);
    assert_eq!(
        (options.tcp_port_range.first, options.tcp_port_range.last),
        (5000, 65535)
    );
    assert_eq!(options.rndv_scheme, RndvScheme::Am);
}

#[test]
fn shared_prefixes_reach_all_that_share() {
    let mut options = Options::default();
    options.set("MM_SEG_SIZE", "1k").unwrap();
    assert_eq!(options.get("POSIX_SEG_SIZE").as_deref(), Some("1K"));
    assert_eq!(options.get("SYSV_SEG_SIZE").as_deref(), Some("1K"));
    options.set("IB_SL", "3").unwrap();
    for tl in [
        "RC_VERBS", "RC_MLX5", "DC_MLX5", "UD_VERBS", "UD_MLX5", "SRD",
    ] {
        assert_eq!(
            options.get(&format!("{tl}_SL")).as_deref(),
            Some("3"),
            "{tl}"
        );
    }
    options.set("RC_TIMEOUT", "2s").unwrap();
    assert_eq!(
        options.get("DC_MLX5_TIMEOUT").as_deref(),
        Some("2000000.00us")
    );
    assert_eq!(
        options.get("UD_VERBS_TIMEOUT").as_deref(),
        Some("30000000.00us")
    );
}

#[test]
fn wrong_names_and_values_change_nothing() {
    let mut options = Options::default();
    for name in ["NOSUCH", "UCX_TLS", "tls", "", "IB_TIMEOUT_"] {
        assert_eq!(
            options.set(name, "1"),
            Err(OptionError::Unknown(name.into()))
        );
    }
    let error = options.set("RNDV_SCHEME", "nope").unwrap_err();
    assert!(matches!(&error, OptionError::Invalid { name, .. } if name == "RNDV_SCHEME"));
    assert!(
        error
            .to_string()
            .starts_with("Invalid value for RNDV_SCHEME: 'nope'. Expected: one of auto, get_zcopy")
    );
    assert_eq!(options.get("RNDV_SCHEME").as_deref(), Some("auto"));
    assert_eq!(options.get("NOSUCH"), None);
}

#[test]
fn modify_takes_patterns() {
    let value = |pattern: &str, text: &str, name: &str| {
        let mut options = Options::default();
        options.modify(pattern, text).expect(pattern);
        options.get(name).unwrap()
    };
    assert_eq!(
        value("RNDV_THRES*", "4k", "RNDV_THRESH"),
        "intra:4K,inter:4K"
    );
    assert_eq!(value("RNDV_THRES*", "4k", "RNDV_THRESH_FALLBACK"), "4K");
    assert_eq!(value("?LS", "self", "TLS"), "self");
    assert_eq!(value("TL[S]", "self", "TLS"), "self");
    assert_eq!(
        value("MAX_RNDV_LANE*", "3", "MAX_RNDV_RAILS"),
        "3",
        "an older name"
    );
    assert_eq!(
        value("MM_SEG*", "3k", "SYSV_SEG_SIZE"),
        "3K",
        "a shared prefix"
    );
    // Options of contexts come first, those of transports are not looked at then.
    assert_eq!(value("CM_*", "n", "CM_USE_ALL_DEVICES"), "n");
    assert_eq!(value("*SEG_SIZE", "16k", "TCP_TX_SEG_SIZE"), "8K");
    // Of those it has where it makes sense.
    assert_eq!(value("TCP_*", "77", "TCP_MAX_POLL"), "77");
    assert_eq!(value("TCP_*", "77", "TCP_NODELAY"), "y");
}

#[test]
fn modify_takes_every_option_but_the_fixed_ones() {
    let all = print_all(PrintFlags {
        config: true,
        hidden: true,
        ..PrintFlags::default()
    });
    let (mut taken, mut fixed) = (0, 0);
    for name in names_of(&all) {
        let mut options = Options::default();
        let default = options.get(&name).unwrap();
        match options.modify(&name, &default) {
            Ok(()) => taken += 1,
            Err(OptionError::Fixed(_)) => fixed += 1,
            Err(error) => panic!("{error}"),
        }
        assert_eq!(options.get(&name), Some(default));
    }
    // As many as ucp_config_modify of UCX 1.22 refuses though ucx_info prints them.
    assert!(taken > 850 && fixed == 20, "{taken} taken, {fixed} fixed");
}

#[test]
fn modify_refuses_what_set_refuses_and_what_is_fixed() {
    let mut options = Options::default();
    let before = format!("{options:?}");
    let unknown = |name: &str| Err(OptionError::Unknown(name.into()));
    for name in [
        "NOSUCH",
        "UCX_TLS",
        "tls",
        "",
        "TLS ",
        "NOSUCH*",
        "TCP_FOO*",
        "LOG_FILE_S*",
    ] {
        assert_eq!(options.modify(name, "1"), unknown(name));
    }
    let fixed = |name: &str| Err(OptionError::Fixed(name.into()));
    for name in ["LOG_FILE", "ERROR_SIGNALS", "VFS_ENABLE", "STATS_DEST"] {
        assert_eq!(options.modify(name, ""), fixed(name));
    }
    // One of them refuses it, or of a transport's all.
    for (name, value) in [
        ("T*", "self"),
        ("*", "1"),
        ("TCP_KEEP*", "no"),
        ("ZCOPY_THRESH", ""),
    ] {
        let answer = options.modify(name, value);
        assert!(
            matches!(answer, Err(OptionError::Invalid { .. })),
            "{name}: {answer:?}"
        );
    }
    assert_eq!(format!("{options:?}"), before);
}

#[test]
fn names_that_programs_set_are_accepted() {
    // NIXL, UCXX and ucx-py set these whatever the hardware.
    for (name, value) in [
        ("ADDRESS_VERSION", "v2"),
        ("IB_AH_CACHE_TTL", "10s"),
        ("IB_PCI_RELAXED_ORDERING", "try"),
        ("MAX_COMPONENT_MDS", "32"),
        ("MAX_HCA_PER_GPU", "auto"),
        ("MAX_RMA_RAILS", "4"),
        ("RC_FENCE", "weak"),
        ("RC_GDA_NUM_CHANNELS", "4"),
        ("RNDV_PIPELINE_ERROR_HANDLING", "y"),
        ("MEMTYPE_CACHE", "n"),
        ("RNDV_FRAG_MEM_TYPE", "cuda"),
        ("MAX_RNDV_RAILS", "1"),
        ("GDR_COPY_BW", "0MBs,get_dedicated:30GBs"),
    ] {
        let mut options = Options::default();
        assert_eq!(options.modify(name, value), Ok(()), "{name}");
    }
}

/// The names at the start of the printed lines.
fn names_of(printed: &str) -> Vec<String> {
    let lines = printed
        .lines()
        .filter_map(|line| line.strip_prefix("UCX_")?.split_once('='));
    lines.map(|(name, _)| name.to_owned()).collect()
}

fn print_all(flags: PrintFlags) -> String {
    let mut out = String::new();
    Options::default()
        .print_all(&mut out, "all", flags)
        .unwrap();
    out
}

#[test]
fn every_default_is_a_value_in_the_spelling_of_its_kind() {
    let printed = print_all(PrintFlags {
        config: true,
        hidden: true,
        ..PrintFlags::default()
    });
    let names = names_of(&printed);
    assert!(names.len() > 850, "{}", names.len());
    for name in names {
        let default = Options::default().get(&name).expect("printed, so known");
        assert_eq!(set(&name, &default), Some(default), "{name}");
    }
}

#[test]
fn no_name_is_there_twice() {
    let mut names = names_of(&print_all(PrintFlags {
        config: true,
        hidden: true,
        ..PrintFlags::default()
    }));
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn every_typed_field_has_an_option() {
    for name in Settings::NAMES {
        assert!(Options::default().get(name).is_some(), "{name}");
    }
}

#[test]
fn prints_what_the_flags_ask_for() {
    let mut options = Options::default();
    options.set("TLS", "tcp").unwrap();
    let print = |flags| {
        let mut out = String::new();
        options.print(&mut out, "my title", flags).unwrap();
        out
    };
    assert_eq!(print(PrintFlags::default()), "");
    assert_eq!(
        print(PrintFlags {
            header: true,
            ..PrintFlags::default()
        }),
        "#\n# my title\n#\n\n"
    );
    let config = print(PrintFlags {
        config: true,
        ..PrintFlags::default()
    });
    assert!(
        config.starts_with("UCX_NET_DEVICES=all\n") && config.contains("\nUCX_TLS=tcp\n"),
        "{config}"
    );
    assert!(
        !config.contains("POSIX") && !config.contains("LANES") && !config.contains('#'),
        "{config}"
    );
    let hidden = print(PrintFlags {
        config: true,
        hidden: true,
        ..PrintFlags::default()
    });
    assert!(hidden.contains("\nUCX_MAX_EAGER_LANES=1\n"), "{hidden}");
    let commented = print(PrintFlags {
        config: true,
        comment_default: true,
        ..PrintFlags::default()
    });
    assert!(
        commented.contains("\n# UCX_SEG_SIZE=8K\n") && commented.contains("\nUCX_TLS=tcp\n"),
        "{commented}"
    );
    let doc = print(PrintFlags {
        config: true,
        doc: true,
        ..PrintFlags::default()
    });
    assert!(
        doc.contains("# syntax:    y or n\n#\nUCX_USE_MT_MUTEX=n\n"),
        "{doc}"
    );
}

#[test]
fn the_reference_page_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/OPTIONS.md");
    let page = reference();
    if std::env::var_os("RUCP_BLESS").is_some() {
        std::fs::write(path, &page).expect("docs/OPTIONS.md can be written");
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept == page,
        "docs/OPTIONS.md differs from the table: RUCP_BLESS=1 cargo test --test options"
    );
}

/// Texts near to what people write, and any others.
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

    /// Decimal fractions are rounded when they are printed: what is kept stays a value, to the digit or not.
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

    #[test]
    fn any_name_is_known_or_refused(name in ".*|[A-Z_0-9]{0,30}") {
        let mut options = Options::default();
        let known = options.get(&name).is_some();
        let invalid = matches!(options.set(&name, "1"), Err(OptionError::Invalid { .. }));
        prop_assert!(known || !invalid);
    }
}
