//! Why two processes that share memory do not copy from each other's memory (cma).

use crate::exchange::PairResult;
use crate::facts::{CopyAccess, Facts, Refusal};
use crate::finding::Finding;

const EFFECT: &str = "long messages travel in pieces through shared memory and are copied twice";

/// The reasons; none if both may copy.
pub fn check(pair: &PairResult) -> Vec<Finding> {
    let (here, there) = (&pair.here.0, &pair.there.0);
    if !(here.has(&["cma"]) && there.has(&["cma"])) {
        // Reported with the variables.
        return Vec::new();
    }
    if here.pid_ns != there.pid_ns {
        let (ours, theirs) = (here.pid_ns, there.pid_ns);
        return vec![Finding::slow(
            "pair-pid-namespace",
            format!("the PID namespaces differ: {ours} here, {theirs} there"),
            EFFECT,
            "docker run --pid=host, or --pid=container:NAME; in a pod shareProcessNamespace",
        )];
    }
    if let CopyAccess::Refused(refusal) = &pair.here.1.copy {
        causes("here", refusal, here, there)
    } else if let CopyAccess::Refused(refusal) = &pair.there.1.copy {
        causes("there", refusal, there, here)
    } else {
        Vec::new()
    }
}

/// Why a copy was refused. `own` has tried to copy from `peer`.
fn causes(place: &str, refusal: &Refusal, own: &Facts, peer: &Facts) -> Vec<Finding> {
    let finding = |id, why: &str, change: &'static str| {
        let found = format!(
            "process_vm_readv is refused {place}: {}; {why}",
            refusal.error
        );
        Finding::slow(id, found, EFFECT, change)
    };
    let mut certain = Vec::new();
    if let Some(scope) = refusal.ptrace_scope
        && (scope >= 3 || scope == 2 && !refusal.may_trace)
    {
        certain.push(finding(
            "ptrace-scope",
            &format!("kernel.yama.ptrace_scope is {scope}"),
            "sysctl -w kernel.yama.ptrace_scope=1 (rucp permits its peers by itself), or give the program \
             CAP_SYS_PTRACE",
        ));
    }
    if own.user_ns != peer.user_ns {
        let (ours, theirs) = (own.user_ns, peer.user_ns);
        certain.push(finding(
            "pair-user-namespace",
            &format!("the user namespaces differ: {ours} and {theirs}"),
            "run both processes in one user namespace (rootless containers: the same container or pod)",
        ));
    }
    if !certain.is_empty() {
        return certain;
    }
    let likely = if !peer.dumpable {
        finding(
            "cma-protected",
            "the program of the other process is protected (not dumpable)",
            "make the file of the program readable, without set-id bits and capabilities",
        )
    } else if !refusal.may_trace && peer.capabilities & !own.capabilities != 0 {
        finding(
            "pair-capabilities",
            "the other process has capabilities that this one lacks",
            "run both processes with the same capabilities (docker run --cap-add), or give both CAP_SYS_PTRACE",
        )
    } else if refusal.filtered {
        finding(
            "cma-seccomp",
            "a seccomp filter judges the system calls of the process",
            "docker run --cap-add=SYS_PTRACE, or a seccomp profile that allows process_vm_readv and \
             process_vm_writev",
        )
    } else {
        finding(
            "cma-refused",
            "the reason is not known: a security module (SELinux, AppArmor), or a sandbox",
            "see the log of the security module; UCX_TLS=^cma excludes the copies",
        )
    };
    vec![likely]
}
