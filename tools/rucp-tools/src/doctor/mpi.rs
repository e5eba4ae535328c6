//! Checks of the program's MPI: whether it uses UCX at all, and the option that makes it.

use crate::finding::Finding;
use crate::program::{LoadedProgram, dependencies};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Options of mpirun that make Open MPI use UCX on any device.
const OPEN_MPI_4: &str = "--mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any";
const OPEN_MPI_5: &str =
    "--mca pml ucx --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any";
const NOT_UCX: &str =
    "messages of MPI go through other components (ob1 with btl vader and tcp, cm), not through UCX";

/// The libraries that plugins of the MPI load, and what is wrong.
pub fn check(program: &LoadedProgram) -> (BTreeSet<PathBuf>, Vec<Finding>) {
    if let Some(plugin) = program.library("mca_pml_").filter(|_| program.running) {
        return (BTreeSet::new(), other_plugin(plugin).into_iter().collect());
    }
    if program.library("libopen-pal").is_some() {
        return OpenMpi::ask(program).check(program);
    }
    let mpich = ["libmpich.", "libmpi.so.12"]
        .iter()
        .find_map(|name| program.library(name));
    let findings = mpich.map_or_else(Vec::new, |library| mpich_findings(program, library));
    (BTreeSet::new(), findings)
}

/// Of a running process with Open MPI: it has loaded another component than pml ucx. After `MPI_Init` only the selected
/// one is loaded.
fn other_plugin(plugin: &Path) -> Option<Finding> {
    let name = plugin.file_stem()?.to_str()?;
    (name != "mca_pml_ucx").then(|| {
        Finding::broken(
            "openmpi-pml",
            format!("Open MPI has selected {name} in this process"),
            NOT_UCX,
            format!("mpirun {OPEN_MPI_4}, or of Open MPI 5 {OPEN_MPI_5}"),
        )
    })
}

/// Open MPI's parameters, from `ompi_info`: its files and the environment, as Open MPI reads them.
struct OpenMpi {
    /// Values by name. `None`: there is no ompi_info.
    parameters: Option<BTreeMap<String, String>>,
    /// The component is installed.
    has_pml_ucx: bool,
    plugins: Option<PathBuf>,
}

impl OpenMpi {
    fn ask(program: &LoadedProgram) -> OpenMpi {
        let variables = program
            .environment
            .iter()
            .filter(|(name, _)| name.starts_with("OMPI_"));
        let mut command = Command::new("ompi_info");
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OMPI_")) {
            command.env_remove(name);
        }
        let asked = command
            .args(["--all", "--parsable", "--level", "9"])
            // The libraries that the program preloads are not ompi_info's.
            .env_remove("LD_PRELOAD")
            .envs(variables)
            .output();
        let text = asked.ok().filter(|o| o.status.success()).map(|o| o.stdout);
        let text = text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let plugins = text
            .as_deref()
            .and_then(|text| path_of(text, "path:pkglibdir:"));
        OpenMpi {
            has_pml_ucx: match &text {
                Some(text) => text
                    .lines()
                    .any(|line| line.starts_with("mca:pml:ucx:version")),
                None => true,
            },
            parameters: text.as_deref().map(parameters),
            plugins,
        }
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.as_ref()?.get(name).map(String::as_str)
    }

    fn check(&self, program: &LoadedProgram) -> (BTreeSet<PathBuf>, Vec<Finding>) {
        if self.parameters.is_none() {
            let finding = Finding::note(
                "ompi-info-missing",
                "the program uses Open MPI, and ompi_info is not found",
                "it is not known whether Open MPI uses UCX",
                "add the folder of this Open MPI's ompi_info to PATH",
            );
            return (BTreeSet::new(), vec![finding]);
        }
        if !self.has_pml_ucx {
            let finding = Finding::broken(
                "openmpi-no-ucx",
                "this Open MPI was built without UCX (ompi_info lists no pml ucx)",
                "its messages do not go through UCX, whatever is preloaded",
                "install an Open MPI that was configured with --with-ucx",
            );
            return (BTreeSet::new(), vec![finding]);
        }
        let findings = self.selection().into_iter().collect();
        (self.plugin_libraries(program), findings)
    }

    /// Whether pml ucx is selected.
    fn selection(&self) -> Option<Finding> {
        let any = if self.parameter("opal_common_ucx_tls").is_some() {
            OPEN_MPI_5
        } else {
            OPEN_MPI_4
        };
        let list = self.parameter("pml").unwrap_or_default();
        let names: Vec<&str> = list
            .trim_start_matches('^')
            .split(',')
            .filter(|n| !n.is_empty())
            .collect();
        let excludes = match list.strip_prefix('^') {
            Some(_) => names.contains(&"ucx"),
            None => !names.is_empty() && !names.contains(&"ucx"),
        };
        if excludes {
            return Some(Finding::broken(
                "openmpi-pml",
                format!(
                    "Open MPI's parameter pml is '{list}' (OMPI_MCA_pml, mca-params.conf, mpirun --mca)"
                ),
                NOT_UCX,
                format!("mpirun {any}"),
            ));
        }
        let value = |name: &str| {
            let names = [format!("opal_common_ucx_{name}"), format!("pml_ucx_{name}")];
            names
                .iter()
                .find_map(|name| self.parameter(name))
                .unwrap_or("any")
        };
        let (tls, devices) = (value("tls"), value("devices"));
        (tls != "any" || devices != "any").then(|| {
            let found = format!("Open MPI's pml ucx accepts the transports '{tls}' on the devices '{devices}' only");
            let effect = "on hosts without such a device Open MPI uses ob1 with btl vader and tcp, or does not start \
                           with pml ucx";
            Finding::slow("openmpi-devices", found, effect, format!("mpirun {any}"))
        })
    }

    /// The libraries of the component.
    fn plugin_libraries(&self, program: &LoadedProgram) -> BTreeSet<PathBuf> {
        let folder = self.plugins.as_deref();
        let plugin = folder
            .map(|folder| folder.join("mca_pml_ucx.so"))
            .filter(|file| file.is_file());
        match (&program.loader, plugin) {
            (Some(loader), Some(plugin)) if !program.running => {
                dependencies(loader, &plugin).unwrap_or_default().0
            }
            _ => BTreeSet::new(),
        }
    }
}

