//! Transports and devices selected by an option value.

use ucp::options::{DeviceFilter, TlsFilter};

const ALL: &[&str] = &[
    "self",
    "posix",
    "sysv",
    "xpmem",
    "knem",
    "cma",
    "tcp",
    "rc_verbs",
    "rc_mlx5",
    "dc_mlx5",
    "ud_verbs",
    "ud_mlx5",
    "srd",
    "cuda_copy",
    "tofu",
];

fn allowed(text: &str) -> Vec<&'static str> {
    let filter = TlsFilter::parse(text);
    ALL.iter().copied().filter(|tl| filter.allows(tl)).collect()
}

#[test]
fn aliases_stand_for_their_members() {
    assert_eq!(allowed("all"), ALL);
    assert_eq!(allowed(""), [""; 0]);
    assert_eq!(allowed("tcp"), ["tcp"]);
    assert_eq!(allowed("mm"), ["posix", "sysv", "xpmem"]);
    assert_eq!(
        allowed("sm,tcp"),
        ["posix", "sysv", "xpmem", "knem", "cma", "tcp"]
    );
    assert_eq!(allowed("shm"), allowed("sm"));
    assert_eq!(allowed("loopback"), ["self"]);
    assert_eq!(
        allowed("ib"),
        [
            "rc_verbs", "rc_mlx5", "dc_mlx5", "ud_verbs", "ud_mlx5", "srd"
        ]
    );
    assert_eq!(allowed("rc"), ["rc_verbs", "rc_mlx5"]);
    assert_eq!(allowed("rc_x,self"), ["self", "rc_mlx5"]);
    assert_eq!(allowed("ud_v"), ["ud_verbs"]);
    assert_eq!(allowed("dc_x"), ["dc_mlx5"]);
    assert_eq!(allowed(" self , tcp "), ["self", "tcp"]);
}

#[test]
fn a_caret_negates_the_whole_list() {
    let mut rest: Vec<&str> = ALL.to_vec();
    rest.retain(|tl| !["tcp", "posix", "sysv", "xpmem"].contains(tl));
    assert_eq!(allowed("^tcp,mm"), rest);
    assert_eq!(allowed("^"), ALL);
    assert!(TlsFilter::parse("^tcp").is_negated() && !TlsFilter::parse("tcp").is_negated());
}

#[test]
fn a_backslash_means_the_transport_itself() {
    assert_eq!(allowed("\\rc"), [""; 0]);
    assert_eq!(allowed("\\tcp"), ["tcp"]);
    assert_eq!(TlsFilter::parse("\\rc").unknown(ALL), ["\\rc"]);
}

#[test]
fn helpers_only_connect() {
    let rc = TlsFilter::parse("rc");
    assert!(!rc.allows("ud_verbs") && rc.allows_aux("ud_verbs") && rc.allows_aux("rc_verbs"));
    assert!(!rc.allows_aux("tcp"));
    let tcp = TlsFilter::parse("sm,tcp:aux");
    assert!(!tcp.allows("tcp") && tcp.allows_aux("tcp"));
    let without = TlsFilter::parse("^ud:aux");
    assert!(without.allows("ud_verbs") && !without.allows_aux("ud_verbs"));
    let without = TlsFilter::parse("^rc");
    assert!(
        !without.allows("rc_verbs") && without.allows("ud_verbs") && without.allows_aux("ud_verbs")
    );
}

#[test]
fn unknown_transports_are_reported() {
    let known = ["self", "posix", "tcp"];
    assert_eq!(
        TlsFilter::parse("self,nope,sm,ib,tcp:aux").unknown(&known),
        ["nope", "ib"]
    );
    assert!(TlsFilter::parse("all").unknown(&known).is_empty());
    for (text, empty) in [
        ("", true),
        (" ,", true),
        ("^", true),
        ("all", false),
        ("^tcp", false),
    ] {
        assert_eq!(TlsFilter::parse(text).is_empty(), empty, "{text}");
    }
}

#[test]
fn devices_by_name_and_port() {
    let filter = DeviceFilter::parse("mlx5_0,mlx5_1:2,eth0");
    for (device, expected) in [
        ("mlx5_0:1", true),
        ("mlx5_0:2", true),
        ("mlx5_1:1", false),
        ("mlx5_1:2", true),
        ("eth0", true),
        ("eth01", false),
        ("lo", false),
    ] {
        assert_eq!(filter.allows(device), expected, "{device}");
    }
    assert_eq!(filter.unknown(&["mlx5_0:1", "lo"]), ["mlx5_1:2", "eth0"]);
    assert_eq!(
        DeviceFilter::parse("lo,a,lo,a,lo").repeated(),
        ["lo", "a", "lo"]
    );
    assert!(filter.repeated().is_empty());
    let without = DeviceFilter::parse("^docker0,mlx5_0");
    assert!(!without.allows("docker0") && !without.allows("mlx5_0:1") && without.allows("eth0"));
    assert!(DeviceFilter::parse("all").is_all() && DeviceFilter::parse("all").allows("any"));
}
