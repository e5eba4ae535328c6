//! Selects what executes atomic operations on a context's memory (`UCX_ATOMIC_MODE`): processors, or for words of 8
//! bytes a device. Adapters of the Tofu interconnect, which execute those on words of 4 and 8 bytes, precede both
//! (`tl::tofu`).
//!
//! Atomic operations of most devices are atomic only among operations of the same device (`IBV_ATOMIC_HCA`), not with
//! those of processors; those of Tofu adapters are atomic with those of all other adapters, but not with those of
//! processors. So one kind executes all atomic operations on a region as long as a key to it exists: the owner of the
//! region selects it, and the key names it.

use crate::options::{AtomicMode, Options};
use crate::sys::log;
use crate::tl::ib::port::Port;
use crate::wire::address::MAX_PORTS;
use crate::wire::rkey::RkeyAtomics;
use std::sync::Arc;

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

/// The device that executes them, as a mask of its ports; default: processors execute them. `by_queue`: each peer gets
/// a queue pair; `wanted`: the program uses such operations.
pub fn choose(
    options: &Options,
    ports: &[Arc<Port>],
    by_queue: bool,
    wanted: bool,
    job: JobInfo,
) -> RkeyAtomics {
    let mode = options.atomic_mode;
    let by_device = match mode {
        AtomicMode::Cpu => false,
        AtomicMode::Device => true,
        AtomicMode::Guess => !job.known(options).is_on_one_host(),
    };
    let ports = &ports[..ports.len().min(MAX_PORTS)];
    let first = ports.iter().find(|port| port.hca.has_atomics());
    let device = first.filter(|_| by_queue && by_device && wanted);
    let Some(device) = device.map(|port| &port.hca) else {
        if mode == AtomicMode::Device && wanted {
            log::diag!("no device executes atomic operations (UCX_ATOMIC_MODE): processors do");
        }
        return RkeyAtomics::default();
    };
    // Atomic operations of two devices are not atomic with each other, those of two ports of one device are.
    let same = |(_, port): &(usize, &Arc<Port>)| Arc::ptr_eq(&port.hca, device);
    let behind = ports.iter().enumerate().filter(same);
    RkeyAtomics {
        port_mask: behind.fold(0, |bits, (i, _)| bits | 1 << i),
        alone: !device.has_global_atomics(),
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
