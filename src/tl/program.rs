//! What transports have to know of the program.

/// Properties of the program on which the choice of devices depends.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// It may wait for events (`UCP_FEATURE_WAKEUP`).
    pub sleeps: bool,
    /// Processes of the job on this host, if that is known.
    pub processes: Option<usize>,
    /// It uses atomic operations.
    pub amo: bool,
    /// All processes of the job are on this host and map each other's memory.
    pub one_host: bool,
}