/// The values in the output of `ompi_info --parsable`: `mca:pml:base:param:pml:value:^ucx`.
fn parameters(text: &str) -> BTreeMap<String, String> {
    let line = |line: &str| {
        let rest = line.strip_prefix("mca:")?;
        let (_, rest) = rest.split_once(":param:")?;
        let (name, value) = rest.split_once(":value:")?;
        (!name.contains(':')).then(|| (name.to_owned(), value.trim_matches('"').to_owned()))
    };
    text.lines().filter_map(line).collect()
}

/// The folder of a line `path:NAME:FOLDER`.
fn path_of(text: &str, name: &str) -> Option<PathBuf> {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .map(PathBuf::from)
}

fn mpich_findings(program: &LoadedProgram, library: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    if program.ucps().is_empty() {
        findings.push(Finding::broken(
            "mpich-no-ucx",
            format!("{} needs no libucp: this MPICH was not built with ch4:ucx", library.display()),
            "its messages do not go through UCX, whatever is preloaded",
            "install an MPICH that was configured with --with-device=ch4:ucx (mpichversion shows the device)",
        ));
        return findings;
    }
    let several = program.library("libfabric.").is_some();
    if let Some(netmod) = program
        .variable("MPIR_CVAR_CH4_NETMOD")
        .filter(|netmod| !netmod.is_empty() && *netmod != "ucx")
    {
        findings.push(Finding::broken(
            "mpich-netmod",
            format!("MPIR_CVAR_CH4_NETMOD={netmod}"),
            "messages between hosts do not go through UCX",
            "MPIR_CVAR_CH4_NETMOD=ucx",
        ));
    } else if several && program.variable("MPIR_CVAR_NOLOCAL") != Some("1") {
        findings.push(Finding::note(
            "mpich-local",
            "this MPICH has several netmods",
            "inside a node its own shared memory carries messages, not UCX",
            "MPIR_CVAR_NOLOCAL=1 MPIR_CVAR_CH4_NETMOD=ucx",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_values_not_their_help() {
        let text = "path:pkglibdir:/usr/lib/openmpi\nmca:pml:base:param:pml:value:^ucx\n\
                    mca:pml:ucx:param:pml_ucx_tls:help:List: value:x\n\
                    mca:pml:ucx:param:pml_ucx_verbose:enumerator:value:0:false\n\
                    mca:opal:common_ucx:param:opal_common_ucx_tls:value:\"rc,ud\"\n";
        let all = parameters(text);
        assert_eq!(all.get("pml").map(String::as_str), Some("^ucx"));
        assert_eq!(
            all.get("opal_common_ucx_tls").map(String::as_str),
            Some("rc,ud")
        );
        assert_eq!(all.len(), 2);
        assert_eq!(
            path_of(text, "path:pkglibdir:"),
            Some("/usr/lib/openmpi".into())
        );
    }
}
