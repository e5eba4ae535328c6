"""The workloads: programs, their arguments, and the parsers of their output."""

import os
import tempfile
from dataclasses import dataclass, field
from typing import Callable

from . import parse
from .conditions import DRIVER
from .libraries import TOP

MPIS = ("openmpi", "mpich")
OWN_MPI = {
    "latency": "-m 1:4194304",
    "bw": "-m 1:4194304",
    "bibw": "-m 1:4194304",
    "put_latency": "-m 1:4194304",
    "get_latency": "-m 1:4194304",
    "fop_latency": "",
    "allreduce": "-m 4:1048576",
    "mt_mr": "-t 4",  # with 8 threads on 2 cores Open MPI on UCX does not end
}
OWN_MPI_QUICK = {
    "latency": "-m 8:64",
    "bw": "-m 8:64",
    "bibw": "-m 8:64",
    "put_latency": "-m 8:64",
    "get_latency": "-m 8:64",
    "fop_latency": "",
    "allreduce": "-m 8:64",
    "mt_mr": "-t 2 -i 20000",
}
# Their directories below c/mpi of OSU's tree, and their arguments.
OSU = {
    "osu_latency": ("pt2pt/standard", "-m 1:4194304"),
    "osu_bw": ("pt2pt/standard", "-m 1:4194304"),
    "osu_bibw": ("pt2pt/standard", "-m 1:4194304"),
    "osu_mbw_mr": ("pt2pt/standard", "-m 1:4194304"),
    "osu_latency_mt": ("pt2pt/standard", "-m 1:65536 -t 1:1"),
    "osu_multi_lat": ("pt2pt/standard", "-m 1:4194304"),
    "osu_mt_mr": ("pt2pt/standard", ""),
    "osu_match_depth": ("pt2pt/standard", ""),
    "osu_put_latency": ("one-sided", "-m 1:4194304"),
    "osu_get_latency": ("one-sided", "-m 1:4194304"),
    "osu_put_bw": ("one-sided", "-m 1:4194304"),
    "osu_get_bw": ("one-sided", "-m 1:4194304"),
    "osu_acc_latency": ("one-sided", "-m 1:4194304"),
    "osu_fop_latency": ("one-sided", ""),
    "osu_cas_latency": ("one-sided", ""),
    "osu_gups": ("one-sided", ""),
    "osu_allreduce": ("collective/blocking", "-m 4:1048576"),
    "osu_bcast": ("collective/blocking", "-m 4:1048576"),
    "osu_alltoall": ("collective/blocking", "-m 4:1048576"),
    "osu_barrier": ("collective/blocking", ""),
}
OSU_QUICK = {
    "osu_latency": "-m 8:64 -i 200 -x 20",
    "osu_bw": "-m 8:64 -i 20 -x 2",
    "osu_put_latency": "-m 8:64 -i 100 -x 10",
    "osu_allreduce": "-m 8:64 -i 100 -x 10",
    "osu_mt_mr": "-t 2 -i 20000",
    "osu_match_depth": "-d 16 -i 100",
    "osu_gups": "-w 4096 -i 2048",
}


@dataclass
class Workload:
    name: str
    about: str
    command: Callable  # (library, scratch directory) -> words
    read: Callable  # (output, scratch directory) -> figures
    limit: int = 120  # seconds
    environment: dict = field(default_factory=dict)
    once: bool = False  # exact figures need no repetition
    machine: bool = False  # needs no library: measured with the first one only
    load: int = 0  # processes that compute meanwhile

    def run_in(self, library, scratch):
        """Arguments and environment of a run. MPI's ranks get their library from scripts/mpirun-on, not from here."""
        environment = library.environment()
        if self.name.removeprefix("oversubscribed/").startswith(MPIS):
            environment.pop("LD_LIBRARY_PATH", None)
        return ["timeout", "-k", "5", str(self.limit)] + self.command(library, scratch), environment | self.environment


def driver(name, about, *words, quick=False, **options):
    command = [DRIVER] + (["--quick"] if quick else []) + list(words)
    return Workload(
        name, about, lambda library, scratch: command, lambda output, scratch: parse.driver(output), **options
    )


def targets(quick):
    """Memory that UCP did not allocate, by what the target does; also where the kernel's copy costs 1.3 us more."""
    about = "put and get of memory that UCP did not allocate, by what the target does"
    workload = driver("targets", about, "targets", quick=quick)
    slow = driver(
        "targets/slow_copy",
        f"{about}, where each of the kernel's copies takes 1.3 us longer",
        "targets",
        quick=quick,
        environment={"LD_PRELOAD": f"{os.path.dirname(DRIVER)}/slow_copy.so"},
    )
    slow.read = lambda output, scratch: parse.driver(output, "slow_copy_")
    return [workload, slow]


