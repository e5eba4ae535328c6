"""The ways in which messages go within a host: an MPI, and what carries its messages."""

import os
from dataclasses import dataclass

from ..libraries import TOP


@dataclass(frozen=True)
class Way:
    """What carries the messages of an MPI: `library` is own, system, 1.22 or rucp, as scripts/mpirun-on takes it."""

    mpi: str
    library: str
    mpi_title: str
    title: str

    @property
    def name(self):
        return f"{self.mpi}/{self.library}"

    @property
    def full_title(self):
        return f"{self.mpi_title}, {self.title}"

    @property
    def program(self):
        return f"{TOP}/build/bench/{self.mpi}/peers"


WAYS = (
    Way("openmpi", "own", "Open MPI 4", "ob1 vader"),
    Way("openmpi", "system", "Open MPI 4", "UCX 1.13"),
    Way("openmpi", "1.22", "Open MPI 4", "UCX 1.22"),
    Way("openmpi", "rucp", "Open MPI 4", "rucp"),
    Way("openmpi-5", "own", "Open MPI 5", "ob1 sm"),
    Way("openmpi-5", "system", "Open MPI 5", "its UCX"),
    Way("openmpi-5", "rucp", "Open MPI 5", "rucp"),
    Way("mpich", "system", "MPICH 4", "UCX 1.13"),
    Way("mpich", "1.22", "MPICH 4", "UCX 1.22"),
    Way("mpich", "rucp", "MPICH 4", "rucp"),
    Way("mpich-5", "own", "MPICH 5", "posix"),
    Way("mpich-5", "system", "MPICH 5", "its UCX"),
    Way("mpich-5", "rucp", "MPICH 5", "rucp"),
    Way("impi", "own", "Intel MPI", "shm"),
)


def installed(ways):
    """Those that can run here, and for the others why not."""
    absent = {}
    for way in ways:
        debian = way.mpi in ("openmpi", "mpich")
        if not os.path.exists(way.program):
            absent[way.name] = "not installed" + ("" if debian else f": scripts/setup-clients {way.mpi}")
    return [way for way in ways if way.name not in absent], absent


def matching(only):
    """The ways that words like peers, peers/mpich or peers/openmpi/own choose."""
    for word in only:
        if not any(f"peers/{way.name}/".startswith(f"{word}/") for way in WAYS):
            raise SystemExit(f"bench: {word} names no way; there are: {' '.join(f'peers/{way.name}' for way in WAYS)}")
    return [way for way in WAYS if any(f"peers/{way.name}/".startswith(f"{word}/") for word in only)]
