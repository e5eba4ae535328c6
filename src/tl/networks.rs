//! The list of networks. Everything that has a part for each of them is generated from it.

/// Calls the macro `$then` with the networks, preferred first, each as `Kind folder Context;`: the name of its
/// variants, its folder in `src/tl`, and the type in `context.rs` there that implements
/// [`Network`](super::network::Network). `$more` comes behind them, after an `@`.
macro_rules! networks {
    ($then:ident $($more:tt)*) => {
        $then! {
            Tofu tofu TofuContext;
            Ib ib IbContext;
            Ofi ofi OfiContext;
            Tcp tcp TcpContext;
            #[cfg(feature = "shmtest")] Shmtest shmtest ShmtestContext;
            @ $($more)*
        }
    };
}
pub(super) use networks;

macro_rules! transport_names {
    ($($(#[$cfg:meta])* $Kind:ident $net:ident $Context:ident;)* @) => {
        /// The transports of all networks, preferred first, as `UCX_TLS` names them.
        pub fn transport_names() -> impl Iterator<Item = &'static str> + Clone {
            use super::network::Network;
            let networks = [$($(#[$cfg])* super::$net::context::$Context::TRANSPORTS),*];
            networks.into_iter().flatten().copied()
        }
    };
}
networks!(transport_names);
