//! The options that are one word of a fixed set, as Rust enums, and the sets that more than one row uses.
#![forbid(unsafe_code)]

use crate::ctypes::MEMORY_TYPE_TEXTS;

/// Makes an enum out of the words of an option, so that the words stand once.
macro_rules! choice {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// The words, in the order of the variants.
            pub const NAMES: &'static [&'static str] = &[$($word),+];
            /// The variants.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The variant a word stands for.
            pub fn from_name(word: &str) -> Option<$name> {
                let at = Self::NAMES.iter().position(|name| name.eq_ignore_ascii_case(word))?;
                Some(Self::ALL[at])
            }

            /// The word for this variant.
            pub fn name(self) -> &'static str {
                Self::NAMES[self as usize]
            }
        }
    };
}

choice! {
    /// Log levels, most serious first.
    LogLevel {
        /// The process cannot go on.
        Fatal = "FATAL",
        /// An operation failed.
        Error = "ERROR",
        /// Something will not work as it should.
        Warn = "WARN",
        /// Something is odd, and UCX prints it only when asked.
        Diag = "DIAG",
        /// What was chosen at the start.
        Info = "INFO",
        /// What happens, rarely.
        Debug = "DEBUG",
        /// What happens, in detail.
        Trace = "TRACE",
        /// What happens to each request.
        Req = "REQ",
        /// What is sent and received.
        Data = "DATA",
        /// What happens in the background.
        Async = "ASYNC",
        /// Every call.
        Func = "FUNC",
        /// Every poll.
        Poll = "POLL",
    }
}

choice! {
    /// How a rendezvous moves its data.
    RndvScheme {
        /// What is fastest.
        Auto = "auto",
        /// The receiver reads the sender's memory.
        GetZcopy = "get_zcopy",
        /// The sender writes the receiver's memory.
        PutZcopy = "put_zcopy",
        /// The receiver reads piece by piece through a buffer.
        GetPpln = "get_ppln",
        /// The sender writes piece by piece through a buffer.
        PutPpln = "put_ppln",
        /// The data travels in messages.
        Am = "am",
        /// The receiver copies out of the mapped memory of the sender.
        RkeyPtr = "rkey_ptr",
    }
}

choice! {
    /// What executes atomic operations.
    AtomicMode {
        /// The processor: atomic with respect to its own instructions.
        Cpu = "cpu",
        /// The network adapter.
        Device = "device",
        /// What the transport does best.
        Guess = "guess",
    }
}

choice! {
    /// How `ucp_worker_fence` orders operations.
    FenceMode {
        /// By the ordering guarantees of the lanes.
        Weak = "weak",
        /// By a flush.
        Strong = "strong",
        /// By what the transports in use need.
        Auto = "auto",
        /// By a flush of those endpoints that need one.
        EpBased = "ep_based",
    }
}

choice! {
    /// Format of worker addresses.
    AddressVersion {
        /// The first.
        V1 = "v1",
        /// The shorter.
        V2 = "v2",
    }
}

choice! {
    /// Where large allocations of the process lie.
    HeapMode {
        /// In memory of the process alone.
        Private = "private",
        /// In memory that peers of the host map.
        Shared = "shared",
    }
}

choice! {
    /// How functions of the C library are hooked.
    HookMode {
        /// Not at all.
        None = "none",
        /// By relocation.
        Reloc = "reloc",
        /// By patching their code.
        Bistro = "bistro",
    }
}

choice! {
    /// A flag of `ucp_request_param_t` that can be added to every operation.
    OpFlag {
        /// `UCP_OP_ATTR_FLAG_NO_IMM_CMPL`.
        NoImmCmpl = "no_imm_cmpl",
        /// `UCP_OP_ATTR_FLAG_FAST_CMPL`.
        FastCmpl = "fast_cmpl",
        /// `UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL`.
        ForceImmCmpl = "force_imm_cmpl",
        /// `UCP_OP_ATTR_FLAG_MULTI_SEND`.
        MultiSend = "multi_send",
    }
}

/// Memory types by name.
pub const MEMORY_TYPES: &[&str] = &MEMORY_TYPE_TEXTS;

/// Ways to allocate memory.
pub const ALLOC_METHODS: &[&str] = &["thp", "md", "heap", "mmap", "huge"];

choice! {
    /// Whether to do something, or to try.
    Ternary {
        /// Do not.
        No = "n",
        /// Do, or fail.
        Yes = "y",
        /// Do if it works.
        Try = "try",
    }
}

choice! {
    /// Whether to do something, or to decide it.
    OnOffAuto {
        /// Do not.
        Off = "off",
        /// Do.
        On = "on",
        /// Decide by the situation.
        Auto = "auto",
    }
}
