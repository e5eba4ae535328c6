//! Checks of what a program loads: two UCXs, none, or another than rucp.

use crate::finding::Finding;
use crate::mpi;
use crate::program::{LoadedProgram, UcxKind, missing_preloads, ucps};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Checks without a program: the environment alone.
pub fn check_environment() -> Vec<Finding> {
    preloads(&missing_preloads()).into_iter().collect()
}

/// All checks of a program or a process.
pub fn check(program: &LoadedProgram) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !program.running && program.loader.is_none() {
        findings.push(Finding::broken(
            "program-static",
            format!("{} is linked statically", program.path.display()),
            "LD_PRELOAD and LD_LIBRARY_PATH have no effect on it: it uses the UCX that it was linked with, if any",
            "link it dynamically, or again with rucp's libucp.a",
        ));
        return findings;
    }
    if program.set_id
        && ["LD_PRELOAD", "LD_LIBRARY_PATH"]
            .iter()
            .any(|v| program.variable(v).is_some())
    {
        findings.push(Finding::broken(
            "program-set-id",
            format!("{} has set-id bits", program.path.display()),
            "the loader ignores LD_PRELOAD and LD_LIBRARY_PATH",
            "chmod a-s on a copy of the program; or install rucp in the loader's path (ldconfig)",
        ));
    }
    findings.extend(preloads(&program.preloads_missing));
    if !program.missing.is_empty() {
        findings.push(Finding::broken(
            "library-missing",
            format!("the loader does not find {}", program.missing.join(", ")),
            "the program does not start",
            "LD_LIBRARY_PATH, or install the packages of these libraries",
        ));
    }
    let mut libraries = program.libraries.clone();
    // Plugins of an MPI are loaded later.
    let (plugins, faults) = mpi::check(program);
    libraries.extend(plugins);
    findings.extend(faults);
    findings.extend(loaded(program, &libraries));
    findings
}

fn preloads(missing: &[String]) -> Option<Finding> {
    (!missing.is_empty()).then(|| {
        Finding::broken(
            "preload-missing",
            format!(
                "LD_PRELOAD names what the loader cannot load: {}",
                missing.join(", ")
            ),
            "the loader goes on without it: the program uses the UCX that it was built with",
            "correct the path; on several hosts the file must exist on each of them",
        )
    })
}

/// The UCXs among the libraries.
fn loaded(program: &LoadedProgram, libraries: &BTreeSet<PathBuf>) -> Option<Finding> {
    let found = ucps(libraries);
    let paths = |all: &[(&Path, UcxKind)]| {
        let names: Vec<String> = all
            .iter()
            .map(|(path, _)| path.display().to_string())
            .collect();
        names.join(" and ")
    };
    match found.as_slice() {
        [] if program.running => Some(Finding::slow(
            "no-ucx",
            format!("{} has loaded no UCX", program.path.display()),
            "its messages do not go through rucp",
            "check LD_PRELOAD in its environment, and whether its MPI or framework was built with UCX",
        )),
        [] => Some(Finding::note(
            "no-ucx",
            format!("{} needs no UCX when it is started", program.path.display()),
            "its messages do not go through rucp, unless it loads a UCX later, as Python programs do",
            "rucp_doctor --pid PID while it runs",
        )),
        [(_, UcxKind::Rucp)] => None,
        [(path, UcxKind::Genuine)] => Some(Finding::slow(
            "genuine-ucx",
            format!("{} is UCX, not rucp", path.display()),
            "the program uses UCX",
            "LD_PRELOAD=PREFIX/lib/libucp.so.0, or LD_LIBRARY_PATH=PREFIX/lib",
        )),
        several => Some(Finding::broken(
            "two-libucps",
            format!("{} are loaded together", paths(several)),
            "two parts of the program use two UCXs, with two sets of workers, memory hooks and log lines; which one a \
             call reaches depends on the order of loading",
            "let all of them find one file: LD_PRELOAD of one library only, not LD_LIBRARY_PATH; remove the other \
             from LD_PRELOAD",
        )),
    }
}
