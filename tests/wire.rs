//! Bytes of other processes: every valid blob survives the round trip, every damaged one is an error or means
//! something valid, and nothing panics.

use proptest::prelude::*;
use std::net::IpAddr;
use ucp::tl::address::WorkerAddress;
use ucp::tl::ib::address::IbLocator;
use ucp::tl::ib::rkey::{IbRkey, RkeyAtomics};
use ucp::tl::ofi::rkey::{OfiRkey, OfiRkeys};
use ucp::tl::rkey::{self, RkeyMemory, UnpackedRkey};
use ucp::tl::shm::address::ShmLocator;
use ucp::tl::shm::rkey::ShmRkey;
use ucp::tl::tcp::address::{MAX_ADDRESSES, NetAddress, TcpLocator, TcpUsage};
use ucp::tl::tofu::address::TofuLocator;
use ucp::tl::tofu::rkey::TofuRkey;
use ucp::wire::address::{self, AddressError};
use ucp::wire::device_handle::{DeviceHandle, MemoryExport, ProcessIdentity};
use ucp::wire::header::{
    AmImm, AmoHdr, DataHdr, EpImm, GetHdr, Kind, RtrHdr, RtsHdr, SignalHdr, SyncHdr, ValueHdr,
};
use ucp::wire::ib_port::{MAX_PORTS, PortFlags, PortLocator};
use ucp::wire::tofu_msg::{MAX_RAILS, RailVcqs};

fn shm() -> impl Strategy<Value = ShmLocator> {
    any::<(u64, u32, u32, u32, u32, u32, u64, u32, u8)>().prop_map(
        |(host, pid_ns, pid, fd, ino, ipc_ns, key, shm_place, flags)| ShmLocator {
            host,
            pid_ns,
            pid,
            fd,
            ino,
            ipc_ns,
            key,
            shm_place,
            flags,
        },
    )
}

fn tcp() -> impl Strategy<Value = TcpLocator> {
    let ip = prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from)
    ];
    let address = (ip, any::<u8>()).prop_map(|(ip, speed)| NetAddress { ip, speed });
    let addresses = prop::collection::vec(address, 0..=MAX_ADDRESSES);
    let usage = prop_oneof![Just(TcpUsage::Messages), Just(TcpUsage::Wireup)];
    (usage, any::<u16>(), any::<u64>(), any::<u32>(), addresses).prop_map(
        |(usage, port, secret, network, addresses)| TcpLocator {
            usage,
            port,
            secret,
            network,
            addresses,
        },
    )
}

fn ib() -> impl Strategy<Value = IbLocator> {
    let port = (any::<[u8; 3]>(), any::<u16>(), any::<u32>(), any::<u128>()).prop_map(
        |([flags, mtu, speed], lid, qpn, gid)| PortLocator {
            flags: PortFlags::from_bits_retain(flags),
            mtu,
            speed,
            lid,
            qpn,
            gid,
        },
    );
    let ports = prop::collection::vec(port, 0..=MAX_PORTS);
    (any::<u64>(), ports).prop_map(|(secret, ports)| IbLocator { secret, ports })
}

fn tofu() -> impl Strategy<Value = TofuLocator> {
    let rails = prop::collection::vec(1..=u64::MAX, 0..=MAX_RAILS);
    any::<(u64, u64, u64, u16)>().prop_flat_map(move |(secret, vcq, ticket_queue, number)| {
        rails.clone().prop_map(move |rails| TofuLocator {
            secret,
            vcq,
            ticket_queue,
            number,
            rails: RailVcqs::of(rails.into_iter()),
        })
    })
}

fn worker_address() -> impl Strategy<Value = WorkerAddress> {
    (
        any::<u64>(),
        any::<Option<u64>>(),
        prop::option::of("[a-zü:]{0,30}"),
        prop::option::of(shm()),
        prop::option::of(ib()),
        prop::option::of(tofu()),
        prop::option::of(tcp()),
    )
        .prop_map(|(uid, client_id, name, shm, ib, tofu, tcp)| {
            let named = WorkerAddress {
                uid,
                client_id,
                name,
                ..WorkerAddress::default()
            };
            WorkerAddress {
                shm,
                ib,
                tofu,
                tcp,
                ..named
            }
        })
}

