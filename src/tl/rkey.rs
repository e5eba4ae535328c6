//! The remote key with the sections of all transports: the bytes of [`crate::wire::rkey`], decoded.
//!
//! A section is encoded and decoded by `rkey.rs` of its transport.
#![forbid(unsafe_code)]

use super::ib::rkey::IbRkey;
use super::ofi::rkey::OfiRkeys;
use super::shm::rkey::ShmRkey;
use super::tofu::rkey::TofuRkey;
use crate::sys::shm::ShmId;
use crate::wire::device_handle::DeviceHandle;
use crate::wire::rkey::{self, PackedRkey, RkeyKind, SectionLens};
use std::borrow::Cow;

const LENS: SectionLens = SectionLens {
    inner: IbRkey::section_len,
    outer: TofuRkey::section_len,
    fabric: OfiRkeys::section_len,
};

/// A decoded remote key: the ways to access a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnpackedRkey {
    pub memory: RkeyMemory,
    /// Present if InfiniBand or RoCE accesses it.
    pub ib: Option<IbRkey>,
    /// Present if the Tofu interconnect accesses it.
    pub tofu: Option<TofuRkey>,
    /// Present if a provider of libfabric accesses it.
    pub ofi: Option<OfiRkeys>,
}

/// The memory of a region, as peers on the same host see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RkeyMemory {
    /// Memory of length 0.
    Empty,
    /// Memory that peers cannot map: they access it by a network or by message.
    Plain,
    /// Memory that only the owner's devices access: peers access it by message.
    Device,
    /// Such memory, which peers on the same host can open.
    Exported(DeviceHandle),
    /// Memory that peers can map.
    Shared(ShmRkey),
}

/// Length of the key that begins here; `None` if it is not a key. `at` returns its bytes, no more of them than the
/// previous ones say that there are.
pub fn total_len(at: impl Fn(usize) -> u8) -> Option<usize> {
    rkey::total_len(at, LENS)
}

impl RkeyMemory {
    /// Memory of this process that peers can map.
    pub fn shared(id: ShmId, base: u64, len: u64) -> RkeyMemory {
        RkeyMemory::Shared(ShmRkey::new(id, base, len))
    }

    /// Kind and body. Memory whose fields do not fit is plain: peers do not map it.
    fn encode(&self) -> (RkeyKind, Vec<u8>) {
        match self {
            RkeyMemory::Empty => (RkeyKind::Empty, Vec::new()),
            RkeyMemory::Plain => (RkeyKind::Plain, Vec::new()),
            RkeyMemory::Device => (RkeyKind::Device, Vec::new()),
            RkeyMemory::Exported(handle) => (RkeyKind::Exported, handle.encode().to_vec()),
            RkeyMemory::Shared(shm) => match shm.encode() {
                Some((kind, body)) => (kind, body.to_vec()),
                None => RkeyMemory::Plain.encode(),
            },
        }
    }

    fn decode(kind: RkeyKind, body: &[u8]) -> Option<RkeyMemory> {
        Some(match kind {
            RkeyKind::Empty => RkeyMemory::Empty,
            RkeyKind::Plain => RkeyMemory::Plain,
            RkeyKind::Device => RkeyMemory::Device,
            RkeyKind::Exported => RkeyMemory::Exported(DeviceHandle::decode(body)?),
            RkeyKind::Segment | RkeyKind::Block => RkeyMemory::Shared(ShmRkey::decode(kind, body)?),
        })
    }
}

impl UnpackedRkey {
    /// Encodes the key. Equal keys give equal bytes. What does not fit is left out: peers access the region in another
    /// way.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, body) = self.memory.encode();
        let packed = PackedRkey {
            kind,
            body: body.into(),
            inner: (self.ib.as_ref()).and_then(|ib| Some(Cow::Owned(ib.encode()?))),
            outer: self.tofu.as_ref().map(|tofu| Cow::Owned(tofu.encode())),
            fabric: self.ofi.as_ref().map(|ofi| Cow::Owned(ofi.encode())),
        };
        packed.encode()
    }

    /// Decodes the key at the begin of `bytes`; bytes behind it are ignored. `None` if it is damaged.
    pub fn decode(bytes: &[u8]) -> Option<UnpackedRkey> {
        let packed = PackedRkey::decode(bytes, LENS)?;
        Some(UnpackedRkey {
            memory: RkeyMemory::decode(packed.kind, &packed.body)?,
            ib: match packed.inner {
                Some(section) => Some(IbRkey::decode(&section)?),
                None => None,
            },
            tofu: match packed.outer {
                Some(section) => Some(TofuRkey::decode(&section)?),
                None => None,
            },
            ofi: match packed.fabric {
                Some(section) => Some(OfiRkeys::decode(&section)?),
                None => None,
            },
        })
    }

    /// Whether adapters of the owner, and nothing else, execute atomic operations on 4 bytes, too.
    pub fn is_amo_by_tni(&self) -> bool {
        self.tofu.as_ref().is_some_and(|tofu| tofu.atomics)
    }
}
