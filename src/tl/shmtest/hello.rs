//! The first packet of a connection.
#![forbid(unsafe_code)]

use super::address::ShmtestLocator;
use crate::wire::le_struct::packed;

const MAGIC: u64 = u64::from_le_bytes(*b"rucpsmt\0");
/// Incremented when the format of packets changes.
const VERSION: u32 = 1;

packed! {
    /// The sender of the connection, and which worker it expects.
    Hello, 52 {
        magic: u64,
        version: u32,
        /// Uids of both workers.
        from: u64,
        to: u64,
        /// The secret of the receiver's address.
        secret: u64,
        /// Where the sender listens.
        back_name: u64,
        back_secret: u64,
    } valid when |hello| hello.magic == MAGIC && hello.version == VERSION && hello.back_name != 0
}

impl Hello {
    /// The hello of the worker `from`, which listens at `own`, to the worker `uid` at `to`.
    pub fn new((from, own): (u64, &ShmtestLocator), (uid, to): (u64, &ShmtestLocator)) -> Hello {
        Hello {
            magic: MAGIC,
            version: VERSION,
            from,
            to: uid,
            secret: to.secret,
            back_name: own.name,
            back_secret: own.secret,
        }
    }

    /// The hello in a packet, if it is one to the worker `uid` at `own`.
    pub fn parse(packet: &[u8], uid: u64, own: &ShmtestLocator) -> Option<Hello> {
        let hello = Hello::decode(packet).filter(|_| packet.len() == Hello::SIZE)?;
        (hello.to == uid && hello.secret == own.secret && hello.from != 0).then_some(hello)
    }

    /// Where its sender listens, which is in this network namespace.
    pub fn back(&self) -> ShmtestLocator {
        ShmtestLocator::here(self.back_name, self.back_secret)
    }
}
