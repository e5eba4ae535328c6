//! rucp_top shows the real activity of workers of this process, and invalid pages cannot harm it.

use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::mem::zeroed;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd};
use std::process::{Command, Stdio};
use std::ptr::{null, null_mut};
use ucp::abi::{address, context, endpoint, tag, worker};
use ucp::ctypes::*;
use ucp::wire::stats;

/// A worker with an endpoint to itself.
struct Loop {
    context: ucp_context_h,
    worker: ucp_worker_h,
    ep: ucp_ep_h,
}

impl Loop {
    fn new() -> Loop {
        // SAFETY: zeroed parameter structures with masks that name what is set.
        unsafe {
            let mut params: ucp_params_t = zeroed();
            params.field_mask = UCP_PARAM_FIELD_FEATURES as u64 | UCP_PARAM_FIELD_NAME as u64;
            params.features = UCP_FEATURE_TAG as u64;
            params.name = c"test\x1b of top".as_ptr();
            let (mut context, mut worker, mut ep) = (null_mut(), null_mut(), null_mut());
            assert_eq!(
                context::ucp_init_version(1, 22, &params, null(), &mut context),
                UCS_OK
            );
            let worker_params: ucp_worker_params_t = zeroed();
            assert_eq!(
                worker::ucp_worker_create(context, &worker_params, &mut worker),
                UCS_OK
            );
            let (mut blob, mut len) = (null_mut(), 0);
            assert_eq!(
                address::ucp_worker_get_address(worker, &mut blob, &mut len),
                UCS_OK
            );
            let mut ep_params: ucp_ep_params_t = zeroed();
            ep_params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS as u64;
            ep_params.address = blob;
            assert_eq!(endpoint::ucp_ep_create(worker, &ep_params, &mut ep), UCS_OK);
            address::ucp_worker_release_address(worker, blob);
            Loop {
                context,
                worker,
                ep,
            }
        }
    }

    fn send(&self, bytes: &[u8]) {
        // SAFETY: live handles; messages sent at once do not need the buffer any more.
        unsafe {
            let param: ucp_request_param_t = zeroed();
            let sent =
                tag::ucp_tag_send_nbx(self.ep, bytes.as_ptr().cast(), bytes.len(), 1, &param);
            assert!(
                sent.is_null(),
                "eager messages complete at once while there is room"
            );
        }
    }

    fn progress(&self) {
        // SAFETY: a live worker.
        while unsafe { worker::ucp_worker_progress(self.worker) } != 0 {}
    }

