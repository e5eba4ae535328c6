//! What a check has found.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It explains something; nothing is wrong in itself.
    Note,
    /// A transport is slower than it could be, or a faster one is not used.
    Slow,
    /// A transport that was requested, or that is expected, does not work.
    Broken,
}

/// One fault, or one note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The name of the fault, for scripts: it does not change between versions.
    pub id: Cow<'static, str>,
    pub severity: Severity,
    /// What was found.
    pub found: String,
    /// What it means for the transports.
    pub effect: Cow<'static, str>,
    /// What to change.
    pub change: Cow<'static, str>,
}

impl Finding {
    fn new(
        severity: Severity,
        id: &'static str,
        found: impl Into<String>,
        effect: impl Into<Cow<'static, str>>,
        change: impl Into<Cow<'static, str>>,
    ) -> Finding {
        Finding {
            id: id.into(),
            severity,
            found: found.into(),
            effect: effect.into(),
            change: change.into(),
        }
    }

    /// A finding that explains something.
    pub fn note(
        id: &'static str,
        found: impl Into<String>,
        effect: impl Into<Cow<'static, str>>,
        change: impl Into<Cow<'static, str>>,
    ) -> Finding {
        Finding::new(Severity::Note, id, found, effect, change)
    }

    /// A finding by which a transport is slower, or a slower one is used.
    pub fn slow(
        id: &'static str,
        found: impl Into<String>,
        effect: impl Into<Cow<'static, str>>,
        change: impl Into<Cow<'static, str>>,
    ) -> Finding {
        Finding::new(Severity::Slow, id, found, effect, change)
    }

    /// A finding by which a transport does not work.
    pub fn broken(
        id: &'static str,
        found: impl Into<String>,
        effect: impl Into<Cow<'static, str>>,
        change: impl Into<Cow<'static, str>>,
    ) -> Finding {
        Finding::new(Severity::Broken, id, found, effect, change)
    }
}
