"""The schedule: all ways in turn, for each number of ranks, repeated, and again where the machine was disturbed."""

import os
import re
import statistics
import subprocess
import time
from dataclasses import dataclass

from .. import conditions, parse
from ..conditions import FOREIGN_SHARE, HANDOFF_SPREAD, Watch
from ..libraries import TOP
from ..schedule import say
from .collected import Collected
from .ways import OUT, missing

RANKS = (2, 4, 8, 16)
LIMIT = 90  # seconds of one run


class Unable(Exception):
    """A run without figures, with the reason; `again`: whether another try may succeed."""

    def __init__(self, reason, again=False):
        super().__init__(reason)
        self.again = again


@dataclass
class Run:
    figures: list
    conditions: conditions.Conditions
    mpi: str  # the MPI's own version string
    libucp: str  # the mapped one, or that none carries messages

    def unlikeness(self, typical):
        """Difference to runs under that handoff, without other load; more than 1: disturbed."""
        handoffs = (self.conditions.handoff_before, self.conditions.handoff_after)
        away = max(max(one / typical, typical / one) for one in handoffs)
        return max(away / HANDOFF_SPREAD, self.conditions.foreign / FOREIGN_SHARE)


def environment(ranks):
    kept = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "LD_LIBRARY_PATH", "PROVE")}
    # As many ranks as cores get a core each; more are the scheduler's.
    pin = {"PIN": "1"} if ranks <= len(os.sched_getaffinity(0)) else {}
    kept.pop("PIN", None)
    return kept | pin | {"UCX_WARN_UNUSED_ENV_VARS": "n"}


def reason_of(result):
    """The line of a failed run's output that says most."""
    if result.returncode in (124, 137):
        return f"not done after {LIMIT} s"
    lines = [line.strip() for line in (result.stderr + result.stdout).splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"FAILED|mpirun-on:|rror", line)]
    return f"status {result.returncode}: {(telling or lines or ['no output'])[0][:160]}"


def finish(words, environment):
    """Runs a command to its end; if this process is interrupted, the command is asked to end its ranks."""
    with subprocess.Popen(
        words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, errors="replace",
    ) as process:  # fmt: skip
        try:
            output, errors = process.communicate()
        except BaseException:
            process.terminate()
            process.communicate()
            raise
    return subprocess.CompletedProcess(words, process.returncode, output, errors)


def run(way, ranks, quick):
    """One run of all operations. Its every rank proves which libucp it has mapped, or that none carries messages."""
    words = [f"{TOP}/scripts/mpirun-on", way.mpi, way.library, str(ranks), way.program]
    with Watch() as watch:
        words = ["timeout", "-k", "5", str(LIMIT)] + words + (["quick"] if quick else [])
        result = finish(words, environment(ranks))
    mpi = re.search(r"^# mpi: (.*)$", result.stdout, re.M)
    libucp = re.search(r"^# (?:(libucp: .*)|(no libucp: .*))$", result.stdout, re.M)
    if result.returncode != 0:
        raise Unable(reason_of(result), result.returncode not in (124, 137))
    if not mpi or not libucp or (libucp[2] is not None) != (way.library == "own"):
        raise Unable(f"did not prove what carries its messages: {libucp[0] if libucp else 'nothing printed'}")
    return Run(parse.driver(result.stdout), watch.conditions, " ".join(mpi[1].split()), libucp[1] or libucp[2])


def attempt(way, ranks, quick):
    """A run; a second one where the first failed, because UCX crashes sometimes."""
    try:
        return run(way, ranks, quick)
    except Unable as failure:
        if not failure.again:
            raise
        say(f"again: {way.full_title}, {ranks} ranks: {failure}")
    return run(way, ranks, quick)


def turn(collected, able, ranks, repetition, tries):
    """All ways in turn with so many ranks; those that were disturbed once more, and the less disturbed run counts."""
    done = {}
    for way in able if repetition % 2 == 0 else reversed(able):
        if (way.name, ranks) not in collected.unable:
            try:
                done[way] = attempt(way, ranks, collected.quick)
            except Unable as failure:
                collected.unable[way.name, ranks] = str(failure)
                say(f"UNABLE {way.full_title}, {ranks} ranks: {failure}")
    if not done:
        return
    found = [one.conditions for one in done.values()]
    typical = statistics.median(value for one in found for value in (one.handoff_before, one.handoff_after))
    for _ in range(tries - 1):
        for way in [way for way, one in done.items() if one.unlikeness(typical) > 1]:
            try:
                again = run(way, ranks, collected.quick)
            except Unable as failure:
                say(f"disturbed, and the second run failed: {way.full_title}, {ranks} ranks: {failure}")
                continue
            if again.unlikeness(typical) < done[way].unlikeness(typical):
                done[way] = again
    disturbed = sum(one.unlikeness(typical) > 1 for one in done.values())
    for way, one in done.items():
        collected.add(way, ranks, repetition, one, disturbed > 0)
    say(f"{repetition + 1}: {ranks} ranks" + (f" ({disturbed} of {len(done)} runs disturbed)" if disturbed else ""))


def measure_limits(collected):
    quick = ["--quick"] if collected.quick else []
    result = finish(["timeout", "-k", "5", str(LIMIT), conditions.DRIVER, *quick, "limits"], os.environ)
    if result.returncode != 0:
        raise SystemExit(f"bench: the machine's limits: {result.stderr}")
    collected.add_limits(result.stdout)


def measure(ways, command, quick, repeat, tries):
    """Builds the programs, measures; returns what was collected."""
    programs = [f"{OUT}/ucpbench", f"{OUT}/no_ucp.so"]
    subprocess.run(["make", "-s", "-C", f"{TOP}/c_tests/bench", f"OUT={OUT}", *programs], check=True)
    absent = {mpi: missing(mpi) for mpi in dict.fromkeys(way.mpi for way in ways)}
    collected = Collected(list(ways), command, quick)
    collected.absent = {way.name: absent[way.mpi] for way in ways if absent[way.mpi]}
    able = [way for way in ways if way.name not in collected.absent]
    for name, reason in collected.absent.items():
        say(f"UNABLE {name}: {reason}")
    began = time.monotonic()
    try:
        for repetition in range(repeat):
            measure_limits(collected)
            for ranks in RANKS[:2] if quick else RANKS:
                turn(collected, able, ranks, repetition, tries)
    except KeyboardInterrupt:
        collected.interrupted = True
    collected.seconds = time.monotonic() - began
    return collected
