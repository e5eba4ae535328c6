//! Writes the initial corpus of the targets: seeds DIRECTORY. A corpus made by the encoders reaches deep code at once,
//! and follows changes of the format.

mod scripts;

use scripts::scripts;
use std::path::Path;
use std::{env, fs};
use ucp::options::Options;
use ucp::tl::address::WorkerAddress;
use ucp::tl::ib::address::IbLocator;
use ucp::tl::ib::rkey::{IbRkey, RkeyAtomics};
use ucp::tl::rkey::{RkeyMemory, UnpackedRkey};
use ucp::wire::device_handle::{DeviceHandle, MemoryExport, ProcessIdentity};
use ucp::tl::shm::address::ShmLocator;
use ucp::tl::shm::rkey::ShmRkey;
use ucp::tl::tcp::address::{NetAddress, TcpLocator, TcpUsage};
use ucp::tl::ofi::address::{Liveness, OfiLocator, OfiLocators};
use ucp::tl::ofi::rkey::{OfiRkey, OfiRkeys};
use ucp::tl::tofu::address::TofuLocator;
use ucp::tl::tofu::rkey::TofuRkey;
use ucp::wire::ib_port::{PortFlags, PortLocator};
use ucp::wire::cm_msg::{self, Hello, Reply};
use ucp::wire::frame;
use ucp::wire::header::{AmoHdr, DataHdr, EpImm, GetHdr, Kind, RtsHdr, SplitCopyHdr, SignalHdr};
use ucp::wire::rts_keys::RailStadds;
use ucp::wire::stats;
use ucp::wire::tcp_hello::{self, Answer, TcpHello};
use ucp::wire::tofu_msg::RailVcqs;

fn main() {
    let dir = env::args().nth(1).expect("usage: seeds DIRECTORY");
    let all = [
        ("header", headers()),
        ("address", addresses()),
        ("rkey", keys()),
        ("frame", frames()),
        ("session", sessions()),
        ("stats", pages()),
        ("options", options()),
        ("ring", rings()),
        ("messages", scripts(0..4)),
        ("socket", scripts([1])),
        ("listener", clients()),
    ];
    for (target, seeds) in all {
        let dir = Path::new(&dir).join(target);
        fs::create_dir_all(&dir).expect("a directory to write to");
        for (i, seed) in seeds.iter().enumerate() {
            fs::write(dir.join(format!("seed-{i}")), seed).expect("room for a seed");
        }
    }
}

/// A record of a valid kind.
fn record(kind: Kind) -> Vec<u8> {
    let head = match kind {
        Kind::TagRts | Kind::AmRts => rts(50_000, 0).encode().to_vec(),
        Kind::Data | Kind::GetRep => DataHdr { offset: 0 }.encode().to_vec(),
        Kind::GetReq => GetHdr {
            req: 1,
            len: 64,
            offset: 0,
        }
        .encode()
        .to_vec(),
        Kind::AmoReq => amo().encode().to_vec(),
        Kind::SplitCopy => share().encode().to_vec(),
        Kind::Signal => signal(SignalHdr::NOTIFY).encode().to_vec(),
        _ => vec![1; kind.header_size()],
    };
    [head, b"payload of a message".to_vec()].concat()
}

fn rts(len: u64, pieces: u32) -> RtsHdr {
    RtsHdr {
        req: 9,
        len,
        addr: 0,
        pieces,
        waiting: 0,
    }
}

fn amo() -> AmoHdr {
    AmoHdr {
        req: 1,
        value: 2,
        compare: 3,
        op: 0,
        size: 8,
        fetch: 1,
    }
}

fn signal(op: u8) -> SignalHdr {
    SignalHdr {
        addr: 0,
        len: 0,
        flag: 0,
        op,
        cq: 3,
    }
}

fn share() -> SplitCopyHdr {
    SplitCopyHdr {
        addr: 0,
        chunk: 16 << 10,
        generation: 1,
        number: 0,
    }
}

fn headers() -> Vec<Vec<u8>> {
    let message =
        |kind: Kind, record: &[u8]| [&[kind as u8][..], &5u64.to_le_bytes(), record].concat();
    let mut all: Vec<Vec<u8>> = (Kind::ALL.iter())
        .map(|&kind| message(kind, &record(kind)))
        .collect();
    // RTS over the Tofu interconnect.
    for rails in [0..0, 0..2, 3..5] {
        let addresses = RailStadds::of(rails.map(|rail| (rail, 7 << 40)));
        let rts_of = [&rts(50_000, 1).encode()[..], &addresses.encode()].concat();
        all.push(message(Kind::TagRts, &rts_of));
    }
    all
}