def lists(quick):
    """Scatter-gather lists; UCX 1.22 has them for adapters alone."""
    chosen = []
    for name, tls, prefix in (("lists", "sm,self", ""), ("lists/tcp", "tcp", "tcp_")):
        about = f"put and get of lists of many pieces of 32 bytes, by {tls}"
        workload = driver(name, about, "lists", quick=quick, environment={"UCX_TLS": tls, "UCX_LOG_LEVEL": "fatal"})
        workload.read = lambda output, scratch, prefix=prefix: parse.driver(output, prefix)
        chosen.append(workload)
    return chosen


def instructions():
    def command(library, scratch):
        # UCX needs minutes until it has connected 64 workers under callgrind.
        senders = "8" if library.name in ("1.13", "1.22") else "64"
        return [
            "valgrind",
            "--tool=callgrind",
            "--collect-atstart=no",
            f"--callgrind-out-file={scratch}/counts",
            DRIVER,
            "instructions",
            senders,
        ]

    return Workload(
        "instructions",
        "instructions of one operation, by callgrind, both workers in one process",
        command,
        lambda output, scratch: parse.callgrind(scratch),
        limit=300,
        once=True,
    )


def clients(quick):
    """Short-lived clients by each transport that every library has; to a listener's socket address, too."""
    chosen = []
    for name, how, tls, words in (
        ("sm", "by sm", "sm,self", ["clients"]),
        ("tcp", "by tcp", "tcp", ["clients"]),
        ("listener", "by tcp, to a listener", "tcp", ["clients", "--listener"]),
    ):
        workload = driver(
            f"clients/{name}",
            f"clients in turn that connect, exchange two messages and go, {how}",
            *words,
            quick=quick,
            environment={"UCX_TLS": tls},
        )
        workload.read = lambda output, scratch, prefix=f"{name}_": parse.driver(output, prefix)
        chosen.append(workload)
    return chosen


def regions(quick):
    """Operations on registered memory by the number of regions; the peer executes puts, and looks up the region."""
    return [
        driver(
            f"growth/regions/{number}",
            f"{number} registered regions: what one more takes, and a put into one of them and into none",
            "regions",
            str(number),
            quick=quick,
            environment={"UCX_TLS": "tcp", "UCX_LOG_LEVEL": "fatal"},
        )
        for number in ((100, 1000) if quick else (100, 1000, 10000, 100000))
    ]


def growth(quick):
    """A worker after many peers and endpoints, and with many unexpected messages and posted receives."""
    what = {
        "peers": "peers that came and went",
        "endpoints": "endpoints created and closed",
        "unexpected": "unexpected messages",
        "posted": "posted receives",
    }
    numbers = (100,) if quick else (10, 100, 1000, 10000)
    return [
        driver(
            f"growth/{kind}/{number}",
            f"{number} {what[kind]}: what an operation takes then, and what the process holds",
            "growth",
            kind,
            str(number),
            quick=quick,
            limit=300,
            environment={"UCX_TLS": "sm,self", "UCX_LOG_LEVEL": "fatal"},
        )
        for kind in what
        for number in numbers
        # Creating a worker takes UCX milliseconds.
        if number <= 1000 or kind != "peers"
    ]


def scale(quick):
    """A worker with very many peers, of which it uses few: made-up ones, and workers of another process, which UCX has,
    too."""
    made_up = (10, 1000) if quick else (10, 1000, 10000, 100000)
    real = (100,) if quick else (10, 100)  # UCX 1.22 cannot make 1,000 workers in a process
    about = "of which few are used: time and memory of an endpoint, idle progress, first use"
    return [
        driver(
            f"scale/{'real/' if is_real else ''}{number}",
            f"{number} peers {'in another process' if is_real else 'that do not exist'}, {about}",
            "scale",
            *(["--real"] if is_real else []),
            str(number),
            quick=quick,
            limit=280,
            environment={"UCX_TLS": "sm,tcp,self", "UCX_LOG_LEVEL": "fatal"},
        )
        for is_real, numbers in ((False, made_up), (True, real))
        for number in numbers
    ]


def processes(quick):
    """Many processes on one host, alone and beside others that compute."""
    chosen = []
    for loaded in (False, True):
        for number in (16,) if quick else (64, 128, 256, 512):
            name = f"processes/{'loaded/' if loaded else ''}{number}"
            about = f"{number} processes connect and exchange messages"
            about += ", the cores loaded twice over" if loaded else ""
            words = ["processes"] + (["--loaded"] if loaded else []) + [str(number)]
            workload = driver(name, about, *words, quick=quick, limit=280, environment={"UCX_TLS": "sm,self"})
            if loaded:
                workload.read = lambda output, scratch: parse.driver(output, "loaded_")
            chosen.append(workload)
    return chosen


