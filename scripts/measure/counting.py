"""Instructions of a library itself for each operation of `ucpbench instructions`, without those of its callees."""

import os
import statistics
import subprocess
import sys

from . import parse
from .conditions import DRIVER
from .workloads import scratch

CALLGRIND = [
    "valgrind", "--quiet", "--tool=callgrind", "--collect-atstart=no", "--compress-strings=no", "--compress-pos=no",
]  # fmt: skip


def command(library, environment, directory, adapter, under):
    """`adapter`: the directory of a software adapter's library, None for the adapter of this machine; `under`: a
    command prefix."""
    path = [found for found in (adapter, library.directory) if found]
    environment = environment | ({"LD_LIBRARY_PATH": ":".join(path)} if path else {})
    words = [f"{name}={value}" for name, value in environment.items()]
    return ["env"] + words + under + CALLGRIND + [f"--callgrind-out-file={directory}/counts", DRIVER, "instructions"]


def count(library, environment, without, caller, adapter=None, wire=None, under=()):
    """The counts of every operation, without those of counting itself and of the objects `without` and `caller`
    (patterns); none if the library has no such transport. `wire`: the variable that names the software adapter's shared
    file."""
    with scratch() as directory:
        if wire:
            environment = environment | {wire: f"{directory}/wire"}
        result = subprocess.run(
            command(library, environment, directory, adapter, list(under)),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
        )  # fmt: skip
        counts = parse.dumps(directory, without=without, caller=caller)
    path, _ = parse.loaded_library(result.stdout)
    if path is not None and os.path.realpath(path) != library.file():
        sys.exit(f"{library.title} was asked for, but {path} was loaded")
    if result.returncode != 0 or "baseline" not in counts:
        print(f"# {library.title}: no figures, status {result.returncode}")
        print("".join(f"#   {line}\n" for line in result.stdout.splitlines()[-5:]), end="")
        return {}
    cost = min(counts.pop("baseline"))
    return {name: [number - cost for number in numbers] for name, numbers in counts.items()}


def show(counts):
    """Two columns for each library: the least of twenty counts, and their median."""
    print(f"{'instructions of one operation':<36}" + "".join(f"{title:>20}" for title in counts))
    names = dict.fromkeys(name for counted in counts.values() for name in counted)
    for name in names:
        columns = (
            f"{min(counted[name]):>10.0f}{statistics.median(counted[name]):>10.0f}" if name in counted else " " * 20
            for counted in counts.values()
        )
        print(f"{name:<36}" + "".join(columns))
