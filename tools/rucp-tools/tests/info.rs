//! rucp_info shows the environment's configuration: excluded transports are not shown, and so on.

use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rucp_info"));
    // The caller's environment has no effect on this test.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("UCX_")) {
        command.env_remove(name);
    }
    command.args(arguments);
    command.envs(environment.iter().copied()).output().unwrap()
}

fn json(arguments: &[&str], environment: &[(&str, &str)]) -> Value {
    let output = run(&[arguments, &["--json"]].concat(), environment);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn transports(tls: &str) -> Vec<String> {
    let found = json(&["-d"], &[("UCX_TLS", tls)]);
    let all = found["devices"].as_array().unwrap().iter();
    let mut names: Vec<String> = all
        .map(|device| device["transport"].as_str().unwrap().to_owned())
        .collect();
    names.dedup();
    names
}

/// What is listed on the software driver (c_tests/cuda) with so many devices.
fn on_software_gpus(tls: &str, devices: &str) -> Value {
    let out = concat!(env!("CARGO_TARGET_TMPDIR"), "/cuda");
    let library = format!("{out}/libcuda.so.1");
    let made = Command::new("make")
        .args([
            "-s",
            "-C",
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../c_tests/cuda"),
        ])
        .args([&format!("OUT={out}"), &library])
        .status();
    assert!(made.unwrap().success());
    let environment = [
        ("UCX_TLS", tls),
        ("LD_LIBRARY_PATH", out),
        ("SOFT_CUDA_DEVICES", devices),
    ];
    json(&["-d"], &environment)["devices"].clone()
}

#[test]
fn memory_of_gpus_where_there_are_any() {
    let found = on_software_gpus("self,cuda", "3");
    assert_eq!(found.as_array().unwrap().len(), 2, "{found}");
    assert_eq!(found[0]["transport"], "self");
    let copies = &found[1];
    assert_eq!(copies["transport"], "cuda_copy");
    assert_eq!(
        (&copies["device"], &copies["type"]),
        (&"cuda".into(), &"accelerator".into())
    );
    assert_eq!(copies["capabilities"]["memory domain"], "cuda_cpy");
    assert_eq!(copies["capabilities"]["devices"], "3");
    for (tls, devices) in [("self,cuda", "0"), ("self", "3"), ("self,cuda_ipc", "3")] {
        let found = on_software_gpus(tls, devices);
        assert_eq!(
            found.as_array().unwrap().len(),
            1,
            "{tls}, {devices}: {found}"
        );
    }
}

#[test]
fn devices_without_what_is_excluded() {
    assert_eq!(transports("self"), ["self"]);
    assert_eq!(transports("sm,self"), ["self", "posix", "sysv", "cma"]);
    let all = transports("all");
    let but_cma = transports("^cma");
    assert!(all.contains(&"cma".into()) && !but_cma.contains(&"cma".into()));
    assert_eq!(all.len(), but_cma.len() + 1);
    assert!(
        !transports("^sm")
            .iter()
            .any(|tl| ["posix", "sysv", "cma"].contains(&tl.as_str()))
    );
}

/// ucx_info prints nothing of the transport and returns 0.
#[test]
fn an_unknown_transport_is_an_error() {
    let output = run(&["-d", "-t", "nonsense"], &[("UCX_TLS", "self,sm")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "rucp_info: no transport 'nonsense' can be used here; those that can: self, posix, sysv, cma\n"
    );
    let known = run(&["-d", "-t", "posix"], &[("UCX_TLS", "self,sm")]);
    assert!(known.status.success() && !known.stdout.is_empty());
}

#[test]
fn the_library_is_where_the_program_is() {
    let program = std::fs::canonicalize(env!("CARGO_BIN_EXE_rucp_info")).unwrap();
    let output = Command::new(&program).arg0("a name").arg("-v").output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let path = format!("# Library path: {} (this program", program.display());
    assert!(text.contains(&path), "{text}");
}

#[test]
fn nothing_left_is_an_error() {
    let output = run(&["-d"], &[("UCX_TLS", "rc")]);
    assert!(!output.status.success());
    let said = [output.stdout, output.stderr].concat();
    assert!(String::from_utf8_lossy(&said).contains("no usable transports/devices"));
}

#[test]
fn configuration() {
    let set = [("UCX_RNDV_THRESH", "8k")];
    let found = json(&["-c", "-F", "RNDV_THRESH"], &set);
    let option = &found["config"]["UCX_RNDV_THRESH"];
    assert_eq!(option["value"], "intra:8K,inter:8K");
    assert_eq!(option["default"], "intra:auto,inter:auto");
    let text = run(&["-c", "-C"], &set).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(
        text.contains("\nUCX_RNDV_THRESH=intra:8K,inter:8K\n"),
        "{text}"
    );
    assert!(text.contains("\n# UCX_TLS=all\n"));
    let full = run(&["-c", "-f", "-F", "TLS"], &[]).stdout;
    assert!(String::from_utf8_lossy(&full).contains("# syntax:"));
    let wrong = run(&["-c"], &[("UCX_RNDV_THRESH", "zz")]);
    assert!(!wrong.status.success());
}

/// The ranges of one operation: first, last, protocol, lane.
fn ranges(place: &str, environment: &[(&str, &str)]) -> Vec<(u64, Option<u64>, String, String)> {
    let found = json(&["-e", "-u", "t", "-P", place], environment);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    found["endpoint"][0]["ranges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|range| {
            let first = range["first"].as_u64().unwrap();
            (
                first,
                range["last"].as_u64(),
                text(&range["protocol"]),
                text(&range["lane"]),
            )
        })
        .collect()
}

#[test]
fn endpoints() {
    let own = ranges("self", &[]);
    assert_eq!(own.first().unwrap().0, 0);
    assert_eq!(own.last().unwrap().1, None);
    assert!(
        own.iter()
            .all(|range| range.3 == "self/memory" || range.3 == "mapped memory")
    );
    for pair in own.windows(2) {
        assert_eq!(pair[0].1.unwrap() + 1, pair[1].0, "no gap and no overlap");
    }
    let thresh = [("UCX_RNDV_THRESH", "1000"), ("UCX_TLS", "self,sm")];
    let other = ranges("intra", &thresh);
    let middle = other.iter().find(|range| range.0 == 1000).unwrap();
    assert_eq!(middle.3, "posix/memory");
    assert_eq!(other.last().unwrap().3, "cma/memory");
    assert_eq!(other[0].3, "posix/memory");
    let slow = ranges("intra", &[("UCX_TLS", "self,sysv")]);
    assert!(slow.iter().all(|range| range.3 == "sysv/memory"));
}

#[test]
fn help_and_mistakes() {
    assert_eq!(run(&[], &[]).status.code(), Some(2));
    assert_eq!(run(&["--nonsense"], &[]).status.code(), Some(2));
    assert!(!run(&["-e", "-u", "q"], &[]).status.success());
    let version = run(&["-v"], &[]).stdout;
    let versions = concat!(
        "# Library version: 1.23.0 (rucp ",
        env!("CARGO_PKG_VERSION"),
        ")"
    );
    assert!(String::from_utf8_lossy(&version).starts_with(versions));
    let info = run(&["-p", "-w", "-e", "-b", "-s"], &[]);
    let text = String::from_utf8(info.stdout).unwrap();
    for part in [
        "# UCP context",
        "# UCP worker",
        "# UCP endpoint",
        "#define",
        "# CPU vendor",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}
