//! The connections that have carried the packets of a sender with failover before, as long as reads that were posted on
//! them are outstanding: the requests of those are named by them.
#![forbid(unsafe_code)]

use super::shared_ep::OfiSharedEp;
use super::tx_link::OfiTxLink;
use std::sync::Arc;

/// A connection that carries the packets no more. `E`: its endpoint.
pub struct FormerConn<E = Arc<OfiSharedEp>> {
    pub ep: E,
    pub link: Arc<OfiTxLink>,
}

impl<E> FormerConn<E> {
    /// Whether no operation on the peer's memory is outstanding.
    fn is_drained(&self) -> bool {
        self.link.rma.outstanding() == 0
    }
}

/// The former connections of a sender.
pub struct FormerConns<E = Arc<OfiSharedEp>>(Vec<FormerConn<E>>);

impl<E> Default for FormerConns<E> {
    fn default() -> Self {
        FormerConns(Vec::new())
    }
}

impl<E> FormerConns<E> {
    /// The packets go by another connection from now on. Operations on the former one may be outstanding.
    pub fn add(&mut self, ep: E, link: Arc<OfiTxLink>) {
        self.0.push(FormerConn { ep, link });
        self.forget_drained();
    }

    /// Forgets the connections whose operations have all ended.
    pub fn forget_drained(&mut self) {
        self.0.retain(|conn| !conn.is_drained());
    }

    /// Whether no operation of any connection is outstanding.
    pub fn is_drained(&self) -> bool {
        self.0.iter().all(FormerConn::is_drained)
    }

    /// The connections, and those whose operations have ended lately.
    pub fn all(&self) -> &[FormerConn<E>] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> Arc<OfiTxLink> {
        let link = Arc::new(OfiTxLink::new(1, 2, 3, None));
        link.rma.posted(false);
        link
    }

    #[test]
    fn a_connection_whose_reads_have_ended_is_forgotten_at_the_next_move() {
        let (mut conns, first) = (FormerConns::default(), link());
        conns.add((), first.clone());
        for _ in 0..10 {
            let next = link();
            conns.add((), next.clone());
            assert!(conns.all().len() == 2 && !conns.is_drained());
            next.rma.completed();
        }
        first.rma.completed();
        assert!(conns.is_drained());
        let idle = link();
        idle.rma.completed();
        conns.add((), idle);
        assert!(conns.all().is_empty());
        assert_eq!(Arc::strong_count(&first), 1);
    }

    #[test]
    fn a_look_forgets_the_connections_without_reads_alone() {
        let (mut conns, links) = (FormerConns::default(), [link(), link()]);
        links.iter().for_each(|link| conns.add((), link.clone()));
        conns.forget_drained();
        assert_eq!(conns.all().len(), 2);
        links[0].rma.completed();
        conns.forget_drained();
        assert!(Arc::ptr_eq(&conns.all()[0].link, &links[1]) && conns.all().len() == 1);
    }
}
