//! The transports and devices that the user permits: `UCX_TLS` and `UCX_*_DEVICES`.
#![forbid(unsafe_code)]

/// Names for several transports at once, and for one with its helper for connecting (`:aux`).
const ALIASES: &[(&str, &[&str])] = &[
    ("loopback", &["self"]),
    ("mm", &["posix", "sysv", "xpmem"]),
    ("sm", &["posix", "sysv", "xpmem", "knem", "cma"]),
    ("shm", &["posix", "sysv", "xpmem", "knem", "cma"]),
    (
        "ib",
        &[
            "rc_verbs", "rc_mlx5", "rc_gda", "dc_mlx5", "gga_mlx5", "ud_verbs", "ud_mlx5", "srd",
        ],
    ),
    ("rc_v", &["rc_verbs", "ud_verbs:aux"]),
    ("rc_x", &["rc_mlx5", "ud_mlx5:aux"]),
    (
        "rc",
        &["rc_verbs", "rc_mlx5", "ud_verbs:aux", "ud_mlx5:aux"],
    ),
    ("dc", &["dc_mlx5", "ud_mlx5:aux"]),
    ("dc_x", &["dc_mlx5", "ud_mlx5:aux"]),
    ("ud_v", &["ud_verbs"]),
    ("ud_x", &["ud_mlx5"]),
    ("ud", &["ud_verbs", "ud_mlx5"]),
    ("gga", &["gga_mlx5"]),
    ("ugni", &["ugni_smsg", "ugni_rdma", "ugni_udt:aux"]),
    ("cuda", &["cuda_copy", "cuda_ipc", "gdr_copy"]),
    ("rocm", &["rocm_copy", "rocm_ipc"]),
    ("ze", &["ze_copy", "ze_ipc"]),
    ("gaudi", &["gaudi_gdr"]),
];

/// Marks a transport that may only be used for wireup.
const AUX: &str = ":aux";

/// The transports that `UCX_TLS` permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFilter {
    list: AllowList,
    /// The list with its aliases resolved.
    resolved: Vec<Transport>,
}

/// A transport that the list names, directly or by an alias.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Transport {
    name: String,
    aux: bool,
}

impl TlsFilter {
    /// Parses the value of the option.
    pub fn parse(text: &str) -> TlsFilter {
        let list = AllowList::parse(text);
        let resolved = list.names.iter().flat_map(|name| resolve(name)).collect();
        TlsFilter { list, resolved }
    }

    /// Whether transport `tl` may carry messages.
    pub fn allows(&self, tl: &str) -> bool {
        match self.list.mode {
            Mode::All => true,
            Mode::Only => self.names(tl, false),
            Mode::Except => !self.names(tl, false),
        }
    }

    /// Whether transport `tl` may be used for the wireup of others.
    pub fn allows_aux(&self, tl: &str) -> bool {
        match self.list.mode {
            Mode::All => true,
            Mode::Only => self.names(tl, false) || self.names(tl, true),
            // `^rc` excludes rc, but not the helper that other transports need too; `^ud:aux` excludes that.
            Mode::Except => {
                !self.names(tl, false) && !self.list.names.iter().any(|name| is_aux_of(name, tl))
            }
        }
    }

    /// The names in the list that match none of the transports in `known`.
    pub fn unknown<'a>(&'a self, known: &[&str]) -> Vec<&'a str> {
        let reaches = |name: &&str| {
            resolve(name)
                .iter()
                .any(|tl| known.contains(&tl.name.as_str()))
        };
        self.list
            .names
            .iter()
            .map(String::as_str)
            .filter(|name| !reaches(name))
            .collect()
    }

    /// Whether the list names no transport, neither permitted nor excluded.
    pub fn is_empty(&self) -> bool {
        self.list.mode != Mode::All && self.list.names.is_empty()
    }

    /// Whether the list names the transports that it permits: all others are excluded.
    pub fn is_selection(&self) -> bool {
        self.list.mode == Mode::Only
    }

    /// Whether the list names excluded transports.
    pub fn is_negated(&self) -> bool {
        self.list.mode == Mode::Except
    }

    fn names(&self, tl: &str, aux: bool) -> bool {
        self.resolved
            .iter()
            .any(|entry| entry.aux == aux && entry.name == tl)
    }
}

/// Whether `name` is `tl:aux`, directly or by an alias of `tl`.
fn is_aux_of(name: &str, tl: &str) -> bool {
    name.ends_with(AUX) && resolve(name).iter().any(|entry| entry.name == tl)
}

/// The transports that one name of the list matches; with a backslash it is not an alias.
fn resolve(name: &str) -> Vec<Transport> {
    if let Some(exact) = name.strip_prefix('\\') {
        return vec![transport(exact, false)];
    }
    let (base, aux) = match name.strip_suffix(AUX) {
        Some(base) => (base, true),
        None => (name, false),
    };
    match ALIASES.iter().find(|(alias, _)| *alias == base) {
        Some((_, members)) => members
            .iter()
            .map(|member| transport(member, aux))
            .collect(),
        None => vec![transport(base, aux)],
    }
}

fn transport(name: &str, aux: bool) -> Transport {
    match name.strip_suffix(AUX) {
        Some(base) => Transport {
            name: base.to_owned(),
            aux: true,
        },
        None => Transport {
            name: name.to_owned(),
            aux,
        },
    }
}

/// The devices that one of the `UCX_*_DEVICES` options permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFilter {
    list: AllowList,
}

impl DeviceFilter {
    /// Parses the value of the option; ranges are written out already.
    pub fn parse(text: &str) -> DeviceFilter {
        DeviceFilter {
            list: AllowList::parse(text),
        }
    }

    /// Whether `device` (`eth0`, `mlx5_0:1`) may be used; a name without port is for all ports.
    pub fn allows(&self, device: &str) -> bool {
        let named = || {
            self.list
                .names
                .iter()
                .any(|name| matches_device(name, device))
        };
        match self.list.mode {
            Mode::All => true,
            Mode::Only => named(),
            Mode::Except => !named(),
        }
    }

    /// The names in the list that no device of `present` has.
    pub fn unknown<'a>(&'a self, present: &[&str]) -> Vec<&'a str> {
        let reaches = |name: &&str| present.iter().any(|device| matches_device(name, device));
        self.list
            .names
            .iter()
            .map(String::as_str)
            .filter(|name| !reaches(name))
            .collect()
    }

    /// The names that the list has more than once.
    pub fn repeated(&self) -> Vec<&str> {
        let names = &self.list.names;
        (1..names.len())
            .filter(|&i| names[..i].contains(&names[i]))
            .map(|i| names[i].as_str())
            .collect()
    }

    /// Whether every device may be used.
    pub fn is_all(&self) -> bool {
        self.list.mode == Mode::All
    }
}

/// Whether a name of the list means the device: its full name, or that before the port.
fn matches_device(name: &str, device: &str) -> bool {
    name == device
        || device
            .rsplit_once(':')
            .is_some_and(|(base, _)| name == base)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    All,
    Only,
    Except,
}

/// `all`, a list, or excluded names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AllowList {
    mode: Mode,
    names: Vec<String>,
}

impl AllowList {
    fn parse(text: &str) -> AllowList {
        let (mode, inner) = match text.strip_prefix('^') {
            _ if text == "all" => (Mode::All, ""),
            Some(inner) => (Mode::Except, inner),
            None => (Mode::Only, text),
        };
        let names = inner
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        AllowList {
            mode,
            names: names.map(str::to_owned).collect(),
        }
    }
}
