//! The cost of unknown clients: one line at level diag each, no memory and no descriptor, at a worker's port and at a
//! listener.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Stdio;
use support::again::this_program;
use support::scene::Scene;
use support::server::Server;
use ucp::wire::cm_msg;
use ucp::wire::tcp_hello;

/// The variable with the port that a child's unknown clients connect to.
const PORT: &str = "RUCP_PORT";
/// Clients that are not counted: tables and buffers grow to their size.
const FIRST: usize = 120;
const COUNTED: usize = 600;

/// An unknown client's bytes: nothing, garbage, half of a valid hello, a wrong secret.
fn words(i: usize) -> Vec<u8> {
    match i % 6 {
        0 => Vec::new(),
        1 => b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        2 => tcp_hello::MAGIC.to_le_bytes().to_vec(),
        3 => cm_msg::MAGIC.to_le_bytes().to_vec(),
        4 => [&tcp_hello::MAGIC.to_le_bytes()[..], &[0; 40]].concat(),
        _ => [&cm_msg::MAGIC.to_le_bytes()[..], &[0xFF; 2000]].concat(),
    }
}

/// Clients in turn connect, send their bytes and wait until they are rejected.
fn unknown_clients(scene: &Scene, port: SocketAddr, count: usize) {
    for i in 0..count {
        let mut unknown = TcpStream::connect(port).unwrap();
        let _ = unknown.write_all(&words(i));
        let _ = unknown.shutdown(std::net::Shutdown::Write);
        unknown.set_nonblocking(true).unwrap();
        let mut rest = [0; 256];
        scene.until("a closed connection", || match unknown.read(&mut rest) {
            Ok(n) => n == 0,
            Err(e) => e.kind() != std::io::ErrorKind::WouldBlock,
        });
    }
}

/// Bytes allocated, and open descriptors.
fn held() -> (usize, usize) {
    // SAFETY: it only reads the allocator's counters.
    let heap = unsafe { libc::mallinfo2() };
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    (heap.uordblks + heap.hblkhd, descriptors)
}

#[test]
#[ignore = "run by the other tests, in an environment made for it"]
fn child() {
    let scene = Scene::new(&[(c"TLS", c"tcp")]);
    scene.decent_goes_on(1000);
    let server = Server::new(&scene, true);
    let [worker, listener] = ports(&scene, &server);
    let port = match std::env::var(PORT).unwrap().as_str() {
        "worker" => worker,
        _ => listener,
    };
    unknown_clients(&scene, port, FIRST);
    scene.settle();
    let (bytes, descriptors) = held();
    unknown_clients(&scene, port, COUNTED);
    scene.settle();
    let (bytes_now, descriptors_now) = held();
    assert_eq!(descriptors_now, descriptors);
    // Not even a pointer for each; the threads of the test itself may hold a little.
    assert!(
        bytes_now < bytes + COUNTED * 8,
        "{bytes} became {bytes_now}"
    );
    assert_eq!((server.requests(), server.half_open()), (0, 0));
    scene.decent_goes_on(1000);
}

/// Descriptor limit of the child, and the number of clients of each of its ports.
const FEW: u64 = 64;
const CLIENTS: usize = 150;
/// Clients accepted at the same time.
const ACCEPTED: usize = FEW as usize / 4;

/// Ports of the test: the worker's and a listener's.
fn ports(scene: &Scene, server: &Server) -> [SocketAddr; 2] {
    let tcp = scene.address.tcp.as_ref().unwrap();
    let ip = tcp.addresses.iter().map(|a| a.ip).find(IpAddr::is_ipv4);
    [
        SocketAddr::new(ip.expect("an IPv4 address"), tcp.port),
        server.port,
    ]
}

#[test]
#[ignore = "run by the other tests, in an environment made for it"]
fn child_with_few_descriptors() {
    let limit = libc::rlimit {
        rlim_cur: FEW,
        rlim_max: FEW,
    };
    // SAFETY: a valid structure.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    let scene = Scene::new(&[(c"TLS", c"tcp")]);
    let server = Server::new(&scene, true);
    let [port, listener] = ports(&scene, &server);
    println!("\n{PORTS}{port} {listener}");
    let all_here = std::thread::spawn(|| std::io::stdin().read_line(&mut String::new()).unwrap());
    scene.until("the unknown clients", || all_here.is_finished());
    assert!(server.half_open() <= ACCEPTED);
    let rx = scene.worker().rx.lock();
    assert!(rx.tl.tcp.as_ref().unwrap().half_open.len() <= ACCEPTED);
    drop(rx);
    // There is room for the program's own, and for a decent peer that connects now.
    let own: Vec<_> = (0..8).map(|_| std::fs::File::open("/dev/null")).collect();
    assert!(own.iter().all(Result::is_ok), "{own:?}");
    scene.decent_goes_on(1000);
}

/// Prefix of a child's line with its ports.
const PORTS: &str = "ports: ";

#[test]
fn unknown_clients_do_not_exhaust_few_descriptors() {
    let mut child = this_program()
        .args([
            "child_with_few_descriptors",
            "--exact",
            "--ignored",
            "--nocapture",
        ])
        .env("UCX_LOG_LEVEL", "diag")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let ports = said.find_map(|line| line.unwrap().strip_prefix(PORTS).map(str::to_owned));
    let ports = ports.expect("the child prints its ports");
    let connect_to = |port_name: &str| TcpStream::connect(port_name).unwrap();
    let mut silent = Vec::new();
    for port_name in ports.split(' ') {
        let mut at_one: Vec<_> = (0..CLIENTS).map(|_| connect_to(port_name)).collect();
        for unknown in &mut at_one[..CLIENTS - ACCEPTED] {
            assert_eq!(unknown.read(&mut [0]).unwrap_or(0), 0);
        }
        silent.extend(at_one);
    }
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"all here\n")
        .unwrap();
    let rest: Vec<String> = said.map(Result::unwrap).collect();
    assert!(child.wait().unwrap().success(), "{}", rest.join("\n"));
    drop(silent);
    for at_listener in [false, true] {
        let sent_away = |line: &&String| {
            line.contains("closed: others wait") && line.contains("to a listener") == at_listener
        };
        assert!(rest.iter().any(|line| sent_away(&line)), "{rest:?}");
    }
}

fn one_line_each(port_name: &str) {
    let output = this_program()
        .args(["child", "--exact", "--ignored", "--nocapture"])
        .env(PORT, port_name)
        .env("UCX_LOG_LEVEL", "diag")
        // The environment of the tests may have UCX_WHEEL for the C programs.
        .env("UCX_WARN_UNUSED_ENV_VARS", "n")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{port_name}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let said: Vec<&str> = text
        .lines()
        .filter(|line| line.contains(" UCX  "))
        .collect();
    let is_ours = |line: &&&str| line.contains(" DIAG ") && line.contains("closed: ");
    assert_eq!(said.iter().filter(is_ours).count(), FIRST + COUNTED);
    let other: Vec<_> = said.iter().filter(|line| !is_ours(line)).collect();
    assert!(other.is_empty(), "{port_name}: {other:?}");
}

#[test]
fn at_the_port_of_a_worker() {
    one_line_each("worker");
}

#[test]
fn at_a_listener() {
    one_line_each("listener");
}
