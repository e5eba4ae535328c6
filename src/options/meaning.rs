//! Checks of values that are syntactically valid but make no sense, at the same time as in UCX: when a context or a
//! worker is made.
#![forbid(unsafe_code)]

use super::choice::{ALLOC_METHODS, MEMORY_TYPES};
use super::list;
use super::number::{self, Size};
use super::section::Strictness;
use super::table;
use super::{OptionError, Options, PortRange, Value};

/// Condition on the value of an option.
struct Rule {
    /// The option, without `UCX_`.
    name: &'static str,
    holds: fn(&str) -> bool,
    /// Description of the condition, for the message.
    needs: &'static str,
}

const fn rule(name: &'static str, holds: fn(&str) -> bool, needs: &'static str) -> Rule {
    Rule { name, holds, needs }
}

const ABOVE_0: &str = "it must be greater than 0";
const PER_TYPE: &str = "it must be a comma list of <memory type>:<number>";

/// `UCX_KEEPALIVE_INTERVAL=0` is valid: UCX 1.13.1 accepts it.
const OF_CONTEXTS: &[Rule] = &[
    rule("KEEPALIVE_NUM_EPS", is_above_0, ABOVE_0),
    rule("RECOVERY_RETRIES", is_above_0, ABOVE_0),
    rule("MIN_RNDV_CHUNK_SIZE", is_above_0, ABOVE_0),
    rule("MIN_RMA_CHUNK_SIZE", is_above_0, ABOVE_0),
    rule("DYNAMIC_TL_SWITCH_INTERVAL", is_above_0, ABOVE_0),
    rule("DYNAMIC_TL_PROGRESS_FACTOR", is_above_0, ABOVE_0),
    rule("RNDV_FRAG_SIZE", is_per_type, PER_TYPE),
    rule("RNDV_FRAG_ALLOC_COUNT", is_per_type, PER_TYPE),
    rule(
        "ALLOC_PRIO",
        names_allocators,
        "it must be a comma list of md:<name>, thp, heap, mmap, huge",
    ),
];

const FIFO_SIZE: &str = "it must be a power of 2, and greater than 1";
const FIFO_RELEASE: &str = "it must be at least 0 and less than 1";
const FIFO_ELEM: &str = "it must be more than the 28 bytes of a header";

const OF_WORKERS: &[Rule] = &[
    rule(
        "RX_MPOOL_SIZES",
        are_pool_sizes,
        "there must be one at least, and each must be a power of 2",
    ),
    rule("POSIX_FIFO_SIZE", is_fifo_size, FIFO_SIZE),
    rule("SYSV_FIFO_SIZE", is_fifo_size, FIFO_SIZE),
    rule("POSIX_FIFO_RELEASE_FACTOR", is_proper_part, FIFO_RELEASE),
    rule("SYSV_FIFO_RELEASE_FACTOR", is_proper_part, FIFO_RELEASE),
    rule("POSIX_FIFO_ELEM_SIZE", holds_a_header, FIFO_ELEM),
    rule("SYSV_FIFO_ELEM_SIZE", holds_a_header, FIFO_ELEM),
    rule("TCP_TX_SEG_SIZE", is_above_0, ABOVE_0),
    rule("TCP_RX_SEG_SIZE", is_above_0, ABOVE_0),
    rule(
        "TCP_PORT_RANGE",
        begins_before_its_end,
        "the first port must not be above the last",
    ),
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
        let mut rules = OF_WORKERS.iter();
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
        if (rule.holds)(&value) {
            Ok(())
        } else {
            Err(OptionError::Senseless {
                name: rule.name,
                value,
                needs: rule.needs,
            })
        }
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

/// Whether the number is above 0, with any unit.
fn is_above_0(text: &str) -> bool {
    text.trim_end_matches(char::is_alphabetic).parse() != Ok(0.0)
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

fn is_fifo_size(text: &str) -> bool {
    number::uint(text).is_some_and(|size| size.is_power_of_two() && size > 1)
}

fn is_proper_part(text: &str) -> bool {
    number::float(text).is_some_and(|part| (0.0..1.0).contains(&part))
}

fn holds_a_header(text: &str) -> bool {
    number::uint(text).is_some_and(|size| size > 28)
}

fn begins_before_its_end(text: &str) -> bool {
    PortRange::from_text(text).is_some_and(|range| range.first <= range.last)
}
