"""The ways in which messages go within a host: an MPI, and what carries its messages."""

import os
import subprocess
from dataclasses import dataclass

from ..libraries import TOP

OUT = f"{TOP}/build/bench"
DEBIAN = ("openmpi", "mpich")
NOT_INSTALLED = "not installed"
# rucp with the shared heap.
HEAP = "rucp-heap"


@dataclass(frozen=True)
class Way:
    """What carries the messages of an MPI. `library`, as scripts/mpirun-on takes it: own, system, 1.22, rucp or
    rucp-heap."""

    mpi: str
    library: str
    mpi_title: str
    title: str

    @property
    def name(self):
        return f"{self.mpi}/{self.library}"

    @property
    def is_rucp(self):
        return self.library in ("rucp", HEAP)

    @property
    def full_title(self):
        return f"{self.mpi_title}, {self.title}"

    @property
    def program(self):
        return f"{OUT}/{self.mpi}/peers"


WAYS = (
    Way("openmpi", "own", "Open MPI 4", "ob1 vader"),
    Way("openmpi", "system", "Open MPI 4", "UCX 1.13"),
    Way("openmpi", "1.22", "Open MPI 4", "UCX 1.22"),
    Way("openmpi", "rucp", "Open MPI 4", "rucp"),
    Way("openmpi", HEAP, "Open MPI 4", "rucp heap"),
    Way("openmpi-5", "own", "Open MPI 5", "ob1 sm"),
    Way("openmpi-5", "system", "Open MPI 5", "its UCX"),
    Way("openmpi-5", "rucp", "Open MPI 5", "rucp"),
    Way("openmpi-5", HEAP, "Open MPI 5", "rucp heap"),
    Way("mpich", "system", "MPICH 4", "UCX 1.13"),
    Way("mpich", "1.22", "MPICH 4", "UCX 1.22"),
    Way("mpich", "rucp", "MPICH 4", "rucp"),
    Way("mpich", HEAP, "MPICH 4", "rucp heap"),
    Way("mpich-5", "own", "MPICH 5", "posix"),
    Way("mpich-5", "system", "MPICH 5", "its UCX"),
    Way("mpich-5", "rucp", "MPICH 5", "rucp"),
    Way("mpich-5", HEAP, "MPICH 5", "rucp heap"),
    Way("impi", "own", "Intel MPI", "shm"),
)


def missing(mpi):
    """Compiles the program of an MPI; why its ways cannot run here, or None."""
    client = mpi not in DEBIAN
    if client and not os.path.exists(f"{TOP}/build/clients/{mpi}/bin/mpicc"):
        return f"{NOT_INSTALLED}: scripts/setup-clients {mpi}"
    make = ["make", "-s", "-C", f"{TOP}/c_tests/bench", f"OUT={OUT}", f"{OUT}/{mpi}/peers"]
    result = subprocess.run(make, capture_output=True, text=True)
    lines = (result.stderr + result.stdout).strip().splitlines()
    return f"its program does not compile: {' '.join(lines)[:160]}" if result.returncode else None


def matching(only):
    """The ways that words like peers, peers/mpich or peers/openmpi/own choose."""
    for word in only:
        if not any(f"peers/{way.name}/".startswith(f"{word}/") for way in WAYS):
            raise SystemExit(f"bench: {word} names no way; there are: {' '.join(f'peers/{way.name}' for way in WAYS)}")
    return [way for way in WAYS if any(f"peers/{way.name}/".startswith(f"{word}/") for word in only)]