def senders(quick):
    """Sender processes and one receiving worker, over shared memory and over TCP."""
    chosen = []
    for tls, title, prefix, numbers in (
        ("sm,self", "shared memory", "", (8, 64) if quick else (1, 8, 64)),
        ("tcp", "TCP", "tcp_", (8,) if quick else (8, 64, 256)),
    ):
        for operation in ("tag", "am"):
            for number in numbers:
                workload = driver(
                    f"{prefix.replace('_', '/')}senders/{operation}/{number}",
                    f"{operation} rate, {number} sender processes, one receiving worker, {title}",
                    "senders",
                    operation,
                    str(number),
                    quick=quick,
                    environment={"UCX_TLS": tls},
                )
                workload.read = lambda output, scratch, prefix=prefix: parse.driver(output, prefix)
                chosen.append(workload)
    return chosen


def mpi(mpi_name, program, path, words, about, ranks=2, read=None):
    name = f"{mpi_name}_{program.removeprefix('osu_')}"

    def command(library, _):
        return [f"{TOP}/scripts/mpirun-on", mpi_name, library.mpirun_on, str(ranks), path] + words.split()

    environment = ({"PIN": "1"} if ranks == 2 else {}) | ({} if names_libucp(path) else {"PROVE": "1"})
    return Workload(
        f"{mpi_name}/{program}" + ("" if ranks == 2 else f"/{ranks}"),
        about,
        command,
        read or (lambda output, scratch: parse.table(output, name)),
        environment=environment,
        limit=180,
    )


def names_libucp(program):
    """Whether a program prints its mapped libucp: those of c_tests do, OSU's do with the patches."""
    try:
        with open(program, "rb") as file:
            return b"# libucp: " in file.read()
    except OSError:
        return True  # not built: its run will fail


def own_mpi(mpi_name, quick):
    directory = f"{TOP}/build/bench/{mpi_name}"
    words = OWN_MPI_QUICK if quick else OWN_MPI
    return [
        mpi(mpi_name, program, f"{directory}/{program}", words[program], f"{program} through {mpi_name}")
        for program in words
    ]


def start_and_end(mpi_name, quick, path=None):
    """MPI_Init to MPI_Finalize; OSU's own benchmark measures MPI_Init only."""
    path = path or f"{TOP}/build/bench/{mpi_name}/init"
    return [
        mpi(
            mpi_name,
            os.path.basename(path),
            path,
            "",
            f"MPI_Init to MPI_Finalize of {mpi_name}, {ranks} ranks",
            ranks,
            lambda output, scratch, ranks=ranks: parse.start(output, mpi_name, ranks),
        )
        for ranks in ((2,) if quick else (2, 16))
    ]


def address_space(mpi_name, quick):
    """Batch systems limit it (ulimit -v)."""
    return [
        mpi(
            mpi_name,
            "address_space",
            f"{TOP}/build/bench/{mpi_name}/address_space",
            "",
            f"peak address space of a rank of {mpi_name}, {ranks} ranks that all talk to each other",
            ranks,
            lambda output, scratch: parse.table(output, f"address_space_{mpi_name}"),
        )
        for ranks in ((8,) if quick else (8, 32))
    ]


def crowded(mpi_name, quick):
    """More ranks than cores: a waiting rank should yield."""
    ranks, words = 8, f"-m 8:8 -i {14 if quick else 70}"
    return mpi(
        mpi_name,
        "allreduce",
        f"{TOP}/build/bench/{mpi_name}/allreduce",
        words,
        f"allreduce through {mpi_name}, {ranks} ranks",
        ranks,
        lambda output, scratch: parse.table(output, f"{mpi_name}_{ranks}_ranks_allreduce"),
    )


def oversubscribed(mpi_name, quick):
    """Steps of more ranks than cores by the number of ranks; with Open MPI's own yielding, too.

    Alone, beside one process that computes, and beside one on each core."""
    chosen = []
    cores = len(os.sched_getaffinity(0))
    loads = (0, cores) if quick else sorted({0, 1, cores})
    for ranks in (4,) if quick else (2, 4, 8, 16):
        for yields in ("", "/yield") if mpi_name == "openmpi" else ("",):
            chosen += [crowd_beside(mpi_name, ranks, yields, load, "0.1" if quick else "1") for load in loads]
    return chosen


