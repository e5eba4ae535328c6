"""Command lines and environments under which an MPI uses this package's libucp.so.0."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class LaunchError(Exception):
    """A program that cannot be run on rucp; its text is for the user."""


class Mpi(Enum):
    OPEN_MPI_4 = "Open MPI 4"
    OPEN_MPI_5 = "Open MPI 5"
    MPICH = "MPICH"


LAUNCHERS = re.compile(r"(mpirun|mpiexec|orterun|prterun|oshrun)(\.(openmpi|mpich|hydra))?")

# MCA parameters with which Open MPI uses UCX on a machine without InfiniBand too.
OPEN_MPI = {
    Mpi.OPEN_MPI_4: {"pml": "ucx", "osc": "ucx", "pml_ucx_tls": "any", "pml_ucx_devices": "any"},
    Mpi.OPEN_MPI_5: {
        "pml": "ucx",
        "osc": "ucx",
        "opal_common_ucx_tls": "any",
        "opal_common_ucx_devices": "any",
    },
}

# Control variables with which MPICH uses UCX inside a node too, and where it was built with several netmods.
MPICH = {"MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": "ucx"}


def is_launcher(program: str) -> bool:
    """Whether the name of the program is that of a launcher of Open MPI or MPICH."""
    return LAUNCHERS.fullmatch(Path(program).name) is not None


def identify(banner: str) -> "Mpi | None":
    """The MPI whose launcher prints this text for --version."""
    found = re.search(r"\((?:Open MPI|OpenRTE)\) (\d+)\.", banner)
    if found:
        return Mpi.OPEN_MPI_5 if int(found[1]) >= 5 else Mpi.OPEN_MPI_4
    if re.search(r"\bPRRTE\b|\bPMIx Reference RunTime", banner):
        return Mpi.OPEN_MPI_5
    if "HYDRA build details" in banner:
        return Mpi.MPICH
    return None


def find(program: str) -> str:
    """The path of a program; LaunchError if there is none."""
    path = shutil.which(program)
    if path is None:
        raise LaunchError(f"there is no program {program}")
    return path


@dataclass
class Way:
    """How processes get the library."""

    libraries: "list[Path]"  # preloaded, in this order
    variables: "dict[str, str]"  # beside LD_PRELOAD

    def environment(self) -> "dict[str, str]":
        """What the environment of a process has in any case: the libraries, then what the user preloads."""
        for library in self.libraries:
            if re.search(r"[\s:$]", str(library)):
                raise LaunchError(f"LD_PRELOAD cannot name {library}: its path has a space, a colon or a dollar sign")
        before = os.environ.get("LD_PRELOAD")
        words = [str(library) for library in self.libraries] + ([before] if before else [])
        return {"LD_PRELOAD": ":".join(words), **self.variables}


def shared_heap(library: Path, heap: Path) -> Way:
    """With large allocations in memory that the processes of a host share."""
    if not heap.exists():
        raise LaunchError(f"this package has no {heap.name}")
    # A genuine libucm in the process would patch the functions of the heap's library.
    return Way([library, heap], {"UCX_HEAP": "shared", "UCX_MEM_EVENTS": "n"})


def program_environment(way: Way) -> "dict[str, str]":
    """The environment of one process, of any MPI; variables that the user has set stay."""
    wanted = dict(MPICH)
    for parameters in OPEN_MPI.values():
        wanted.update((f"OMPI_MCA_{name}", value) for name, value in parameters.items())
    return {**wanted, **os.environ, **way.environment()}


def launcher_command(mpi: Mpi, command: "list[str]", way: Way) -> "list[str]":
    """The launcher's command line with options that make its ranks use the library.

    Parameters that the user has set, on the command line or in the environment, are left out.
    """
    options: "list[str]" = []
    if mpi is Mpi.MPICH:
        for name, value in way.environment().items():
            options += ["-genv", name, value]
        for name, value in MPICH.items():
            if name not in os.environ and name not in command:
                options += ["-genv", name, value]
    else:
        for name, value in way.environment().items():
            options += ["-x", f"{name}={value}"]
        given = {after for option, after in zip(command, command[1:]) if option.lstrip("-") in ("mca", "gmca", "omca")}
        for name, value in OPEN_MPI[mpi].items():
            if f"OMPI_MCA_{name}" not in os.environ and name not in given:
                options += ["--mca", name, value]
    return [command[0], *options, *command[1:]]


def prepare(command: "list[str]", way: Way) -> "tuple[list[str], dict[str, str]]":
    """The command line and the environment that run a command on the library."""
    program = find(command[0])
    if not is_launcher(command[0]):
        return [program, *command[1:]], program_environment(way)
    asked = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=60)
    mpi = identify(asked.stdout + asked.stderr)
    if mpi is None:
        raise LaunchError(f"{program} is not the launcher of an Open MPI or MPICH")
    return launcher_command(mpi, [program, *command[1:]], way), dict(os.environ)
