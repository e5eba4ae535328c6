//! The types that options are read as.
#![forbid(unsafe_code)]

use super::choice::{
    AtomicMode, HeapMode, HookMode, LogLevel, OnOffAuto, OpFlag, RndvScheme, Ternary,
};
use super::filter::{DeviceFilter, TlsFilter};
use super::number::{self, Bandwidth, Count, Interval, Size};
use std::time::Duration;

/// A type that an option can be read as. The text is in canonical spelling.
pub trait Value: Sized {
    /// The value, or `None` when the text is not one.
    fn from_text(text: &str) -> Option<Self>;
}

/// Message sizes from which on rendezvous is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RndvThresh {
    /// To a process on the same node.
    pub intra: Size,
    /// To a process on another node.
    pub inter: Size,
}

/// A set of flags for every operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct OpFlagSet(u8);

impl OpFlagSet {
    /// Whether the set holds `flag`.
    pub fn contains(self, flag: OpFlag) -> bool {
        self.0 & (1 << flag as u8) != 0
    }
}

/// The ports that a listener without a port of its own tries; 0 to 0 lets the system choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

macro_rules! value {
    ($($type:ty: $text:ident => $parse:expr;)+) => {
        $(impl Value for $type {
            fn from_text($text: &str) -> Option<Self> { $parse }
        })+
    };
}

value! {
    String: text => Some(text.to_owned());
    Vec<String>: text => {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        Some(parts.map(str::to_owned).collect())
    };
    bool: text => match text { "y" => Some(true), "n" => Some(false), _ => None };
    u32: text => number::uint(text);
    f64: text => number::float(text);
    Size: text => number::size(text);
    Count: text => number::count(text);
    Bandwidth: text => number::bandwidth(text).map(|rate| rate.map_or(Bandwidth::Auto, Bandwidth::Rate));
    Duration: text => number::time(text).map(|t| Duration::try_from_secs_f64(t.0).unwrap_or(Duration::MAX));
    Interval: text => number::interval(text);
    LogLevel: text => LogLevel::from_name(text);
    HeapMode: text => HeapMode::from_name(text);
    HookMode: text => HookMode::from_name(text);
    AtomicMode: text => AtomicMode::from_name(text);
    RndvScheme: text => RndvScheme::from_name(text);
    Ternary: text => Ternary::from_name(text);
    OnOffAuto: text => OnOffAuto::from_name(text);
    TlsFilter: text => Some(TlsFilter::parse(text));
    DeviceFilter: text => Some(DeviceFilter::parse(text));
}

impl Value for RndvThresh {
    fn from_text(text: &str) -> Option<Self> {
        let (intra, inter) = text.split_once(',')?;
        Some(RndvThresh {
            intra: number::size(intra.strip_prefix("intra:")?)?,
            inter: number::size(inter.strip_prefix("inter:")?)?,
        })
    }
}

impl Value for OpFlagSet {
    fn from_text(text: &str) -> Option<Self> {
        let words = text.split(',').filter(|word| !word.is_empty());
        words
            .map(OpFlag::from_name)
            .try_fold(OpFlagSet(0), |set, flag| {
                Some(OpFlagSet(set.0 | 1 << flag? as u8))
            })
    }
}

impl Value for PortRange {
    fn from_text(text: &str) -> Option<Self> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        // A port beyond 65535 is none: such a range ends at the last port.
        let port = |text: &str| number::ulong(text).map(|n| u16::try_from(n).unwrap_or(u16::MAX));
        Some(PortRange {
            first: port(first)?,
            last: port(last)?,
        })
    }
}
