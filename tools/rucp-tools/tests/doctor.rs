//! rucp_doctor's report and exit status. `c_tests/doctor` stages faults, for which it needs root; these tests do not.

use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

fn doctor(arguments: &[&str], environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rucp_doctor"));
    // The caller's environment has no effect on this test.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("UCX_")) {
        command.env_remove(name);
    }
    command.args(arguments).envs(environment.iter().copied());
    command
}

fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    doctor(arguments, environment).output().unwrap()
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

fn has(report: &Value, id: &str) -> bool {
    let mut findings = report["findings"].as_array().unwrap().iter();
    findings.any(|finding| finding["id"] == id)
}

#[test]
fn messages_are_exchanged_with_another_process() {
    let output = run(&["--json"], &[("UCX_TLS", "self,tcp")]);
    let report = report(&output);
    let here = &report["pair"]["here"]["exchange"];
    assert_eq!(here["stage"], "Complete", "{report:#}");
    assert!(here["lanes"][0].as_str().unwrap().starts_with("tcp/"));
    assert!(has(&report, "shm-excluded"));
    assert_eq!(output.status.code(), Some(1));
}

/// An instance that waits, its messages, and its address.
fn server() -> (Child, BufReader<ChildStderr>, String) {
    let mut server = doctor(&["--json", "--serve", "127.0.0.1:0"], &[])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut messages = BufReader::new(server.stderr.take().unwrap());
    let mut line = String::new();
    messages.read_line(&mut line).unwrap();
    let address = line.split_whitespace().last().unwrap();
    (server, messages, address.to_owned())
}

#[test]
fn two_instances_exchange_messages() {
    let (server, _messages, address) = server();
    let client = report(&run(&["--json", "--pair", &address], &[]));
    let server = report(&server.wait_with_output().unwrap());
    assert_eq!(
        client["pair"]["here"]["exchange"]["stage"], "Complete",
        "{client:#}"
    );
    // Each end has the other's report.
    let pids = |report: &Value| {
        let pid = |end: &str| report["pair"][end]["process"]["pid"].as_u64().unwrap();
        (pid("here"), pid("there"))
    };
    let (here, there) = pids(&client);
    assert_eq!(pids(&server), (there, here));
}

#[test]
fn other_programs_are_refused() {
    for sent in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"{}\n", b"\xff\n", b""] {
        let (mut server, _messages, address) = server();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(server.wait().unwrap().code(), Some(2), "{sent:?}");
    }
}

#[test]
fn mistakes_and_what_cannot_be_looked_at() {
    for arguments in [
        &["--nonsense"][..],
        &["--pair"],
        &["--serve", "127.0.0.1", "--pair", "127.0.0.1"],
        &["/no/such/program"],
        &["--pid", "2147483647"],
        // The port for discarding: no rucp_doctor is there.
        &["--pair", "127.0.0.1:9"],
    ] {
        let output = run(arguments, &[]);
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {output:?}");
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn text_names_findings_effects_and_changes() {
    let output = run(&[], &[("UCX_TSL", "tcp")]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("\nSLOW option-unknown: no option is called UCX_TSL\n  effect: "),
        "{text}"
    );
    assert!(text.contains("\n  change: rename it: UCX_TLS?\n"), "{text}");
}
