//! Seeds of the targets that play a script against a worker: dialogues that complete.

use super::{record, rts, share, signal};
use ucp::wire::header::{AmImm, DataHdr, EpImm, Kind, SignalHdr};
use ucp_fuzz::program::AM_ID;
use ucp_fuzz::script::Step::{self, Progress};
use ucp_fuzz::script::{Send, Word};

/// Steps in the order of their execution.
type Dialogue = Vec<Step>;

fn act(what: u8, len: u16) -> Step {
    Step::Act { what, len }
}

fn send(kind: Kind, imm: (Word, u64), bytes: Vec<u8>) -> Step {
    Step::Send(Send {
        kind: kind as u8,
        aux: 0,
        words: [imm.0, Word::Raw, Word::Raw],
        imm: imm.1,
        bytes,
        filler: 0,
    })
}

fn region(kind: Kind, bytes: Vec<u8>) -> Step {
    send(kind, (Word::Region, 0), bytes)
}

fn seen(kind: Kind, n: u64, bytes: Vec<u8>) -> Step {
    send(kind, (Word::Seen, n), bytes)
}

fn data(offset: u64, n: usize) -> Vec<u8> {
    [&DataHdr { offset }.encode()[..], &vec![7; n]].concat()
}

/// An RTS of data in known memory.
fn rts_of(len: u64) -> Step {
    Step::Send(Send {
        kind: Kind::TagRts as u8,
        aux: 0,
        words: [Word::Raw, Word::Raw, Word::Known],
        imm: 5,
        bytes: rts(len, 0).encode().to_vec(),
        filler: 0,
    })
}

/// Eager messages: matched at once, unexpected, synchronous.
fn eager() -> Vec<Dialogue> {
    vec![vec![
        act(0, 100),
        send(Kind::TagEager, (Word::Raw, 5), vec![1; 60]),
        send(Kind::TagSync, (Word::Raw, 5), record(Kind::TagSync)),
        Progress,
        act(1, 90),
        send(Kind::TagEager, (Word::Raw, 5), vec![1; 200]),
        Progress,
        act(2, 300),
    ]]
}

/// Rendezvous to the target, by messages and by copying.
fn rendezvous() -> Vec<Dialogue> {
    vec![
        vec![
            send(Kind::TagRts, (Word::Raw, 5), rts(300, 0).encode().to_vec()),
            Progress,
            act(0, 300),
            Progress,
            seen(Kind::Data, 0, data(0, 200)),
            seen(Kind::Data, 0, data(200, 100)),
            Progress,
        ],
        vec![
            act(1, 39_000),
            rts_of(3000),
            Progress,
            // CMA is known to be allowed: this one is copied by both sides.
            act(0, 39_000),
            rts_of(38_000),
            Progress,
            Progress,
        ],
        vec![
            act(0, 39_000),
            rts_of(3000),
            Progress,
            Step::Poke { at: 24, word: 1 },
            rts_of(38_000),
            act(0, 39_000),
            Progress,
            act(15, 0),
            Progress,
        ],
    ]
}

/// Rendezvous of the target: the attacker requests messages, copies chunks, ends it.
fn sends() -> Vec<Dialogue> {
    vec![
        vec![
            act(5, 9000),
            Progress,
            seen(Kind::Rtr, 0, vec![1; 8]),
            Progress,
        ],
        vec![
            act(5, 9000),
            Progress,
            seen(Kind::SplitCopy, 0, share().encode().to_vec()),
            Progress,
            seen(Kind::Ats, 0, vec![]),
            Progress,
        ],
    ]
}

/// Replies with a request and without one.
fn replies() -> Vec<Dialogue> {
    vec![
        vec![
            act(5, 9000),
            Progress,
            seen(Kind::AmoRep, 0, vec![1; 8]),
            seen(Kind::GetRep, 0, data(0, 0)),
            Progress,
        ],
        vec![
            act(4, 500),
            Progress,
            seen(Kind::SyncAck, 0, vec![]),
            Progress,
        ],
        vec![
            act(5, 5000),
            Progress,
            seen(Kind::RndvCancel, 0, vec![]),
            act(14, 0),
            act(15, 0),
        ],
    ]
}

/// Active messages: eager, kept, fetched.
fn active_messages() -> Vec<Dialogue> {
    let am = AmImm {
        id: AM_ID,
        header_len: 4,
        flags: 0,
        sn: 0,
    }
    .to_u64();
    vec![vec![
        send(Kind::AmEager, (Word::Raw, am), vec![3; 68]),
        Progress,
        act(12, 64),
        send(
            Kind::AmRts,
            (Word::Raw, am),
            [&rts(4000, 0).encode()[..], &[1; 4]].concat(),
        ),
        Progress,
        act(12, 4001),
        Progress,
        seen(Kind::Data, 0, data(0, 4000)),
        Progress,
    ]]
}

/// Remote access, in both directions.
fn remote_access() -> Vec<Dialogue> {
    vec![vec![
        region(Kind::PutReq, vec![9; 100]),
        region(Kind::GetReq, record(Kind::GetReq)),
        region(Kind::AmoReq, record(Kind::AmoReq)),
        region(Kind::Signal, signal(SignalHdr::NOTIFY).encode().to_vec()),
        region(Kind::Signal, signal(SignalHdr::ADD).encode().to_vec()),
        Progress,
        act(8, 100),
        act(7, 50),
        act(9, 0),
        Progress,
        seen(Kind::GetRep, 0, data(0, 100)),
        seen(Kind::AmoRep, 1, vec![1; 8]),
        send(Kind::PutAck, (Word::Raw, 0), vec![]),
        act(13, 0),
        Progress,
    ]]
}

/// Streams, and endpoints that are created and closed.
fn streams() -> Vec<Dialogue> {
    let ep = EpImm { sn: 0, err_mode: 1 }.to_u64();
    vec![vec![
        send(Kind::EpInfo, (Word::Raw, ep), vec![]),
        send(Kind::StreamData, (Word::Raw, ep), vec![4; 500]),
        Progress,
        act(10, 300),
        act(11, 300),
        Progress,
        send(Kind::EpClosed, (Word::Raw, ep), vec![]),
        Progress,
        act(15, 1),
    ]]
}

/// Every dialogue, for each of these ways to deliver the bytes.
pub fn scripts(hows: impl IntoIterator<Item = u8>) -> Vec<Vec<u8>> {
    let hows: Vec<u8> = hows.into_iter().collect();
    let dialogues = [
        eager(),
        rendezvous(),
        sends(),
        replies(),
        active_messages(),
        remote_access(),
        streams(),
    ];
    let mut seeds = vec![b"\0GET / HTTP/1.1\r\n\r\n".to_vec()];
    for dialogue in dialogues.iter().flatten() {
        let mut script = Vec::new();
        for step in dialogue {
            step.encode(&mut script);
        }
        seeds.extend(hows.iter().map(|&how| [&[how][..], &script].concat()));
    }
    seeds
}
