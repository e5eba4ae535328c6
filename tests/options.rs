//! Options by name: their list, setting them, printing them.

use proptest::prelude::*;
use ucp::options::{OptionError, Options, PrintFlags, Settings, reference};

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
    assert!(error.to_string().starts_with(
        "Invalid value for UCX_RNDV_SCHEME: 'nope'. Expected: one of auto, get_zcopy"
    ));
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
    // Options of contexts are parsed first, those of transports are not read then.
    assert_eq!(value("CM_*", "n", "CM_USE_ALL_DEVICES"), "n");
    assert_eq!(value("*SEG_SIZE", "16k", "TCP_TX_SEG_SIZE"), "8K");
    // Options of contexts are rejected where they make no sense.
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
    // TRACE_FILE, TRACE_MAX_SIZE and HEAP, and the number that ucp_config_modify of UCX 1.22 rejects though ucx_info
    // prints them.
    assert!(
        taken > 850 && fixed == 3 + 20,
        "{taken} taken, {fixed} fixed"
    );
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
    // One of them rejects it, or of a transport's all.
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
        let mut options = Options::default();
        assert_eq!(options.set(&name, &default), Ok(()), "{name}");
        assert_eq!(options.get(&name), Some(default), "{name}");
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
    for name in Settings::names() {
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

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_name_is_known_or_refused(name in ".*|[A-Z_0-9]{0,30}") {
        let mut options = Options::default();
        let known = options.get(&name).is_some();
        let invalid = matches!(options.set(&name, "1"), Err(OptionError::Invalid { .. }));
        prop_assert!(known || !invalid);
    }
}

/// Options that are read by their names, as far as the names are literals, are typed fields too: docs/OPTIONS.md says
/// that they have an effect.
#[test]
fn options_that_are_read_by_name_are_fields() {
    let mut read = Vec::new();
    let mut directories = vec![std::path::PathBuf::from("src")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let source = std::fs::read_to_string(&path).unwrap();
                let code = source.split("#[cfg(test)]").next().unwrap();
                for call in ["options.value(\"", "options.get(\""] {
                    let names = code.split(call).skip(1);
                    read.extend(names.map(|rest| rest.split('"').next().unwrap().to_owned()));
                }
            }
        }
    }
    assert!(!read.is_empty());
    for name in read {
        assert!(
            Settings::names().contains(&&*name),
            "{name} has an effect, and docs/OPTIONS.md does not say so"
        );
    }
}
