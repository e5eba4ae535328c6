//! The job that a program is part of, as far as it is known.

use crate::options::Options;

/// What a program states about the job that it is part of; `None`: nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobInfo {
    /// Processes that the program will have endpoints to.
    pub endpoints: Option<usize>,
    /// Processes on this host.
    pub here: Option<usize>,
}

/// Environment variables in which launchers (Open MPI, MPICH, Slurm) pass the number of processes, and that on this
/// host.
const COUNT_VARIABLES: [(&str, &str); 3] = [
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_SIZE", "MPI_LOCALNRANKS"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"),
];

impl JobInfo {
    /// The numbers from the options, the program and the launcher.
    pub fn known(self, options: &Options) -> JobInfo {
        self.or(options, |name| std::env::var(name).ok())
    }

    /// Options precede the program's numbers, and those precede the launcher's; 0 counts as not given.
    fn or(self, options: &Options, env: impl Fn(&str) -> Option<String>) -> JobInfo {
        let number = |name: &str| env(name)?.parse().ok();
        let both = |&(all, here): &(&str, &str)| Some((number(all)?, number(here)?));
        let launcher = COUNT_VARIABLES.iter().find_map(both).unzip();
        let first_of = |count: Option<usize>, own: Option<usize>, launched| {
            let given = |n: &usize| *n > 0;
            count.filter(given).or(own.filter(given)).or(launched)
        };
        JobInfo {
            endpoints: first_of(options.num_eps.number(), self.endpoints, launcher.0),
            here: first_of(options.num_ppn.number(), self.here, launcher.1),
        }
    }

    /// Whether all processes are known to run on this host, where processors reach all memory.
    pub fn is_on_one_host(self) -> bool {
        matches!((self.endpoints, self.here), (Some(all), Some(here)) if here >= all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host() {
        let known = |options: &Options, endpoints, here, env: &[(&str, &str)]| {
            let env = |name: &str| {
                let found = env.iter().find(|(n, _)| *n == name);
                found.map(|(_, value)| value.to_string())
            };
            JobInfo { endpoints, here }
                .or(options, env)
                .is_on_one_host()
        };
        let mut options = Options::default();
        assert!(!known(&options, None, None, &[]));
        assert!(!known(&options, Some(0), Some(0), &[]));
        assert!(!known(&options, Some(4), None, &[]));
        assert!(!known(&options, Some(4), Some(2), &[]));
        assert!(known(&options, Some(4), Some(4), &[]));
        let one = [
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
        ];
        assert!(known(&options, Some(4), None, &one));
        assert!(known(&options, None, None, &one));
        assert!(!known(&options, None, None, &one[..1]));
        assert!(!known(&options, Some(8), None, &one), "others join");
        let some = [("PMI_SIZE", "4"), ("MPI_LOCALNRANKS", "2")];
        assert!(!known(&options, None, None, &some));
        let slurm = [
            ("SLURM_STEP_NUM_TASKS", "8"),
            ("SLURM_STEP_TASKS_PER_NODE", "4(x2)"),
        ];
        assert!(!known(&options, None, None, &slurm));
        options.set("NUM_EPS", "8").expect("a count");
        assert!(!known(&options, Some(4), Some(4), &[]));
        options.set("NUM_PPN", "8").expect("a count");
        assert!(known(&options, None, None, &[]));
    }
}
