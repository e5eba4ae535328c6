//! What interfaces have to know of their worker.

/// What a worker needs its interfaces to know.
#[derive(Clone, Copy, Debug)]
pub struct IfaceParams {
    pub uid: u64,
    pub client_id: Option<u64>,
    /// Interval of liveness probes, milliseconds.
    pub keepalive_ms: u64,
    /// Threads may call the worker concurrently.
    pub mt: bool,
    /// It may sleep.
    pub wakes: bool,
    /// Shared memory may be used for other workers.
    pub shm: bool,
    /// It may be used for the worker itself.
    pub loopback: bool,
    /// Inboxes have names in /dev/shm.
    pub named_inboxes: bool,
}