def crowd_beside(mpi_name, ranks, yields, load, seconds):
    """So many ranks beside so many processes that compute."""
    how = f"{yields}/load{load}" if load else yields
    about = f"{ranks} ranks{', mpi_yield_when_idle' if yields else ''}"
    about += f" beside {load} busy process{'es' if load > 1 else ''}" if load else ""
    workload = mpi(
        mpi_name,
        "crowd",
        f"{TOP}/build/bench/{mpi_name}/crowd",
        seconds,
        f"{about}: ring, allreduce, put, get, fetch-and-op of {mpi_name}",
        ranks,
        lambda output, scratch: parse.driver(output, f"{mpi_name}{how.replace('/', '_')}_crowd_"),
    )
    workload.name, workload.load = f"oversubscribed/{mpi_name}/{ranks}{how}", load
    workload.limit = 500  # a step of 16 ranks that wait for each other's time slices takes up to a second
    workload.environment = {"OMPI_MCA_mpi_yield_when_idle": "1" if yields else "0"}
    return workload


def find(tree, folder, program):
    """A benchmark in a tree that was built in place, or installed; None if it is not there."""
    installed = f"libexec/osu-micro-benchmarks/mpi/{folder}"
    places = (f"c/mpi/{folder}", f"mpi/{folder}", installed, os.path.dirname(installed), ".")
    paths = [f"{tree}/{place}/{program}" for place in places]
    return next((path for path in paths if os.access(path, os.X_OK) and os.path.isfile(path)), None)


def osu(mpi_name, tree, quick):
    """Those benchmarks of a built tree that are there."""
    found = [
        (program, find(tree, folder, program))
        for program, (folder, _) in OSU.items()
        if not quick or program in OSU_QUICK
    ]
    return [
        mpi(mpi_name, program, path, OSU_QUICK[program] if quick else OSU[program][1], f"{program} through {mpi_name}")
        for program, path in found
        if path
    ]


def everything(quick, osu_trees=None):
    """All workloads of scripts/bench."""
    threads = (2,) if quick else (1, 2, 4, 8)
    numbers = ((1, 1), (100, 10)) if quick else ((1, 1), (100, 50), (1000, 50), (10000, 50))
    chosen = [
        driver("limits", "the machine without any library", "limits", quick=quick, machine=True),
        driver("tag", "tag messages by size", "tag", quick=quick),
        driver("am", "active messages by size", "am", quick=quick),
        driver("stream", "streams by size", "stream", quick=quick),
        driver(
            "first",
            "tag messages of a new pair by their number",
            "first",
            quick=quick,
            environment={"UCX_TLS": "sm,self"},
        ),
        driver("rma", "put and get by size", "rma", quick=quick),
        *targets(quick),
        driver("atomics", "atomics", "atomics", quick=quick),
    ]
    for operation in ("tag", "am", "put"):
        for workers, whose in (("shared", "one shared worker"), ("own", "a worker each")):
            chosen += [
                driver(
                    f"threads/{operation}/{workers}/{count}",
                    f"{operation} rate, {count} threads, {whose}",
                    "threads",
                    operation,
                    workers,
                    str(count),
                    quick=quick,
                )
                for count in threads
            ]
    chosen += senders(quick)
    chosen.append(driver("gups", "random access", "gups", quick=quick))
    chosen += lists(quick)
    chosen.append(instructions())
    chosen.append(driver("startup", "context and worker", "startup", quick=quick))
    chosen += [
        driver(
            f"endpoints/{number}",
            f"{number} endpoints to {peers} workers",
            "endpoints",
            str(number),
            str(peers),
            quick=quick,
        )
        for number, peers in numbers
    ]
    chosen += clients(quick)
    chosen += processes(quick)
    chosen += scale(quick)
    chosen += regions(quick)
    chosen += growth(quick)
    for name in MPIS:
        tree = (osu_trees or {}).get(name)
        chosen += osu(name, tree, quick) if tree else own_mpi(name, quick)
        chosen.append(crowded(name, quick))
        chosen += oversubscribed(name, quick)
        chosen += start_and_end(name, quick)
        chosen += address_space(name, quick)
    return chosen


def matching(workloads, only):
    """Those whose name begins with one of the words, if there are any."""
    if not only:
        return workloads
    chosen = [workload for workload in workloads if any(word in workload.name for word in only.split(","))]
    if not chosen:
        raise SystemExit(
            f"no workload matches '{only}'; there are: {' '.join(workload.name for workload in workloads)}"
        )
    return chosen


def scratch():
    return tempfile.TemporaryDirectory(prefix="rucp-bench-")
