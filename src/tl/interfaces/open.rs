//! Opening the interfaces of a worker.

use super::TlRx;
use crate::tl::address::WorkerAddress;
use crate::tl::ib::context::IbShared;
use crate::tl::iface_params::IfaceParams;
use crate::tl::network::Network;
use crate::tl::networks::networks;
use crate::tl::ofi::worker::OfiWorker;
use crate::tl::shm::worker::ShmWorker;
use crate::tl::tofu::worker::TofuWorker;
use crate::tl::{TlContext, TlWorker};
use std::io;

macro_rules! open {
    ($($(#[$cfg:meta])* $Kind:ident $net:ident $Context:ident;)* @) => {
        impl<P: Copy + Eq> TlRx<P> {
            /// Opens the interfaces of a worker that the context selects.
            ///
            /// # Errors
            /// The errors of opening one without which peers cannot be reached.
            pub fn open(context: &TlContext, params: &IfaceParams) -> io::Result<TlRx<P>> {
                let is_sure = [$($(#[$cfg])* context.$net.is_sure()),*].contains(&true);
                let shm = shm(params, is_sure)?;
                let reaches_others = shm.has_inbox() && params.shm || is_sure;
                Ok(TlRx {
                    shm,
                    $($(#[$cfg])* $net: context.$net.open(params, reaches_others)?,)*
                })
            }

            /// The address of the worker, without its name.
            fn address(&self, context: &TlContext, params: &IfaceParams) -> WorkerAddress {
                WorkerAddress {
                    uid: params.uid,
                    client_id: params.client_id,
                    name: None,
                    shm: self.shm.locator().map(|inbox| inbox.section()),
                    $(
                        $(#[$cfg])*
                        $net: self.$net.as_deref().map(|iface| context.$net.locator(iface)),
                    )*
                }
            }
        }
    };
}
networks!(open);

impl<P: Copy + Eq> TlRx<P> {
    /// What all threads of the worker use. Not to be used after the interfaces are dropped.
    pub fn shared(&self, context: &TlContext, params: &IfaceParams) -> TlWorker {
        TlWorker {
            shm: self.shm.shared(),
            ib: IbShared::new(params.mt),
            tofu: self.tofu.as_deref().map(TofuWorker::shared),
            ofi: self.ofi.as_deref().and_then(OfiWorker::shared),
            own: self.address(context, params),
        }
    }
}

/// Shared memory, with an inbox if it or the loopback is to be used. `is_optional`: the worker reaches peers without
/// it.
///
/// # Errors
/// The error of making it, if it is not optional.
fn shm<P: Copy + Eq>(params: &IfaceParams, is_optional: bool) -> io::Result<ShmWorker<P>> {
    if !params.shm && !params.loopback {
        return Ok(ShmWorker::new(None));
    }
    let shm = ShmWorker::open(params.named_inboxes, is_optional);
    shm.map_err(|e| io::Error::new(e.kind(), format!("no shared memory: {e}")))
}
