//! Path of an atomic operation: what executes it. The only place that decides it, with the executor that the key names
//! ([`AmoExecutor`]).

use super::rma::RmaPath;
use crate::engine::rkey::AmoExecutor;
use crate::tl::rma::RmaDevice;
use crate::wire::stats::StatProtocol;

/// Path of an atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmoPath {
    /// The processor of this process: the word is mapped here, at this address.
    Mapped(*mut u8),
    /// An adapter of the owner.
    Adapter(RmaDevice),
    /// The peer, on receipt of a message.
    Message,
}

impl AmoPath {
    /// The adapter of the path, if it is one by an adapter.
    pub fn device(self) -> Option<RmaDevice> {
        match self {
            AmoPath::Adapter(device) => Some(device),
            AmoPath::Mapped(_) | AmoPath::Message => None,
        }
    }

    /// The statistics entry that counts it. An adapter's operations count as mapped: the target's processor executes
    /// nothing.
    pub fn counted(self) -> StatProtocol {
        match self {
            AmoPath::Mapped(_) | AmoPath::Adapter(_) => StatProtocol::AmoMapped,
            AmoPath::Message => StatProtocol::AmoMessages,
        }
    }
}

/// The address at which the processor of this process executes operations on a word, if the word is mapped here and
/// the processor may. `rma`: the path of a put of the word; `hca_alone`: the operations of the owner's HCA are not
/// atomic to processors, so that these must not execute any.
#[inline]
pub fn mapped(executor: AmoExecutor, rma: RmaPath, hca_alone: bool) -> Option<*mut u8> {
    match (executor, rma) {
        (AmoExecutor::Processor | AmoExecutor::Other, RmaPath::Mapped(local)) if !hca_alone => {
            Some(local)
        }
        _ => None,
    }
}

/// The fastest path on which an operation is atomic to all others on its word. Parameters as of [`mapped`], and
/// `executes`: whether an adapter of this kind reaches the word and has the operation. An adapter executes nothing
/// before operations by message are answered (`answered`): a program that orders nothing still expects order for one
/// address.
#[inline(always)] // a call takes 40 instructions more over TCP
pub fn path(
    executor: AmoExecutor,
    rma: RmaPath,
    hca_alone: bool,
    executes: impl Fn(RmaDevice) -> bool,
    answered: impl Fn() -> bool,
) -> AmoPath {
    if let Some(local) = mapped(executor, rma, hca_alone) {
        return AmoPath::Mapped(local);
    }
    let by_adapter = |device| match executes(device) && answered() {
        true => AmoPath::Adapter(device),
        false => AmoPath::Message,
    };
    match (executor, rma) {
        (AmoExecutor::Adapter, _) => by_adapter(RmaDevice::EXECUTOR),
        (_, RmaPath::Adapter(device)) if device != RmaDevice::EXECUTOR => by_adapter(device),
        _ => AmoPath::Message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    #[test]
    fn one_kind_executes_all_operations_on_a_word() {
        use AmoExecutor::{Adapter as Tni, Other, Processor};
        let local = ptr::without_provenance_mut(0x1000);
        let mapped = RmaPath::Mapped(local);
        let here = AmoPath::Mapped(local);
        let [ib, tofu] = [RmaDevice::Ib, RmaDevice::Tofu].map(AmoPath::Adapter);
        let [rma_ib, rma_tofu] = [RmaDevice::Ib, RmaDevice::Tofu].map(RmaPath::Adapter);
        let message = AmoPath::Message;
        // Executor, path of a put, whether the HCA must be alone, what adapters execute, path.
        let rows = [
            (Processor, mapped, false, None, here),
            (Other, mapped, false, None, here),
            (Other, mapped, false, Some(RmaDevice::Ib), here),
            (Other, mapped, true, Some(RmaDevice::Ib), message),
            (Other, mapped, true, None, message),
            (Other, rma_ib, true, Some(RmaDevice::Ib), ib),
            (Other, rma_ib, false, Some(RmaDevice::Ib), ib),
            (Other, rma_ib, true, None, message),
            (Other, RmaPath::Cma, false, None, message),
            (Other, rma_tofu, false, Some(RmaDevice::Tofu), message),
            (Other, RmaPath::Message, true, Some(RmaDevice::Ib), message),
            (Tni, rma_tofu, false, Some(RmaDevice::Tofu), tofu),
            (Tni, rma_tofu, false, None, message),
            (Tni, mapped, false, Some(RmaDevice::Tofu), tofu),
            (Tni, mapped, false, None, message),
        ];
        for (executor, rma, alone, adapter, expected) in rows {
            let by = |answered| path(executor, rma, alone, |a| adapter == Some(a), || answered);
            assert_eq!(
                by(true),
                expected,
                "{executor:?} {rma:?} {alone} {adapter:?}"
            );
            let in_order = match expected {
                AmoPath::Adapter(_) => message,
                path => path,
            };
            assert_eq!(by(false), in_order, "behind messages");
        }
    }
}
