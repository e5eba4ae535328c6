//! The rail of a lane, as its sender uses it.

use super::mr::OfiZcopy;
use super::rail::{OfiRail, OfiRailState};
use super::sender::OfiSender;
use super::tx_link::OfiTxLink;
use crate::sys::clock;
use crate::tl::rma::MrKey;
use std::ffi::c_void;
use std::sync::Arc;

/// Time after which a rail that has failed is connected again, milliseconds.
const AGAIN_MS: u64 = 10_000;

impl OfiSender {
    /// The rail whose operations may be outstanding.
    pub fn rail(&self) -> Option<&OfiRail> {
        match &self.rail {
            OfiRailState::Open(rail)
            | OfiRailState::Lost {
                rail: Some(rail), ..
            } => Some(rail),
            OfiRailState::Unwanted
            | OfiRailState::Asked
            | OfiRailState::Lost { rail: None, .. } => None,
        }
    }

    /// The rail that reads parts of a message, the key for it, and what its operations pass of the memory. Asks for a
    /// rail if there is none.
    pub fn rail_for(&mut self, zcopy: &OfiZcopy) -> Option<(OfiRail, MrKey, *mut c_void)> {
        let key = zcopy.rail_key?;
        match &self.rail {
            OfiRailState::Open(rail) => {
                let is_its = rail.link.number == key.number();
                let desc = zcopy.desc(&rail.ep, 0).filter(|_| is_its)?;
                return Some((rail.clone(), key, desc));
            }
            OfiRailState::Lost { rail, until } => {
                let is_idle = rail.as_ref().is_none_or(|rail| rail.link.is_idle());
                if !is_idle || clock::coarse_ms() < *until {
                    return None;
                }
            }
            OfiRailState::Asked => return None,
            OfiRailState::Unwanted => {}
        }
        self.rail = OfiRailState::Asked;
        self.ep.want_rail(&self.link);
        None
    }

    /// A rail has been connected.
    pub fn rail_up(&mut self, rail: OfiRail) {
        if !matches!(self.rail, OfiRailState::Open(_)) {
            self.rail = OfiRailState::Open(rail);
        }
    }

    /// The rail of this connection has failed, or cannot be connected (`None`).
    pub fn rail_down(&mut self, link: Option<&Arc<OfiTxLink>>) {
        let rail = match (&self.rail, link) {
            (OfiRailState::Open(rail), Some(link)) if Arc::ptr_eq(&rail.link, link) => {
                Some(rail.clone())
            }
            (OfiRailState::Asked, _) => None,
            _ => return,
        };
        let until = clock::coarse_ms() + AGAIN_MS;
        self.rail = OfiRailState::Lost { rail, until };
    }
}
