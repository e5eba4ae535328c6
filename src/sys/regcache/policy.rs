//! What a registration cache may keep, from the `UCX_*RCACHE_*` options.

use crate::options::{Count, Options, Size, Ternary};

/// Limits of a registration cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachePolicy {
    /// Whether regions are kept.
    pub keeps: bool,
    /// Whether creation fails where no region can be kept.
    pub insists: bool,
    /// Most regions, `usize::MAX` for no limit.
    pub max_regions: usize,
    /// Most bytes, `usize::MAX` for no limit.
    pub max_bytes: usize,
    /// Whether all regions are dropped when the process forks.
    pub purge_on_fork: bool,
    /// Bytes of the longest memory for which the caller has another way: a failure to register it is not worth an error
    /// in the log.
    pub spared: usize,
}

impl CachePolicy {
    /// The policy of `UCX_RCACHE_*`, for devices without such options of their own.
    pub fn of_all(options: &Options) -> Self {
        CachePolicy::new(
            options.rcache_enable,
            (options.rcache_max_regions, options.rcache_max_size),
            options.rcache_purge_on_fork,
        )
    }

    /// The policy of these values of options: most regions and most bytes, and whether all regions are dropped when the
    /// process forks.
    pub fn new(
        enable: Ternary,
        (max_regions, max_size): (Count, Size),
        purge_on_fork: bool,
    ) -> Self {
        CachePolicy {
            keeps: enable != Ternary::No,
            insists: enable == Ternary::Yes,
            max_regions: max_regions.number().unwrap_or(usize::MAX),
            max_bytes: max_size.bytes().unwrap_or(usize::MAX),
            purge_on_fork,
            spared: 0,
        }
    }
}

impl Default for CachePolicy {
    /// No limits.
    fn default() -> Self {
        CachePolicy {
            keeps: true,
            insists: false,
            max_regions: usize::MAX,
            max_bytes: usize::MAX,
            purge_on_fork: true,
            spared: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_limit_the_cache() {
        let mut options = Options::default();
        assert_eq!(CachePolicy::of_all(&options), CachePolicy::default());
        for (name, value) in [
            ("RCACHE_MAX_REGIONS", "100"),
            ("RCACHE_MAX_SIZE", "2M"),
            ("RCACHE_ENABLE", "yes"),
            ("RCACHE_PURGE_ON_FORK", "n"),
        ] {
            options.set(name, value).expect("an option");
        }
        let expected = CachePolicy {
            keeps: true,
            insists: true,
            max_regions: 100,
            max_bytes: 2 << 20,
            purge_on_fork: false,
            spared: 0,
        };
        assert_eq!(CachePolicy::of_all(&options), expected);
        options.set("RCACHE_ENABLE", "n").expect("an option");
        assert!(!CachePolicy::of_all(&options).keeps);
    }
}
