"""Faults of programs: what they load, and their MPI."""
import glob
import os
import shutil
import subprocess

from stage import build, shell

MPI = """
#include <mpi.h>
#include <stdio.h>
int main(int n, char **v) {
    MPI_Init(&n, &v);
    puts("ready");
    fflush(stdout);
    getchar();
    return MPI_Finalize();
}
"""


class ProgramCase:
    """A program that is looked at, and not run."""

    def __init__(self, name, *expected, program, variables=None):
        self.name = name
        self.expected = expected
        self.program = program
        self.variables = variables

    def run(self, bench):
        return bench.run(arguments=[self.program], variables=self.variables)


class ProcessCase:
    """A process that is looked at while it runs: it has loaded everything when it writes, and ends with its input."""

    def __init__(self, name, *expected, command=("bash", "-c", "echo ready; read line"), **variables):
        self.name = name
        self.expected = expected
        self.command = command
        self.variables = variables

    def run(self, bench):
        process = subprocess.Popen(self.command, env={**bench.environment, **self.variables}, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE)
        try:
            process.stdout.readline()
            return bench.run(arguments=["--pid", str(process.pid)])
        finally:
            process.communicate()


def cases(bench):
    rucp, genuine = bench.library, bench.genuine
    open_mpi = build(bench, "open_mpi", MPI, compiler="mpicc.openmpi")
    mpich = build(bench, "mpich", MPI, compiler="mpicc.mpich")
    ucx = {"OMPI_MCA_pml": "ucx"}
    any_device = {**ucx, "OMPI_MCA_pml_ucx_tls": "any", "OMPI_MCA_pml_ucx_devices": "any"}
    preload = {"LD_PRELOAD": rucp}
    main = "int main(void) { return 0; }"
    static = build(bench, "static", main, "-static")
    set_id = build(bench, "set_id", main)
    os.chmod(set_id, 0o4755)
    gone = build(bench, "gone/libgone.so", "int gone(void) { return 0; }", "-shared", "-fPIC")
    missing = build(bench, "missing", "int gone(void); int main(void) { return gone(); }", gone)
    os.unlink(gone)
    # Stand-ins for MPICHs that Debian does not have: libraries with the name and the dependencies of such builds.
    init = "int MPI_Init(void *a, void *b) { return 0; }"
    named = ["-shared", "-fPIC", "-Wl,-soname,libmpich.so.12"]
    needs = [*named, "-Wl,--no-as-needed", rucp_link(bench), *glob.glob("/usr/lib/*/libfabric.so.1")]
    ofi = os.path.dirname(build(bench, "ofi/libmpich.so.12", init, *named))
    both = os.path.dirname(build(bench, "both/libmpich.so.12", init, *needs))
    # Open MPI's components without those of UCX.
    plugins = os.path.join(bench.folder, "plugins")
    os.mkdir(plugins)
    for path in glob.glob("/usr/lib/*/openmpi/lib/openmpi3/*.so"):
        if "ucx" not in os.path.basename(path):
            os.symlink(path, os.path.join(plugins, os.path.basename(path)))
    # A copy that only a process in its mount namespace sees.
    hidden = f"mount -t tmpfs tmpfs /media; cp {rucp} /media/libucp.so.0; export LD_PRELOAD=$PRELOAD"
    script = os.path.join(bench.folder, "script")
    with open(script, "w", encoding="utf-8") as file:
        file.write(f"#!{mpich}\n")
    bare = os.path.join(bench.folder, "bare")
    os.mkdir(bare)

    def one(name, *expected, program=mpich, **variables):
        return ProgramCase(name, *expected, program=program, variables=variables)

    return [
        one("MPICH on rucp", **preload),
        one("a script on rucp", program=script, **preload),
        one("Open MPI on rucp", program=open_mpi, **preload, **any_device),
        one("preloaded file that does not exist", "preload-missing", "genuine-ucx", LD_PRELOAD="/nowhere/libucp.so.0"),
        one("preloaded file that is no library", "preload-missing", "genuine-ucx",
            LD_PRELOAD="/etc/passwd"),
        one("UCX in place of rucp", "genuine-ucx"),
        one("two libucps", "two-libucps", LD_PRELOAD=f"{rucp}:{genuine}"),
        ProcessCase("a process without UCX", "no-ucx"),
        ProcessCase("two libucps in a process", "two-libucps", LD_PRELOAD=f"{rucp}:{genuine}"),
        ProcessCase("two libucps in a process of a container", "two-libucps", PRELOAD=f"/media/libucp.so.0:{rucp}",
                    command=[*shell("-m", hidden), "bash", "-c", "echo ready; read line"]),
        ProcessCase("a process on rucp", **preload),
        ProcessCase("a rank of MPICH on rucp", command=[mpich], **preload),
        ProcessCase("a rank of Open MPI on rucp", command=[open_mpi], **preload, **any_device),
        ProcessCase("a rank of Open MPI with pml ob1", "openmpi-pml", command=[open_mpi], OMPI_MCA_pml="ob1",
                    **preload),
        one("a program without UCX", "no-ucx", program="ls"),
        one("a static program", "program-static", program=static),
        one("a program with set-id bits", "program-set-id", program=set_id, **preload),
        one("a library that is not found", "library-missing", program=missing, **preload),
        one("Open MPI as Debian configures it", "openmpi-pml", program=open_mpi, **preload),
        one("Open MPI with pml ob1", "openmpi-pml", program=open_mpi, OMPI_MCA_pml="ob1", **preload),
        one("Open MPI's pml ucx for adapters only", "openmpi-devices", program=open_mpi, **preload, **ucx),
        one("Open MPI without UCX", "openmpi-no-ucx", program=open_mpi, OMPI_MCA_mca_base_component_path=plugins,
            **preload),
        one("Open MPI without ompi_info", "ompi-info-missing", program=open_mpi, PATH=bare, **preload),
        one("MPICH with another netmod", "mpich-netmod", MPIR_CVAR_CH4_NETMOD="ofi", **preload),
        one("MPICH without UCX", "mpich-no-ucx", "no-ucx", LD_LIBRARY_PATH=ofi),
        one("MPICH with two netmods", "mpich-local", LD_LIBRARY_PATH=both),
        one("MPICH with two netmods, local messages off", LD_LIBRARY_PATH=both, MPIR_CVAR_NOLOCAL="1"),
    ]


def rucp_link(bench):
    """The library under its own name, which is that of the dependency."""
    path = os.path.join(bench.folder, "both/libucp.so.0")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    shutil.copy(bench.library, path)
    return path
