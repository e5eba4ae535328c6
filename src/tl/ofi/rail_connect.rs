//! Connects the rails that senders want, and accepts those of peers.

use super::choice::IfaceRole;
use super::conn::with_sender;
use super::connect;
use super::hello::ConnectFor;
use super::iface::lane_up;
use super::worker::OfiWorker;
use crate::sys::log;
use crate::tl::LaneTarget;
use crate::tl::sink::Sink;

impl<P: Copy + Eq> OfiWorker<P> {
    /// Connects the rails that senders want, and accepts those of peers. Called at clock ticks.
    pub(super) fn connect_rails<S: Sink<Peer = P>>(&mut self, sink: S) {
        if self
            .others
            .iter()
            .all(|iface| iface.role == IfaceRole::Lane)
        {
            return;
        }
        let mut wanted = Vec::new();
        for lane in self.lanes_mut() {
            for link in lane.ep.take_wanted_rails() {
                let conn = lane.of_link(&link);
                wanted.extend(conn.and_then(|conn| Some((conn.peer?, conn.uid))));
            }
        }
        for (peer, uid) in wanted {
            if !self.connect_rail(sink, peer, uid) {
                with_sender(sink, peer, |sender| sender.rail_down(None));
            }
        }
        self.accept_rails(sink);
    }

    /// Connects a rail to a peer. False: there is none, or it cannot be connected.
    fn connect_rail<S: Sink<Peer = P>>(&mut self, sink: S, peer: P, uid: u64) -> bool {
        let path = match sink.contact(peer).target {
            Some(LaneTarget::Ofi(target)) => target.rail,
            _ => None,
        };
        let Some(path) = path else { return false };
        let Some(rail) = self.rails_mut().find(|rail| rail.index == path.iface) else {
            return false;
        };
        if let Some(conn) = rail.of_uid(uid) {
            let number = conn.link.conn;
            lane_up(rail, sink, number);
            return true;
        }
        let begun = connect::begin(rail, (peer, uid), &path.to, ConnectFor::Rail);
        if let Err((_, obstacle)) = &begun {
            log::diag!(
                "worker {uid:#x} has no rail by {}: {obstacle}",
                rail.device_name
            );
        }
        begun.is_ok()
    }

    /// Accepts the rails of peers that have a lane here.
    fn accept_rails<S: Sink<Peer = P>>(&mut self, sink: S) {
        let mut hellos = Vec::new();
        for rail in self.rails_mut() {
            let index = rail.index;
            let all = std::mem::take(&mut rail.rail_hellos).into_iter();
            hellos.extend(all.map(|parsed| (index, parsed)));
        }
        for (index, parsed) in hellos {
            let uid = parsed.hello.from;
            let peer = self
                .lanes_mut()
                .find_map(|lane| lane.of_uid(uid).and_then(|conn| conn.peer));
            let rail = self.rails_mut().find(|rail| rail.index == index);
            if let (Some(peer), Some(rail)) = (peer, rail) {
                connect::on_rail_hello(rail, sink, peer, &parsed);
            }
        }
    }
}
