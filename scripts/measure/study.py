"""The benchmarks of the Fugaku study (c_tests/study): running them, and parsing their rows."""

from . import parse
from .libraries import TOP
from .workloads import Workload

BENCHMARKS = {
    "pingpong_put": "ping-pong of threads by put",
    "pingpong_tag": "ping-pong of threads by tag messages",
    "put": "windows of puts and a flush",
    "get": "windows of gets",
    "gups_atomic": "random access by atomics",
    "gups_put_get": "random access by get and put",
}


def setting_of(threads, workers):
    """The name of a number of workers; a single thread is all settings at once."""
    return "one" if workers == 1 else "each" if workers == threads else str(workers)


def read(output, setting=None):
    """Rows `NAME THREADS WORKERS SIZE VALUE UNIT` as figures NAME/SETTING/SIZE by threads."""
    figures = []
    for line in output.splitlines():
        fields = line.split()
        if line.startswith("#") or len(fields) != 6 or not all(map(parse.is_number, fields[1:3] + fields[4:5])):
            continue
        name, threads, workers, size, value, unit = fields
        own = setting or setting_of(int(threads), int(workers))
        settings = ("one", "each") if setting is None and threads == "1" else (own,)
        for word in settings:
            series = f"{name}/{word}" + ("" if size == "-" else f"/{size}")
            figures.append(parse.Figure(series, int(threads), float(value), unit))
    return figures


def workload(benchmark, setting, options):
    """One benchmark with one setting of workers: all threads and sizes in one run of the job."""
    words = [benchmark, "-t", options.threads, "-w", setting, "-s", options.sizes, "-T", str(options.seconds)]
    words += ["-r", str(options.inner)] + options.words.split()

    def command(library, _):
        program = f"{TOP}/build/study/{options.mpi}/study"
        start = [f"{TOP}/scripts/mpirun-on", options.mpi, library.mpirun_on, str(options.ranks), program]
        return options.under.split() + start + words

    return Workload(
        f"{options.mpi}/study/{benchmark}/{setting}",
        f"{BENCHMARKS[benchmark]}, workers: {setting}",
        command,
        lambda output, scratch: read(output, setting),
        limit=options.limit,
    )


def workloads(options):
    return [workload(benchmark, setting, options) for benchmark in BENCHMARKS for setting in options.workers.split(",")]