fn address() -> WorkerAddress {
    let net = |ip: &str, mbps| NetAddress::new(ip.parse().expect("an address"), mbps);
    WorkerAddress {
        uid: 0x1122_3344_5566_7788,
        client_id: Some(3),
        name: Some("worker".to_owned()),
        shm: Some(ShmLocator {
            host: 1,
            pid_ns: 2,
            pid: 3,
            fd: 4,
            ino: 5,
            ipc_ns: 6,
            key: 7 << 32 | 8,
            shm_place: 9,
            flags: 0,
        }),
        ib: Some(IbLocator {
            secret: 11,
            ports: vec![PortLocator {
                flags: PortFlags::ETHERNET | PortFlags::ROCE_V2,
                mtu: 5,
                speed: 132,
                lid: 12,
                qpn: 13,
                gid: 14,
            }],
        }),
        tcp: Some(TcpLocator {
            usage: TcpUsage::Messages,
            port: 4000,
            secret: 9,
            network: 10,
            addresses: vec![net("10.0.0.1", 1000), net("fe80::1", 25_000)],
        }),
        ofi: OfiLocators::new(vec![ofi(21), ofi(27)]),
        tofu: Some(TofuLocator {
            secret: 15,
            vcq: 16,
            ticket_queue: 17,
            number: 18,
            rails: RailVcqs::of([19, 20].into_iter()),
        }),
    }
}

fn ofi(fabric: u64) -> OfiLocator {
    OfiLocator {
        fabric,
        secret: 22,
        liveness: Liveness {
            host: 23,
            locks: 24,
            lock: 25,
        },
        number: 26,
        name: vec![2, 0, 0, 1, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0],
    }
}

fn addresses() -> Vec<Vec<u8>> {
    let whole = address();
    let variants = [
        WorkerAddress {
            shm: None,
            ..whole.clone()
        },
        WorkerAddress {
            ib: None,
            tcp: None,
            name: None,
            ..whole.clone()
        },
        WorkerAddress {
            client_id: None,
            ..whole.clone()
        },
        whole,
    ];
    let blobs = variants.iter().map(WorkerAddress::encode);
    // The whole, and the part between prefix and checksum, to which the target adds those itself.
    blobs
        .flat_map(|blob| [blob[4..blob.len() - 4].to_vec(), blob])
        .collect()
}

fn keys() -> Vec<Vec<u8>> {
    let (base, len) = (0x7f00_0000_0000, 1 << 20);
    let exported = |export| {
        RkeyMemory::Exported(DeviceHandle {
            owner: ProcessIdentity { host: 1, number: 2 },
            device: [3; 16],
            base,
            len,
            buffer_id: 4,
            export,
        })
    };
    let all_memory = [
        RkeyMemory::Empty,
        RkeyMemory::Plain,
        RkeyMemory::Device,
        exported(MemoryExport::Legacy([5; 64])),
        exported(MemoryExport::Mapped { service: 6 }),
        exported(MemoryExport::Pool {
            service: 6,
            pool: 7,
            pointer: [8; 64],
        }),
        RkeyMemory::Shared(ShmRkey::Segment {
            fd: 7,
            ino: 1234,
            base,
            len,
        }),
        RkeyMemory::Shared(ShmRkey::Block {
            number: 42,
            base,
            len,
        }),
    ];
    let ib = IbRkey {
        base,
        len,
        keys: [1 << 24, 2 << 24, 0, 0],
        count: 2,
        atomics: RkeyAtomics {
            port_mask: 2,
            alone: true,
        },
    };
    let tofu = TofuRkey {
        base,
        len,
        atomics: true,
        addresses: vec![(0, 1 << 40), (1, 2 << 40)],
    };
    let ofi = OfiRkey {
        fabric: 1,
        base,
        len,
        atomics: true,
        is_virtual: false,
        keys: vec![(1, 1 << 40), (2, 2 << 40)],
    };
    let other = OfiRkey {
        fabric: 2,
        ..ofi.clone()
    };
    let ofi = OfiRkeys::new(vec![ofi, other]).expect("two fabrics");
    let networks = [
        (None, None, None),
        (Some(ib), None, None),
        (None, Some(&tofu), None),
        (Some(ib), Some(&tofu), None),
        (None, None, Some(&ofi)),
        (Some(ib), Some(&tofu), Some(&ofi)),
    ];
    let key = |memory| {
        networks.map(|(ib, tofu, ofi)| {
            let (tofu, ofi) = (tofu.cloned(), ofi.cloned());
            let key = UnpackedRkey {
                memory,
                ib,
                tofu,
                ofi,
            };
            key.encode()
        })
    };
    all_memory.into_iter().flat_map(key).collect()
}

