"""How tests are listed, and what they check."""
from concurrent.futures import ThreadPoolExecutor

from hosts import Hosts

TESTS = []


def test(function):
    TESTS.append(function)
    return function


def test_on_wires(function):
    """A test of both wires: that of wire.py, and under the name netem_... the kernel's (see `scripts/guest`)."""
    for prefix, lay in (("", Hosts.tap), ("netem_", Hosts.netem)):
        def run(lay=lay):
            function(lay)
        run.__name__ = prefix + function.__name__
        test(run)
    return function


class Failed(Exception):
    pass


def check(condition, what):
    if not condition:
        raise Failed(what)


def at_once(run, cases):
    """Calls `run` with the arguments of each case, in a thread of its own."""
    with ThreadPoolExecutor(len(cases)) as pool:
        runs = {case: pool.submit(run, *case) for case in cases}
    failed = {case: run.exception() for case, run in runs.items() if run.exception()}
    check(not failed, f"failed: {failed}")
