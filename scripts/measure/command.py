"""The common command line of scripts/bench and scripts/osu."""

import os
import shlex
import signal
import sys

from . import libraries, page, results, schedule, table
from .libraries import TOP
from .workloads import matching


def add_options(parser, default_libraries):
    parser.add_argument(
        "--quick", action="store_true", help="few sizes, few iterations, once: shows that it runs, measures little"
    )
    parser.add_argument("--only", help="workloads whose name contains one of these words (separated by commas)")
    parser.add_argument("--list", action="store_true", help="name the workloads and do nothing")
    parser.add_argument("--repeat", type=int, help="repetitions (default 5, or 1 with --quick)")
    parser.add_argument(
        "--tries", type=int, help="how often a disturbed repetition is tried (default 4, or 1 with --quick)"
    )
    parser.add_argument(
        "--libraries", default=default_libraries, help="1.13, 1.22, rucp, NAME=DIRECTORY (default %(default)s)"
    )
    parser.add_argument(
        "--out", help="directory for results.csv, results.json and index.html (default build/NAME-results)"
    )
    parser.add_argument(
        "--baseline", metavar="OLD.json", help="mark what is worse than in these results; then the status is 3"
    )
    parser.add_argument(
        "--threshold", type=float, default=0.10, help="how much worse a time must be to count (default 0.10)"
    )


def write_files(collected, out):
    collected.write_csv(f"{out}/results.csv")
    collected.write_json(f"{out}/results.json")


def run(options, name, title, workloads, write_page=page.write):
    """Measures, prints the table, writes CSV, JSON and page; returns the exit status."""
    chosen = matching(workloads, options.only)
    if options.list:
        for workload in chosen:
            print(f"{workload.name:<36}{workload.about}")
        return 0
    baseline = results.read_baseline(options.baseline) if options.baseline else None
    collected = results.Results(libraries.choose(options.libraries), shlex.join([f"scripts/{name}"] + sys.argv[1:]))
    repeat = options.repeat or (1 if options.quick else 5)
    tries = options.tries or (1 if options.quick else 4)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        failed = schedule.measure(chosen, collected.libraries, collected, repeat, tries)
    except KeyboardInterrupt:
        failed = 1
        collected.failures.append("interrupted: what had been measured by then")
    worse = collected.regressions(baseline, options.threshold) if baseline else []
    table.show(collected, worse)
    out = os.path.abspath(options.out or f"{TOP}/build/{name}-results")
    os.makedirs(out, exist_ok=True)
    write_files(collected, out)
    write_page(collected, f"{out}/index.html", title, worse, options.baseline)
    print(f"\nwritten: {out}/index.html, results.csv, results.json")
    if worse:
        print(f"{len(worse)} regressions against {options.baseline}")
    return 1 if failed else 3 if worse else 0