fn rkey_memory() -> impl Strategy<Value = RkeyMemory> {
    let pages = || (0..1u64 << 36, 0..1u64 << 28).prop_map(|(base, len)| (base << 12, len << 12));
    let segment = (any::<u16>(), any::<u32>(), pages()).prop_map(|(fd, ino, (base, len))| {
        let fd = fd.into();
        RkeyMemory::Shared(ShmRkey::Segment { fd, ino, base, len })
    });
    let block = (any::<u32>(), pages())
        .prop_map(|(number, (base, len))| RkeyMemory::Shared(ShmRkey::Block { number, base, len }));
    let (empty, plain) = (Just(RkeyMemory::Empty), Just(RkeyMemory::Plain));
    let words = (any::<(u64, u64, u64)>(), any::<([u8; 16], bool)>());
    let exported = (words, 0..1u64 << 60, 1..1u64 << 60).prop_map(
        |(((host, number, buffer_id), (device, legacy)), base, len)| {
            let owner = ProcessIdentity { host, number };
            RkeyMemory::Exported(DeviceHandle {
                owner,
                device,
                base,
                len,
                buffer_id,
                export: match legacy {
                    true => MemoryExport::Legacy(std::array::from_fn(|i| device[i % 16])),
                    false => MemoryExport::Address,
                },
            })
        },
    );
    let device = Just(RkeyMemory::Device);
    prop_oneof![1 => empty, 1 => plain, 1 => device, 4 => segment, 4 => block, 4 => exported]
}

fn ib_rkey() -> impl Strategy<Value = IbRkey> {
    let keys = prop::collection::vec(any::<u32>(), 1..=MAX_PORTS);
    (0..1u64 << 36, 0..1u64 << 28, keys, any::<(u8, bool)>()).prop_map(
        |(base, len, keys, (ports, alone))| {
            let port_mask = ports & ((1 << keys.len()) - 1);
            let alone = alone && port_mask != 0;
            let mut key = IbRkey {
                base: base << 12,
                len: len << 12,
                count: keys.len() as u8,
                atomics: RkeyAtomics { port_mask, alone },
                ..IbRkey::default()
            };
            key.keys[..keys.len()].copy_from_slice(&keys);
            key
        },
    )
}

fn tofu_rkey() -> impl Strategy<Value = TofuRkey> {
    let addresses = prop::collection::vec(any::<(u16, u64)>(), 0..4);
    (any::<(u64, u64, bool)>(), addresses).prop_map(|((base, len, atomics), addresses)| TofuRkey {
        base,
        len,
        atomics,
        addresses,
    })
}

fn ofi_rkey() -> impl Strategy<Value = OfiRkey> {
    let keys = prop::collection::vec(any::<(u16, u64)>(), 0..4);
    (any::<(u64, u64, u64, bool, bool)>(), keys).prop_map(
        |((fabric, base, len, atomics, is_virtual), keys)| OfiRkey {
            fabric,
            base,
            len,
            atomics,
            is_virtual,
            keys,
        },
    )
}

fn rkey() -> impl Strategy<Value = UnpackedRkey> {
    let networks = (
        prop::option::of(ib_rkey()),
        prop::option::of(tofu_rkey()),
        prop::option::of(ofi_rkey()),
    );
    (rkey_memory(), networks).prop_map(|(memory, (ib, tofu, ofi))| UnpackedRkey {
        memory,
        ib,
        tofu,
        ofi: ofi.and_then(|ofi| OfiRkeys::new(vec![ofi])),
    })
}

