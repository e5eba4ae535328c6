//! The causes that a place in the code has logged, so that each has one line in a process.

use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

/// Most causes of a place that have a line each.
const MOST: usize = 16;

/// The causes that were met, each as its hash. 0: a free place, behind which all are free.
///
/// There is no lock: a forked child may log what another thread of its parent logs at that moment.
pub struct Causes([AtomicU64; MOST]);

impl Causes {
    /// None until now.
    pub const fn none() -> Causes {
        Causes([const { AtomicU64::new(0) }; MOST])
    }

    /// Whether this is the first time that the cause is met, and it is one of the first.
    #[cold]
    pub fn is_new(&self, cause: impl Hash) -> bool {
        let mut hasher = DefaultHasher::new();
        cause.hash(&mut hasher);
        let hash = hasher.finish().max(1);
        for place in &self.0 {
            // Relaxed: it orders no other data.
            match place.compare_exchange(0, hash, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(known) if known == hash => return false,
                Err(_) => {}
            }
        }
        false
    }
}

/// A cause by its text, without the words that have a digit: the text for another peer differs by addresses and
/// numbers.
pub fn words(text: impl Display) -> String {
    let text = text.to_string();
    let has_no_digit = |word: &&str| !word.contains(|c: char| c.is_ascii_digit());
    text.split_whitespace().filter(has_no_digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_the_same_for_another_peer() {
        let refused = |address: &str| words(format_args!("no connection to {address}: refused"));
        assert_eq!(refused("192.0.2.1:80"), refused("[2001:db8::1]:443"));
        assert_ne!(refused("192.0.2.1:80"), words("no connection to : reset"));
    }

    #[test]
    fn each_cause_is_new_once() {
        let causes = Causes::none();
        let mut new = Vec::new();
        for _ in 0..2 {
            new.extend((0..MOST + 3).map(|cause| causes.is_new(cause)));
        }
        assert!(new[..MOST].iter().all(|&is_new| is_new));
        assert!(new[MOST..].iter().all(|&is_new| !is_new));
    }
}