fn frames() -> Vec<Vec<u8>> {
    let hello = TcpHello {
        magic: tcp_hello::MAGIC,
        purpose: tcp_hello::TO_WORKER,
        losses: 0,
        from: 1,
        to: 2,
        secret: 3,
        client_id: 4,
    };
    let answer = Answer {
        magic: tcp_hello::MAGIC,
        verdict: tcp_hello::WELCOME,
        losses: 0,
        uid: 5,
    };
    let framed = |&kind: &Kind| {
        let record = record(kind);
        [&frame::encode(kind as u8, 0, 5, record.len())[..], &record].concat()
    };
    let stream: Vec<Vec<u8>> = Kind::ALL.iter().map(framed).collect();
    let mut all = vec![
        hello.encode().to_vec(),
        answer.encode().to_vec(),
        stream.concat(),
    ];
    all.extend(stream);
    all
}

fn hello(number: u32, len: usize) -> Hello {
    Hello {
        magic: cm_msg::MAGIC,
        number,
        address_len: len as u16,
        err_mode: 1,
        client_id: 77,
        secret: 78,
    }
}

fn sessions() -> Vec<Vec<u8>> {
    let address = address().encode();
    let reply = |status| Reply {
        magic: cm_msg::MAGIC,
        address_len: if status == 0 { address.len() as u16 } else { 0 },
        status,
        err_mode: 0,
    };
    vec![
        [&hello(1, address.len()).encode()[..], &address].concat(),
        [&reply(0).encode()[..], &address].concat(),
        reply(-23).encode().to_vec(),
        EpImm { sn: 5, err_mode: 1 }.to_u64().to_le_bytes().to_vec(),
    ]
}

/// The behaviour of a client of the target "listener", and then its bytes.
fn clients() -> Vec<Vec<u8>> {
    let raw = [
        &hello(3, address().encode().len()).encode()[..],
        &address().encode(),
    ]
    .concat();
    (0..=255u8)
        .step_by(3)
        .map(|how| match how >> 1 & 3 {
            0 => [&[how][..], &raw].concat(),
            1 => [&[how][..], &address().encode()].concat(),
            _ => vec![how, 1, 2, 3, 4, 5, 6, 7, 8],
        })
        .collect()
}

/// A page with a valid header and peers whose entries are used.
fn pages() -> Vec<Vec<u8>> {
    let mut page = vec![0; stats::HEADER_LEN];
    page[..8].copy_from_slice(&stats::MAGIC.to_le_bytes());
    page[stats::header::VERSION..][..4].copy_from_slice(&stats::VERSION.to_le_bytes());
    let entry: Vec<u8> = (0..stats::ENTRY_LEN)
        .map(|i| b"eth0\0\x01 p"[i % 8])
        .collect();
    page.extend(entry.repeat(3));
    vec![page, entry]
}

fn options() -> Vec<Vec<u8>> {
    let options = Options::default();
    let lines: Vec<String> = options
        .all()
        .map(|(name, value, _)| format!("{name}={value}\n"))
        .collect();
    let mut seeds: Vec<Vec<u8>> = lines.chunks(12).map(|c| c.concat().into_bytes()).collect();
    seeds.push(
        b"[name=*,family=x86*]\nUCX_TLS = ^tcp,\\sm\nUCX_RNDV_THRESH=intra:1k,inter:inf\n".to_vec(),
    );
    seeds
}

/// Steps of the target "ring": sends that fill it and receives.
fn rings() -> Vec<Vec<u8>> {
    let step = |op: u8, at: u16, word: u64| {
        [&[op, 1][..], &at.to_le_bytes(), &word.to_le_bytes()].concat()
    };
    let sends: Vec<Vec<u8>> = (0..40u64).map(|i| step(6, 0, i * 900)).collect();
    let slot = |len: u64| [step(2, 0, len << 32 | 1 << 16), step(3, 0, 0)].concat();
    vec![
        sends.concat(),
        slot(8),
        slot(5000),
        slot(40_000),
        step(0, 70, 1),
    ]
}
