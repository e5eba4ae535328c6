//! Hosts that do not acknowledge what was sent to them any more.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::time::Duration;

/// The hosts from which acknowledgements are due.
#[derive(Debug, Default)]
pub struct SilentHosts {
    /// When an acknowledgement was found to be due, coarse milliseconds.
    since: HashMap<IpAddr, u64>,
    /// When the sockets were looked at before, coarse milliseconds.
    last_look: u64,
}

impl SilentHosts {
    /// Returns the hosts that are unreachable: one of its sockets awaits an acknowledgement, and none has got an
    /// acknowledgement for `limit` milliseconds. `sockets`: of each the host, how long no acknowledgement has arrived,
    /// and whether one is due.
    pub fn look(
        &mut self,
        sockets: impl Iterator<Item = (IpAddr, Duration, bool)>,
        now: u64,
        limit: u64,
    ) -> HashSet<IpAddr> {
        let elapsed = Duration::from_millis(now.saturating_sub(self.last_look));
        self.last_look = now;
        let (mut due, mut heard) = (HashSet::new(), HashSet::new());
        for (host, silence, is_due) in sockets {
            if silence < elapsed {
                heard.insert(host);
            } else if is_due {
                due.insert(host);
            }
        }
        let is_silent = |host: &IpAddr| due.contains(host) && !heard.contains(host);
        self.since.retain(|host, _| is_silent(host));
        let mut unreachable = HashSet::new();
        for &host in due.iter().filter(|host| is_silent(host)) {
            if now - *self.since.entry(host).or_insert(now) >= limit {
                unreachable.insert(host);
            }
        }
        unreachable
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const A: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn a_host_is_unreachable_if_none_of_its_sockets_is_acknowledged() {
        let mut hosts = SilentHosts::default();
        let both = |a: u64, b: u64| [(A, ms(a), true), (B, ms(b), true)].into_iter();
        assert!(hosts.look(both(9000, 9000), 1000, 3000).is_empty());
        assert!(hosts.look(both(9000, 9000), 2000, 3000).is_empty());
        assert!(hosts.look(both(9000, 10), 3000, 3000).is_empty());
        assert_eq!(hosts.look(both(9000, 9000), 4000, 3000), HashSet::from([A]));
        let other = [(A, ms(9000), true), (A, ms(10), false)].into_iter();
        assert!(
            hosts.look(other, 5000, 3000).is_empty(),
            "another socket gets them"
        );
        assert!(hosts.look(both(9000, 9000), 6000, 3000).is_empty());
        let idle = [(A, ms(9000), false), (B, ms(9000), true)].into_iter();
        assert!(hosts.look(idle, 7000, 3000).is_empty());
        assert_eq!(
            hosts.look(both(9000, 9000), 9000, 3000),
            HashSet::from([B]),
            "A was idle"
        );
    }
}
