//! `UCX_RNDV_SCHEME=am`: the data of a rendezvous is sent in messages, whichever end selects that.

mod support;

use std::ffi::CStr;
use support::scene::Scene;
use ucp::engine::peer::Peer;
use ucp::proto::proto_info;
use ucp::wire::stats::StatProtocol;

const LEN: usize = 1 << 20;

/// The protocols of the rows that `UCX_PROTO_INFO=used` prints.
fn printed_as_used(peer: &Peer) -> Vec<StatProtocol> {
    let tables = proto_info::used_tables(peer.worker(), peer);
    let rows = tables.iter().flat_map(|table| &table.ranges);
    let mut used: Vec<StatProtocol> = rows.map(|row| row.protocol).collect();
    used.dedup();
    used
}

/// The protocol of a long message, and its description.
fn travels(scheme: &CStr) -> (StatProtocol, &'static str) {
    let scene = Scene::new(&[(c"RNDV_SCHEME", scheme)]);
    scene.decent_goes_on(LEN);
    let peer = scene.victim_seen();
    let count = |protocol| peer.stats().of(protocol).messages();
    let (copied, sent) = (
        count(StatProtocol::RndvCopy),
        count(StatProtocol::RndvMessages),
    );
    assert_eq!(copied + sent, 1);
    let tables = proto_info::tables(peer.worker(), peer);
    let tagged = tables.iter().find(|t| t.operation.starts_with("tagged"));
    let ranges = &tagged.expect("a table of tagged messages").ranges;
    let what = ranges.iter().rfind(|r| r.first <= LEN).map(|r| r.what);
    let protocol = if copied == 1 {
        StatProtocol::RndvCopy
    } else {
        StatProtocol::RndvMessages
    };
    assert_eq!(printed_as_used(peer), [protocol]);
    (protocol, what.expect("every length is served"))
}

#[test]
fn data_travels_as_the_option_says() {
    let copied = (StatProtocol::RndvCopy, "rendezvous copy from mapped memory");
    for scheme in [c"auto", c"get_zcopy", c"put_zcopy", c"rkey_ptr"] {
        assert_eq!(travels(scheme), copied, "{scheme:?}");
    }
    let sent = (
        StatProtocol::RndvMessages,
        "rendezvous fragmented copy-in copy-out",
    );
    assert_eq!(travels(c"am"), sent);
}
