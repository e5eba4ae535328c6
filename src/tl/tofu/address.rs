//! Tofu's section of a worker address.
#![forbid(unsafe_code)]

use crate::wire::le_struct::packed;
use crate::wire::tofu_msg::RailVcqs;

/// The Tofu section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TofuLocator {
    /// Secret that a ring request has to carry.
    pub secret: u64,
    /// The worker's VCQ.
    pub vcq: u64,
    /// STADD of its ticket queue there ([`crate::wire::tofu_msg`]).
    pub ticket_queue: u64,
    /// Number of the VCQ among those of its process, which selects the STADD in an rkey. Those of the rails follow.
    pub number: u16,
    /// VCQs of its rails.
    pub rails: RailVcqs,
}

packed! {
    /// Fixed part of such a section; the rails follow.
    TofuFront, 26 {
        secret: u64,
        vcq: u64,
        ticket_queue: u64,
        number: u16,
    }
}

impl TofuLocator {
    /// The body of the section.
    pub fn encode(&self) -> Vec<u8> {
        let front = TofuFront {
            secret: self.secret,
            vcq: self.vcq,
            ticket_queue: self.ticket_queue,
            number: self.number,
        };
        let mut body = front.encode().to_vec();
        body.extend(self.rails.iter().flat_map(u64::to_le_bytes));
        body
    }

    /// Decodes the body of a section. `None`: it is malformed.
    pub fn decode(body: &[u8]) -> Option<TofuLocator> {
        let front = TofuFront::decode(body)?;
        let rails = body.get(TofuFront::SIZE..)?.chunks_exact(size_of::<u64>());
        let rail = |bytes: &[u8]| bytes.first_chunk().map_or(0, |&b| u64::from_le_bytes(b));
        Some(TofuLocator {
            secret: front.secret,
            vcq: front.vcq,
            ticket_queue: front.ticket_queue,
            number: front.number,
            rails: RailVcqs::of(rails.map(rail)),
        })
    }
}

/// A worker's location, as its address names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TofuTarget {
    pub locator: TofuLocator,
}

impl TofuTarget {
    /// Where the interconnect leads from a worker with the section `own` to that with the section `to`.
    pub fn between(own: Option<&TofuLocator>, to: Option<&TofuLocator>) -> Option<TofuTarget> {
        own?;
        Some(TofuTarget { locator: *to? })
    }
}
