//! The machine: everything that asks the kernel or the processor, nothing that knows a message.

pub mod arch;
pub mod clock;
pub mod cma;
pub mod copy;
pub mod descriptor;
pub mod futex;
pub mod library;
pub mod lifeline;
pub mod loaded_from;
pub mod lock;
pub mod log;
pub mod machine;
pub mod memtype_cache;
pub mod named;
pub mod pool;
pub mod process;
pub mod published;
pub mod regcache;
pub mod segment;
pub mod shared;
pub mod spin;
pub mod sync;
pub mod sysv;
pub mod thread;
pub mod timer;
pub mod unmaps;
