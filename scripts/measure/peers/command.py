"""The command `scripts/bench --only peers`."""

import os
import shlex
import signal
import sys

from .. import document
from ..libraries import TOP
from . import page, tables
from .schedule import measure
from .ways import NOT_INSTALLED, WAYS, matching


def run(options, only):
    """`scripts/bench --only peers`: measures, prints the table, writes the files; returns the exit status: 1 if an
    installed way could not run."""
    ways = matching(only)
    if options.list:
        for way in ways:
            print(f"peers/{way.name:<30}{way.full_title}")
        return 0
    if options.document and (options.quick or len(ways) < len(WAYS)):
        sys.exit("bench: --document is about all ways, not in the quick form: --only peers")
    repeat = options.repeat or (1 if options.quick else 3)
    tries = options.tries or (1 if options.quick else 2)
    command = shlex.join(["scripts/bench"] + sys.argv[1:])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    collected = measure(ways, command, options.quick, repeat, tries)
    tables.show(collected)
    out = os.path.abspath(options.out or f"{TOP}/build/peers-results")
    tables.write_files(collected, out)
    page.write(collected, f"{out}/index.html")
    print(f"\nwritten: {out}/index.html, results.csv, results.json")
    if options.document and not collected.interrupted:
        tables.write_document(collected)
        print(f"written: {document.DOCUMENT}")
    broken = [reason for reason in collected.absent.values() if not reason.startswith(NOT_INSTALLED)]
    return 1 if collected.unable or broken or collected.interrupted else 0
