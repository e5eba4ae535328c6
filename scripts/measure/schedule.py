"""The schedule: every workload on all libraries in turn, repeated, and again where the machine was disturbed."""

import os
import subprocess
import time

from . import parse
from .conditions import Watch, unlikeness
from .load import Load
from .workloads import scratch

BEGAN = time.monotonic()


def say(text):
    print(f"[{time.monotonic() - BEGAN:5.0f} s] {text}", flush=True)


class Failure(Exception):
    """A run without figures; the others go on."""


def run(workload, library):
    """One run: figures, conditions, and the library's name."""
    with scratch() as directory:
        words, environment = workload.run_in(library, directory)
        with Watch() as watch, Load(workload.load):
            result = subprocess.run(
                words,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
        figures = workload.read(result.stdout, directory)
    path, version = parse.loaded_library(result.stdout)
    if result.returncode != 0:
        tail = "\n".join(result.stdout.splitlines()[-12:])
        raise Failure(f"{workload.name} on {library.title}: status {result.returncode}\n{tail}")
    if not figures and not parse.unsupported(result.stdout):
        raise Failure(f"{workload.name} on {library.title} printed no figures:\n{result.stdout[-2000:]}")
    if path is not None and os.path.realpath(path) != library.file():
        raise SystemExit(f"{library.title} was asked for, but {path} was loaded")
    return figures, watch.conditions, (path, version)


def run_patiently(workload, library):
    """Like `run`, but repeats failed runs of UCX, which crashes sometimes (1.13.1 in random accesses under MPICH, for
    one)."""
    for _ in range(0 if library.is_subject else 2):
        try:
            return run(workload, library)
        except Failure as failure:
            say(f"again: {str(failure).splitlines()[0]}")
    return run(workload, library)


def repetition(workload, libraries, tries):
    """The libraries in turn until the conditions were similar, at most this many times; the most similar turn
    counts."""
    best = None
    for attempt in range(tries):
        turn = {library: run_patiently(workload, library) for library in libraries}
        unlike = unlikeness([conditions for _, conditions, _ in turn.values()])
        if best is None or unlike < best[1]:
            best = turn, unlike, attempt + 1
        if unlike <= 1 or workload.once:
            break
    return best


def measure(workloads, libraries, results, repeat, tries):
    """Runs all workloads and adds to the results after each. Returns how many workloads failed."""
    failed = set()
    for number in range(repeat):
        for workload in workloads:
            if workload.name in failed or (workload.once and number > 0):
                continue
            try:
                turn, unlike, attempts = repetition(workload, libraries[:1] if workload.machine else libraries, tries)
            except Failure as failure:
                failed.add(workload.name)
                results.failures.append(str(failure))
                say(f"FAILED {failure}")
                continue
            disturbed = unlike > 1 and not workload.once
            for library, (figures, conditions, loaded) in turn.items():
                results.add(workload, library, number, figures, conditions, loaded, disturbed)
            say(
                f"{number + 1} of {repeat}: {workload.name}"
                + (f", {attempts} tries" if attempts > 1 else "")
                + (" (disturbed)" if disturbed else "")
            )
    return len(failed)
