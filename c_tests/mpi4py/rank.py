"""One rank of mpi4py's tests: writes its output to a file of its own, and checks the libucp that it uses.

usage: rank.py DIRECTORY RUNTESTS ARGUMENTS     (started by scripts/mpi4py-tests under an MPI's launcher)
DIRECTORY/RANK gets the rank's output. SIGUSR1 makes it print the stacks of its threads.
"""
import ctypes
import faulthandler
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1


def mapped_libucp():
    """The mapped files of this process that are a libucp, also those with a hash in their name."""
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if "/libucp" in line}
    return {os.path.realpath(path) for path in paths if os.path.basename(path).startswith("libucp")}


def main():
    directory, runtests = sys.argv[1:3]
    # A launcher that is killed kills its ranks.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    rank = next(os.environ[name] for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK") if name in os.environ)
    out = os.open(f"{directory}/{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    print(f"# pid {os.getpid()}", flush=True)
    from mpi4py import MPI
    expected = os.path.realpath(os.environ["EXPECT_LIBUCP"])
    mapped = mapped_libucp()
    if mapped != {expected}:
        print(f"# wrong libucp: {sorted(mapped)} instead of {expected}", flush=True)
        MPI.COMM_WORLD.Abort(1)
    print(f"# libucp: {expected}", flush=True)
    # As if the test runner had been started itself.
    sys.path[0] = os.path.dirname(runtests)
    sys.argv = [runtests] + sys.argv[3:]
    runpy.run_path(runtests, run_name="__main__")


main()
