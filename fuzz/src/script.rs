//! A script: an attacker's messages and the target program's calls meanwhile, as bytes that a fuzzer can change.

use ucp::wire::frame::MAX_RECORD;
use ucp::wire::header::Kind;

/// Meaning of a number in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Itself.
    Raw,
    /// An offset from the beginning of the target's registered memory, modulo twice its length.
    Region,
    /// One of the last numbers that the target has sent: it names a request of the target's.
    Seen,
    /// As an immediate an endpoint's serial number, in a record an address in the attacker's memory.
    Known,
}

const WORDS: [Word; 4] = [Word::Raw, Word::Region, Word::Seen, Word::Known];

/// A message of the attacker's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Send {
    pub kind: u8,
    pub aux: u8,
    /// How the immediate, the first and the third word of the record are encoded.
    pub words: [Word; 3],
    pub imm: u64,
    /// First bytes of the record.
    pub bytes: Vec<u8>,
    /// Number of bytes behind those.
    pub filler: u16,
}

impl Send {
    /// Bytes of the record.
    pub fn len(&self) -> usize {
        (self.bytes.len() + usize::from(self.filler)).min(MAX_RECORD)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Send(Send),
    /// All workers progress.
    Progress,
    /// The attacker writes into the ring that the target sends through.
    Poke {
        at: u16,
        word: u64,
    },
    /// The target's program makes a call, see [`crate::program`].
    Act {
        what: u8,
        len: u16,
    },
}

const POKE: u8 = 12;
const ANY_KIND: u8 = 13;
const PROGRESS: u8 = 14;
const ACT: u8 = 15;

/// Limit of the steps of a script.
pub const MAX_STEPS: usize = 64;

impl Step {
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Step::Progress => out.push(PROGRESS),
            Step::Act { what, len } => {
                out.extend([ACT, *what]);
                out.extend(len.to_le_bytes());
            }
            Step::Poke { at, word } => {
                out.push(POKE);
                out.extend(at.to_le_bytes());
                out.extend(word.to_le_bytes());
            }
            Step::Send(s) => {
                let word = |i: usize| WORDS.iter().position(|&w| w == s.words[i]).unwrap_or(0);
                let words = word(0) | word(1) << 2 | word(2) << 4;
                out.extend([0, s.kind, s.aux, words as u8]);
                out.extend(s.imm.to_le_bytes());
                out.push(s.bytes.len() as u8);
                out.extend(s.filler.to_le_bytes());
                out.extend(&s.bytes);
            }
        }
    }

    /// The first step of a script. Every byte is valid; `None` at its end.
    pub fn decode(script: &mut &[u8]) -> Option<Step> {
        match *take(script, 1)?.first()? % 16 {
            PROGRESS => Some(Step::Progress),
            POKE => {
                let b = take(script, 10)?;
                Some(Step::Poke {
                    at: u16::from_le_bytes([b[0], b[1]]),
                    word: u64::from_le_bytes(*b[2..].first_chunk()?),
                })
            }
            ACT => {
                let b = take(script, 3)?;
                Some(Step::Act {
                    what: b[0],
                    len: u16::from_le_bytes([b[1], b[2]]),
                })
            }
            free => {
                let b = take(script, 14)?;
                // Nearly always a kind that exists: an unknown one ends the attack.
                let kind = if free == ANY_KIND {
                    b[0]
                } else {
                    let kinds = Kind::ALL.len() as u8;
                    1 + b[0].wrapping_sub(1) % kinds
                };
                let word = |at: u8| WORDS[usize::from(b[2] >> at & 3)];
                let n = usize::from(b[11]).min(script.len());
                Some(Step::Send(Send {
                    kind,
                    aux: b[1],
                    words: [word(0), word(2), word(4)],
                    imm: u64::from_le_bytes(*b[3..].first_chunk()?),
                    bytes: take(script, n)?.to_vec(),
                    filler: u16::from_le_bytes([b[12], b[13]]),
                }))
            }
        }
    }
}

/// All steps.
pub fn steps(mut script: &[u8]) -> impl Iterator<Item = Step> {
    std::iter::from_fn(move || Step::decode(&mut script)).take(MAX_STEPS)
}

fn take<'a>(from: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(n)?;
    *from = rest;
    Some(taken)
}

/// The numbers that a target has sent, newest last: the attacker can use them.
#[derive(Default)]
pub struct Seen(Vec<u64>);

impl Seen {
    /// Remembers the immediate and the first word of a message.
    pub fn note(&mut self, imm: u64, record: &[u8]) {
        let first = record.first_chunk().map(|w| u64::from_le_bytes(*w));
        self.0.extend([imm].into_iter().chain(first));
        let old = self.0.len().saturating_sub(16);
        self.0.drain(..old);
    }

    /// Counted from the newest.
    fn get(&self, n: u64) -> u64 {
        let at = n as usize % self.0.len().max(1);
        self.0.iter().rev().nth(at).copied().unwrap_or(n)
    }
}

/// A message in its wire format: immediate and record. `region`: the target's registered memory, address and length;
/// `there`: the attacker's memory.
pub fn message(send: &Send, seen: &Seen, region: (u64, u64), there: u64) -> (u64, Vec<u8>) {
    let meant = |word: Word, value: u64, known: u64| match word {
        Word::Raw => value,
        Word::Region => region.0 + value % (2 * region.1),
        Word::Seen => seen.get(value),
        Word::Known => known,
    };
    let mut record = send.bytes.clone();
    record.resize(send.len(), 0xA5);
    for (word, at) in [(send.words[1], 0), (send.words[2], 16)] {
        if let Some(bytes) = record.get_mut(at..).and_then(|r| r.first_chunk_mut()) {
            *bytes = meant(word, u64::from_le_bytes(*bytes), there).to_le_bytes();
        }
    }
    (meant(send.words[0], send.imm, send.imm % 8), record)
}
