//! Checks of values that are syntactically valid but make no sense, at the same time as in UCX: when a context or a
//! worker is made.
#![forbid(unsafe_code)]

use super::choice::{ALLOC_METHODS, MEMORY_TYPES};
use super::list;
use super::number::{self, Size};
use super::rule::{Condition, Rule, above_0, is_no_limit_or_at_least, pool_rules, rule};
use super::section::Strictness;
use super::table::{self, rows_shm, rows_tcp};
use super::{OptionError, Options};

const PER_TYPE: &str = "it must be a comma list of <memory type>:<number>";

/// `UCX_KEEPALIVE_INTERVAL=0` is valid: UCX 1.13.1 accepts it.
const OF_CONTEXTS: &[Rule] = &[
    above_0("KEEPALIVE_NUM_EPS"),
    above_0("RECOVERY_RETRIES"),
    above_0("MIN_RNDV_CHUNK_SIZE"),
    above_0("MIN_RMA_CHUNK_SIZE"),
    above_0("DYNAMIC_TL_SWITCH_INTERVAL"),
    above_0("DYNAMIC_TL_PROGRESS_FACTOR"),
    above_0("MAX_COMPONENT_MDS"),
    rule("RNDV_FRAG_SIZE", is_per_type, PER_TYPE),
    rule("RNDV_FRAG_ALLOC_COUNT", is_per_type, PER_TYPE),
    rule(
        "ALLOC_PRIO",
        names_allocators,
        "it must be a comma list of md:<name>, thp, heap, mmap, huge",
    ),
];

const RX_MPOOL_SIZES: Rule = rule(
    "RX_MPOOL_SIZES",
    are_pool_sizes,
    "there must be one at least, and each must be a power of 2",
);

/// The rules of the options that workers read: their own, and those of transports.
const OF_WORKERS: [&[Rule]; 8] = [
    &[RX_MPOOL_SIZES],
    rows_shm::RULES,
    rows_tcp::RULES,
    &pool_rules!("TCP_TX"),
    &pool_rules!("TCP_RX"),
    &pool_rules!("POSIX_RX"),
    &pool_rules!("SYSV_RX"),
    &pool_rules!("CMA_TX"),
];

impl Options {
    /// Whether a context can be made with these values.
    ///
    /// # Errors
    /// [`OptionError::Senseless`]
    pub fn check_context(&self) -> Result<(), OptionError> {
        OF_CONTEXTS.iter().try_for_each(|rule| self.check(rule))
    }

    /// Whether a worker can be made with these values. Those of transports that it would not use are ignored.
    ///
    /// # Errors
    /// [`OptionError::Senseless`], or [`OptionError::Invalid`] for a value that was ignored when the options were read.
    pub fn check_worker(&self) -> Result<(), OptionError> {
        let rejected = self.rejected.iter().find(
            |error| matches!(error, OptionError::Invalid { name, .. } if self.is_for_workers(name)),
        );
        if let Some(error) = rejected {
            return Err(error.clone());
        }
        let mut rules = OF_WORKERS.into_iter().flatten();
        rules.try_for_each(|rule| {
            if self.is_unused(rule.name) {
                Ok(())
            } else {
                self.check(rule)
            }
        })
    }

    fn check(&self, rule: &Rule) -> Result<(), OptionError> {
        let value = self.get(rule.name).unwrap_or_default();
        let holds = match rule.condition {
            Condition::Holds(holds) => holds(&value),
            Condition::NotBelow(other) => {
                is_no_limit_or_at_least(&value, &self.get(other).unwrap_or_default())
            }
        };
        if holds {
            return Ok(());
        }
        let slot = table::find_exact(rule.name);
        Err(OptionError::Senseless {
            name: rule.name,
            value,
            needs: rule.needs,
            place: slot.and_then(|slot| self.given(slot)?.place),
        })
    }

    /// Whether an invalid value of this option prevents workers.
    fn is_for_workers(&self, name: &str) -> bool {
        let strictness = table::find_exact(name).map(|slot| slot.section().strictness);
        matches!(strictness, Some(Strictness::Worker(_))) && !self.is_unused(name)
    }

    /// Whether the option is one of a transport that is not used.
    fn is_unused(&self, name: &str) -> bool {
        match table::find_exact(name).map(|slot| slot.section().strictness) {
            Some(Strictness::Worker(Some(transport))) => !self.tls.allows(transport),
            _ => false,
        }
    }
}

/// The parts between commas that are not empty.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').filter(|part| !part.is_empty())
}

fn is_per_type(text: &str) -> bool {
    parts(text).all(|part| {
        part.split_once(':').is_some_and(|(memory_type, number)| {
            list::choice(memory_type, MEMORY_TYPES).is_some() && number::size(number).is_some()
        })
    })
}

fn names_allocators(text: &str) -> bool {
    let is_one =
        |part: &str| part.starts_with("md:") || part != "md" && ALLOC_METHODS.contains(&part);
    !text.is_empty() && parts(text).all(is_one)
}

fn are_pool_sizes(text: &str) -> bool {
    let is_one =
        |part| matches!(number::size(part), Some(Size::Bytes(size)) if size.is_power_of_two());
    !text.is_empty() && parts(text).all(is_one)
}