    /// Receives one message that has arrived.
    fn receive(&self, buffer: &mut [u8]) {
        // SAFETY: live handles and buffer.
        unsafe {
            let param: ucp_request_param_t = zeroed();
            let got = tag::ucp_tag_recv_nbx(
                self.worker,
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                1,
                u64::MAX,
                &param,
            );
            assert!(got.is_null(), "the message is here");
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // SAFETY: made in `new`, destroyed once.
        unsafe {
            worker::ucp_worker_destroy(self.worker);
            context::ucp_cleanup(self.context);
        }
    }
}

fn top(arguments: &[&str]) -> String {
    let me = std::process::id().to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_rucp_top"))
        .args(arguments)
        .args(["--pid", &me])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn workers() -> Vec<Value> {
    let text = top(&["--once", "--json"]);
    serde_json::from_str::<Vec<Value>>(&text).unwrap()
}

fn memfd(bytes: &[u8]) -> File {
    // SAFETY: a constant name; the descriptor is fresh.
    let mut file = unsafe { File::from_raw_fd(libc::memfd_create(c"rucp-stats".as_ptr(), 0)) };
    file.write_all(bytes).unwrap();
    file
}

/// One test: the pages of a process are found by its number, and tests of one binary share it.
#[test]
fn counts_of_a_live_worker_and_pages_of_liars() {
    assert_eq!(workers().len(), 0, "no worker yet");
    let it = Loop::new();
    for _ in 0..10 {
        it.send(&[7; 8]);
    }
    it.send(&[7; 1000]);
    it.progress();
    let found = workers();
    assert_eq!(found.len(), 1, "{found:?}");
    let worker = &found[0];
    assert_eq!(
        worker["context"], "test? of top",
        "no control character for a terminal"
    );
    assert_eq!(
        (&worker["unexpected"], &worker["unexpected_total"]),
        (&11.into(), &11.into())
    );
    let peer = &worker["peers"][0];
    assert_eq!(
        (&peer["endpoints"], &peer["pending"]),
        (&1.into(), &0.into())
    );
    let lane = &peer["lanes"][0];
    assert_eq!(lane["lane"], "self/memory");
    let sent = |protocol: &str| {
        let flow = &lane["sent"][protocol];
        (
            flow["messages"].as_u64().unwrap(),
            flow["bytes"].as_u64().unwrap(),
        )
    };
    assert_eq!((sent("short"), sent("eager")), ((10, 80), (1, 1000)));
    assert_eq!(
        (sent("rendezvous"), sent("rma"), sent("stream")),
        ((0, 0), (0, 0), (0, 0))
    );
    assert_eq!(lane["received"]["messages"], 11);
    assert_eq!(lane["received"]["bytes"], 1080);

    let mut buffer = [0; 1000];
    (0..11).for_each(|_| it.receive(&mut buffer));
    let found = workers();
    assert_eq!(
        (&found[0]["unexpected"], &found[0]["requests"]),
        (&0.into(), &0.into())
    );
    assert_eq!(found[0]["unexpected_total"], 11);

    let rates = top(&["-n", "2", "-d", "0.05", "--json"]);
    assert_eq!(rates.lines().count(), 2);
    let once = top(&["--once"]);
    assert!(once.contains("short") && !once.contains("/s"), "{once}");
    let twice = top(&["-n", "2", "-d", "0.05"]);
    assert!(twice.contains("messages/s"), "{twice}");
    let sent = "rucp_sent_bytes_total{";
    for exported in [metrics_of_a_file(), metrics_over_http()] {
        let mut sent = exported.lines().filter(|line| line.starts_with(sent));
        let eager = sent
            .find(|line| line.contains("protocol=\"eager\""))
            .unwrap();
        assert!(eager.ends_with(" 1000") && eager.contains("lane=\"self/memory\""));
        assert!(exported.contains("# TYPE rucp_sent_bytes_total counter\n"));
    }

    show_invalid_pages();
    drop(it);
    assert_eq!(workers().len(), 0, "a worker that is gone is not shown");
}

/// What `rucp_top --prometheus FILE` has written.
fn metrics_of_a_file() -> String {
    let directory = std::env::temp_dir().join(format!("rucp-top-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let file = directory.join("rucp.prom");
    std::fs::write(&file, "of before").unwrap();
    top(&["--once", "--prometheus", file.to_str().unwrap()]);
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(
        std::fs::read_dir(&directory).unwrap().count(),
        1,
        "no other file"
    );
    std::fs::remove_dir_all(&directory).unwrap();
    text
}

/// What `rucp_top --prometheus ADDRESS` answers. It ends after one request.
fn metrics_over_http() -> String {
    let me = std::process::id().to_string();
    let mut server = Command::new(env!("CARGO_BIN_EXE_rucp_top"))
        .args(["--once", "--prometheus", "127.0.0.1:0", "--pid", &me])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(server.stderr.take().unwrap())
        .read_line(&mut said)
        .unwrap();
    let url = said.trim_end().strip_prefix("rucp_top: http://").unwrap();
    let (address, path) = url.split_once('/').unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    write!(client, "GET /{path} HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(server.wait().unwrap().success());
    assert!(answer.starts_with("HTTP/1.0 200 ") && answer.contains("text/plain; version=0.0.4"));
    answer
}

/// What `rucp_top --stuck` says of this process, whose worker waits for nothing.
fn stuck() -> Value {
    serde_json::from_str(&top(&["--stuck", "--json"])).unwrap()
}

/// Pages in this process that no worker has written.
fn show_invalid_pages() {
    let mut page = vec![0xff; stats::PAGE_LEN + 100];
    let _garbage = memfd(&page);
    let _empty = memfd(&[]);
    let _short = memfd(&[1; 100]);
    page[..8].copy_from_slice(&stats::MAGIC.to_le_bytes());
    page[8..12].copy_from_slice(&stats::VERSION.to_le_bytes());
    page[12..16].copy_from_slice(&std::process::id().to_le_bytes());
    for entry in page[stats::HEADER_LEN..].chunks_exact_mut(stats::ENTRY_LEN) {
        entry[..4].copy_from_slice(&stats::CONNECTED.to_le_bytes());
    }
    let liar = memfd(&page);
    let found = workers();
    assert_eq!(
        found.len(),
        2,
        "a page that fits in form is shown, whatever it says"
    );
    assert_eq!(
        stuck(),
        Value::Array(Vec::new()),
        "rows with numbers of no operation are none"
    );
    for length in [0, 8, stats::HEADER_LEN as u64, 1 << 40] {
        liar.set_len(length).unwrap();
        top(&["--once"]);
        assert_eq!(stuck(), Value::Array(Vec::new()));
    }
    assert!(liar.as_raw_fd() >= 0, "open until here");
    drop(liar);
}

#[test]
fn a_missing_worker_is_reported() {
    // A process without the library.
    let mut idle = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = idle.id().to_string();
    let top = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rucp_top"));
        let output = command
            .args(arguments)
            .args(["--pid", &pid])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr))
    };
    let no_worker = format!("rucp_top: process {pid} has no worker that you may see\n");
    assert_eq!(top(&["--once"]), (String::new(), no_worker));
    assert_eq!(top(&["--once", "--json"]), ("[]\n".into(), String::new()));
    drop(idle.stdin.take());
    idle.wait().unwrap();
}

#[test]
fn a_terminal_is_needed_for_the_screen() {
    let output = Command::new(env!("CARGO_BIN_EXE_rucp_top"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
}

#[test]
fn an_error_names_what_cannot_be_opened() {
    let failed = |target: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_rucp_top"))
            .args(["--once", "--prometheus", target])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let said = failed("/nonexistent/x.prom");
    assert!(
        said.starts_with("rucp_top: /nonexistent/x.prom: "),
        "{said}"
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = failed(&address);
    assert!(
        said.starts_with(&format!("rucp_top: {address}: ")),
        "{said}"
    );
}
