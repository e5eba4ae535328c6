//! What transports have to know of the program.

/// Properties of the program on which the choice of devices depends.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// It may wait for events (`UCP_FEATURE_WAKEUP`).
    pub sleeps: bool,
    /// Endpoints that it expects, if it says so.
    pub num_eps: Option<usize>,
    /// Processes of the job on this host, if that is known.
    pub processes: Option<usize>,
    /// It uses atomic operations on words of 4 bytes, and of 8 bytes.
    pub amo32: bool,
    pub amo64: bool,
    /// All processes of the job are known to be on this host,
    pub one_host: bool,
    /// where processes map each other's memory.
    pub shm: bool,
}
