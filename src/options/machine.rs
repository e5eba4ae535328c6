//! Conditions of sections in `ucx.conf`: the machine's processor and its product name.
#![forbid(unsafe_code)]

use std::fs;

/// The properties that a section can name, as UCX calls them.
#[derive(Clone, Debug)]
pub struct Machine {
    /// `Intel`, `AMD`, `Fujitsu ARM`, ...
    pub cpu_vendor: String,
    /// `Milan`, `Turin`, `Grace`, ...
    pub cpu_model: String,
    /// Product name of the board's firmware.
    pub product: String,
}

/// Processors by their fields in /proc/cpuinfo: vendor, family (part on ARM), range of models, name.
const MODELS: &[(&str, u32, std::ops::RangeInclusive<u32>, &str)] = &[
    ("AMD", 23, 0x31..=0x31, "Rome"),
    ("AMD", 25, 0x01..=0x01, "Milan"),
    ("AMD", 25, 0x10..=0x1f, "Genoa"),
    ("AMD", 26, 0x02..=0x1f, "Turin"),
    ("Fujitsu ARM", 0x001, 0..=0, "FUJITSU-A64FX"),
    ("Generic ARM", 0xd4f, 0..=0, "Grace"),
];

impl Machine {
    /// This machine.
    pub fn this() -> Machine {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let product = fs::read_to_string("/sys/class/dmi/id/product_name").unwrap_or_default();
        let (cpu_vendor, cpu_model) = processor(&cpuinfo);
        Machine {
            cpu_vendor,
            cpu_model,
            product: product.trim().to_owned(),
        }
    }

    /// Whether a property matches a pattern of the shell, whatever its case. No machine has an unknown property.
    pub fn meets(&self, property: &str, pattern: &str) -> bool {
        let value = match property {
            "CPU vendor" => &self.cpu_vendor,
            "CPU model" => &self.cpu_model,
            "DMI product_name" | "DMI product name" => &self.product,
            _ => return false,
        };
        super::glob(&pattern.trim().to_lowercase(), &value.to_lowercase())
    }
}

/// Whether a key of `ucx.conf` is a property of machines.
pub fn is_property(key: &str) -> bool {
    matches!(
        key,
        "CPU vendor" | "CPU model" | "DMI product_name" | "DMI product name"
    )
}

/// Vendor and model of the first processor.
fn processor(cpuinfo: &str) -> (String, String) {
    let field = |name: &str| {
        let lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        lines
            .filter(|(key, _)| key.trim() == name)
            .map(|(_, value)| value.trim())
            .next()
            .unwrap_or("")
    };
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).unwrap_or(0),
        None => text.parse().unwrap_or(0),
    };
    let vendor = match (field("vendor_id"), field("CPU implementer")) {
        ("GenuineIntel", _) => "Intel",
        ("AuthenticAMD", _) => "AMD",
        (_, "0x46") => "Fujitsu ARM",
        (_, implementer) if !implementer.is_empty() => "Generic ARM",
        _ => "unknown",
    };
    let (family, model) = match field("CPU part") {
        "" => (number(field("cpu family")), number(field("model"))),
        part => (number(part), 0),
    };
    let known = MODELS
        .iter()
        .find(|entry| entry.0 == vendor && entry.1 == family && entry.2.contains(&model));
    (
        vendor.to_owned(),
        known.map_or("unknown", |entry| entry.3).to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_processors_by_their_numbers() {
        let milan =
            "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: EPYC\n";
        assert_eq!(processor(milan), ("AMD".into(), "Milan".into()));
        let a64fx = "CPU implementer\t: 0x46\nCPU part\t: 0x001\n";
        assert_eq!(
            processor(a64fx),
            ("Fujitsu ARM".into(), "FUJITSU-A64FX".into())
        );
        let grace = "CPU implementer\t: 0x41\nCPU part\t: 0xd4f\n";
        assert_eq!(processor(grace), ("Generic ARM".into(), "Grace".into()));
        assert_eq!(processor(""), ("unknown".into(), "unknown".into()));
    }
}