/// The address as `ucp_ep_create` takes it: the length from the prefix, then the whole.
fn decode_address(blob: &[u8]) -> Result<WorkerAddress, AddressError> {
    let len = address::total_len(blob.first_chunk().ok_or(AddressError::Length)?)?;
    assert!(len <= address::MAX_LEN);
    WorkerAddress::decode(blob.get(..len).ok_or(AddressError::Length)?)
}

/// Length of the key that begins with these bytes. Those behind the bytes are 0.
fn rkey_len(bytes: &[u8]) -> Option<usize> {
    rkey::total_len(|i| bytes.get(i).copied().unwrap_or(0))
}

/// The key as `ucp_ep_rkey_unpack` takes it: first its length, then the whole.
fn decode_rkey(bytes: &[u8]) -> Option<UnpackedRkey> {
    UnpackedRkey::decode(bytes.get(..rkey_len(bytes)?)?)
}

/// `blob` with one bit flipped, for every bit.
fn flipped(blob: &[u8]) -> impl Iterator<Item = (usize, Vec<u8>)> + '_ {
    (0..blob.len() * 8).map(|bit| {
        let mut damaged = blob.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        (bit, damaged)
    })
}

proptest! {
    #[test]
    fn addresses_round_trip(address in worker_address(), behind in any::<[u8; 3]>()) {
        let blob = address.encode();
        prop_assert_eq!(&blob, &address.clone().encode(), "deterministic");
        prop_assert!(blob.len() <= address::MAX_LEN);
        prop_assert_eq!(address::total_len(blob.first_chunk().unwrap()), Ok(blob.len()));
        prop_assert_eq!(WorkerAddress::decode(&[&blob[..], &behind].concat()), Ok(address));
    }

    #[test]
    fn damaged_addresses_are_refused(address in worker_address()) {
        let blob = address.encode();
        for (bit, damaged) in flipped(&blob) {
            prop_assert!(decode_address(&damaged).is_err(), "bit {} flipped", bit);
        }
        for len in 0..blob.len() {
            prop_assert!(WorkerAddress::decode(&blob[..len]).is_err(), "cut to {}", len);
        }
    }

    /// One flipped bit in the prefix must not even change how far the blob is read.
    #[test]
    fn a_damaged_prefix_has_no_length(address in worker_address()) {
        let blob = address.encode();
        for (bit, damaged) in flipped(&blob[..4]) {
            prop_assert!(address::total_len(damaged.first_chunk().unwrap()).is_err(), "bit {} flipped", bit);
        }
    }

    #[test]
    fn rkeys_round_trip(rkey in rkey(), behind in any::<[u8; 3]>()) {
        let bytes = rkey.encode();
        prop_assert_eq!(rkey_len(&bytes), Some(bytes.len()));
        prop_assert_eq!(UnpackedRkey::decode(&[&*bytes, &behind].concat()), Some(rkey));
    }

    #[test]
    fn damaged_rkeys_are_refused(rkey in rkey()) {
        let bytes = rkey.encode();
        for (bit, damaged) in flipped(&bytes) {
            prop_assert_eq!(decode_rkey(&damaged), None, "bit {} flipped", bit);
        }
        for cut in 0..bytes.len() {
            prop_assert_eq!(decode_rkey(&bytes[..cut]), None, "cut to {}", cut);
        }
    }

    /// Bytes that are no blob at all, sometimes with the first byte of one.
    #[test]
    fn noise_never_panics(
        mut noise in prop::collection::vec(any::<u8>(), 0..80),
        first in prop::sample::select(b"EPSk\x90\x93\xCB".to_vec()),
    ) {
        let _ = (decode_address(&noise), decode_rkey(&noise), WorkerAddress::decode(&noise));
        if let Some(byte) = noise.first_mut() {
            *byte = first;
        }
        let _ = (decode_address(&noise), WorkerAddress::decode(&noise));
        // An accepted key must be a valid one.
        if let Some(rkey) = decode_rkey(&noise) {
            let bytes = rkey.encode();
            prop_assert_eq!(&*bytes, &noise[..bytes.len()]);
        }
    }

    #[test]
    fn immediates_round_trip(imm in any::<u64>()) {
        prop_assert_eq!(AmImm::from_u64(imm).to_u64(), imm);
        prop_assert_eq!(EpImm::from_u64(imm).to_u64(), imm & 0xFFFF_FFFF);
    }

    #[test]
    fn user_headers_are_split_off_or_refused(
        imm in any::<u64>(),
        payload in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let am = AmImm::from_u64(imm & !0xFF00_0000);
        match am.split(&payload) {
            Some((data, header)) => {
                prop_assert_eq!(header.len(), am.header_len as usize);
                prop_assert_eq!([data, header].concat(), payload);
            }
            None => prop_assert!(payload.len() < am.header_len as usize),
        }
    }
}

