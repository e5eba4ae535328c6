//! The rings in a worker's memory, which peers write.

use super::{LastRing, RegionOwner, TofuWorker};
use crate::tl::tofu::conn::RxConn;
use crate::tl::tofu::op_queue::CREDITS;

impl<P: Copy + Eq> TofuWorker<P> {
    /// Adds a peer's ring. Returns its number.
    pub fn insert(&mut self, incoming: RxConn<P>) -> u32 {
        let number = self.free_incoming.pop().unwrap_or_else(|| {
            self.incoming.push(None);
            self.incoming.len() as u32 - 1
        });
        let (at, size) = (incoming.ring.stadd(), incoming.ring.shape().size);
        self.regions
            .insert(at, (size.into(), RegionOwner::Ring(number)));
        self.ring_bytes += u64::from(size);
        if incoming.counted {
            self.counted.push(number);
            self.update_budget();
        } else {
            self.notices -= incoming.ring.shape().window;
        }
        self.incoming[number as usize] = Some(Box::new(incoming));
        number
    }

    /// The ring of this number that a peer writes; `None` if there is none, or it was dropped.
    #[inline]
    pub fn incoming(&mut self, number: u32) -> Option<&mut RxConn<P>> {
        self.incoming.get_mut(number as usize)?.as_deref_mut()
    }

    /// All incoming rings, with their numbers.
    pub fn all_incoming(&mut self) -> impl Iterator<Item = (u32, &mut RxConn<P>)> {
        let all = self.incoming.iter_mut().enumerate();
        all.filter_map(|(i, incoming)| Some((i as u32, incoming.as_deref_mut()?)))
    }

    /// Removes a peer's ring: later puts there are refused by the TNI, or have no effect.
    pub fn drop_incoming(&mut self, number: u32) {
        let slot = self.incoming.get_mut(number as usize);
        let Some(incoming) = slot.and_then(Option::take) else {
            return;
        };
        self.regions.remove(&incoming.ring.stadd());
        self.last = LastRing::default();
        self.counted.retain(|&n| n != number);
        self.update_budget();
        self.ring_bytes -= u64::from(incoming.ring.shape().size);
        if !incoming.counted {
            self.notices += incoming.ring.shape().window;
        }
        self.draining_numbers.push(number);
    }

    /// Frees the numbers of dropped rings that no outstanding operation or queued event names any more.
    pub fn reuse_numbers(&mut self) {
        let (iface, free) = (&self.iface, &mut self.free_incoming);
        self.draining_numbers.retain(|&number| {
            let is_awaited = iface.is_awaited(CREDITS + number);
            if !is_awaited {
                free.push(number);
            }
            is_awaited
        });
    }
}
