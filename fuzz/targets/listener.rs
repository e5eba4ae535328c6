//! Connections to a listener: raw bytes, and the same bytes as a client's hello with an address behind it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::{Read, Write};
use std::net::TcpStream;
use ucp::ctypes::ucp_context_h;
use ucp::tl::address::WorkerAddress;
use ucp::wire::cm_msg::{Hello, MAGIC, Reply};
use ucp_fuzz::support::scene::{Scene, new_context};
use ucp_fuzz::support::server::Server;

thread_local! {
    /// The fuzzer has one thread.
    static CONTEXT: ucp_context_h = new_context(&[(c"TLS", c"tcp,self,sm"), (c"NET_DEVICES", c"lo")]);
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&how, bytes)) = bytes.split_first() else {
        return;
    };
    let scene = Scene::within(CONTEXT.with(|c| *c));
    let server = Server::new(&scene, how & 1 != 0);
    // Raw bytes, an invalid address, a valid one: of the well-behaved worker.
    let words = bytes.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
    let mut decent = WorkerAddress {
        uid: words | 1,
        ..scene.address.clone()
    };
    decent.shm = None;
    let address = match how >> 1 & 3 {
        0 => None,
        1 => Some(bytes.to_vec()),
        _ => Some(decent.encode()),
    };
    let said = match &address {
        None => bytes.to_vec(),
        Some(address) => {
            let hello = Hello {
                magic: MAGIC,
                number: words as u32 >> 10,
                address_len: address.len() as u16,
                err_mode: how >> 3 & 3,
                client_id: words,
                secret: words,
            };
            [&hello.encode()[..], address].concat()
        }
    };
    let right = Hello::decode(&said).is_some_and(|hello| {
        let end = Hello::SIZE + usize::from(hello.address_len);
        said.get(Hello::SIZE..end)
            .is_some_and(|a| WorkerAddress::decode(a).is_ok())
    });
    let mut client = TcpStream::connect(server.port).expect("the listener accepts");
    let cut = usize::from(how >> 6) * said.len() / 4;
    client
        .write_all(&said[..cut])
        .expect("room in a socket's buffer");
    scene.settle();
    let _ = client.write_all(&said[cut..]);
    if !right {
        let _ = client.shutdown(std::net::Shutdown::Write);
    }
    client.set_nonblocking(true).expect("always possible");
    // Every client is accepted or rejected.
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    scene.until("an answer or the end", || match client.read(&mut part) {
        Ok(0) => true,
        Ok(n) => {
            answer.extend_from_slice(&part[..n]);
            Reply::decode(&answer).is_some()
        }
        Err(e) => e.kind() != std::io::ErrorKind::WouldBlock,
    });
    scene.until("no half-open connection", || server.half_open() == 0);
    assert!(
        right || server.requests() == 0,
        "an unknown client was shown to the program"
    );
    assert!(server.requests() <= 1);
});