/// One property for all headers: decoding and encoding gives the same bytes, whatever is behind them,
/// and a byte less is none.
macro_rules! header_property {
    ($test:ident, $header:ident, $make_valid:expr) => {
        proptest! {
            #[test]
            fn $test(mut bytes in any::<[u8; $header::SIZE + 3]>()) {
                let make_valid: fn(&mut [u8]) = $make_valid;
                make_valid(&mut bytes);
                let header = $header::decode(&bytes).unwrap();
                prop_assert_eq!(&header.encode()[..], &bytes[..$header::SIZE]);
                for len in 0..$header::SIZE {
                    prop_assert_eq!($header::decode(&bytes[..len]), None);
                }
            }
        }
    };
    ($test:ident, $header:ident) => {
        header_property!($test, $header, |_| {});
    };
}

header_property!(sync_headers_round_trip, SyncHdr);
header_property!(rts_headers_round_trip, RtsHdr);
header_property!(rtr_headers_round_trip, RtrHdr);
header_property!(data_headers_round_trip, DataHdr);
header_property!(get_headers_round_trip, GetHdr);
header_property!(value_headers_round_trip, ValueHdr);
header_property!(amo_headers_round_trip, AmoHdr, |bytes| {
    if let [.., op, size, fetch, _, _, _] = bytes {
        *op %= AmoHdr::LAST_OP + 1;
        *size = 4 << (*size & 1);
        *fetch &= 1;
    }
});

header_property!(signal_headers_round_trip, SignalHdr, |bytes| {
    if let [.., op, _cq, _, _, _] = bytes {
        *op %= SignalHdr::ADD + 1;
    }
});

/// A flipped bit in an atomic either changes a value that any sender may send, or is rejected.
#[test]
fn damaged_atomics_are_refused_or_valid() {
    let amo = AmoHdr {
        req: 1,
        value: 2,
        compare: 3,
        op: 2,
        size: 8,
        fetch: 1,
    };
    for (bit, damaged) in flipped(&amo.encode()) {
        match AmoHdr::decode(&damaged) {
            Some(other) => {
                assert!(other != amo, "bit {bit} has no meaning");
                assert!(
                    other.op <= AmoHdr::LAST_OP && [4, 8].contains(&other.size) && other.fetch <= 1
                );
            }
            None => assert!(bit >= 24 * 8, "bit {bit} of a plain number was refused"),
        }
    }
}

#[test]
fn every_kind_knows_its_header() {
    let with_header: Vec<(u8, usize)> = Kind::ALL
        .iter()
        .map(|&kind| (kind as u8, kind.header_size()))
        .filter(|&(_, size)| size > 0)
        .collect();
    assert_eq!(
        with_header,
        [
            (2, 8),
            (3, 32),
            (6, 13),
            (7, 8),
            (9, 32),
            (12, 24),
            (13, 8),
            (14, 27),
            (15, 8),
            (20, 17),
            (23, 32),
            (25, 25),
            (26, 25),
            (28, 8),
            (30, 26),
            (31, 16),
            (32, 16),
            (33, 16)
        ]
    );
}
