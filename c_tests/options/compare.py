#!/usr/bin/env python3
# Compares docs/OPTIONS.md with the output of real ucx_info programs: every variable known, the defaults of 1.22.
"""Usage: compare.py NEW_UCX_INFO [OTHER_UCX_INFO ...]

The first program must be that of UCX 1.22: its defaults are compared, too. A program can be given as
LIBDIR:PROGRAM to be run with LIBDIR on the library path. docs/OPTIONS.md is generated from the table of
options, and tests/options.rs keeps the two equal."""

import os
import pathlib
import re
import subprocess
import sys

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "OPTIONS.md"

# Defaults that contain UCX's installation path, or that UCX computes from the speed of the clock.
OF_THE_INSTALLATION = {"UCX_MODULE_DIR", "UCX_DYNAMIC_TL_PROGRESS_FACTOR"}


def tuned(program):
    """The options that the program's own ucx.conf may set for this machine: their printed values are no defaults."""
    libdir, _, _ = program.rpartition(":")
    conf = pathlib.Path(libdir).parent / "etc" / "ucx" / "ucx.conf"
    text = conf.read_text() if libdir and conf.exists() else ""
    return set(re.findall(r"^(UCX_\w+)=", text, re.MULTILINE))


def read_page(text):
    """The defaults by full name, and all names under which an option can be set."""
    defaults, names, prefix = {}, set(), None
    for line in text.splitlines():
        begins = re.match(r"Names begin with `(UCX_\w*)`\.", line)
        if begins:
            prefix = begins[1]
        row = re.match(r"\| (?:\*\*)?`(\w+)`(?:\*\*)?(?: \(formerly `(\w+)`\))?(?: \(or (.*?)\))? \| `(.*?)` \| ", line)
        if not row:
            continue
        name, older, shared, default = row.groups()
        for own in filter(None, [name, older]):
            defaults[prefix + own] = default
            names.add(prefix + own)
            names.update(alias + own for alias in re.findall(r"`(\w+)`", shared or ""))
    return defaults, names


def run(program):
    """The output of `ucx_info -caf` of one program."""
    libdir, _, path = program.rpartition(":")
    env = {name: value for name, value in os.environ.items() if not name.startswith("UCX_")}
    if libdir:
        env["LD_LIBRARY_PATH"] = libdir
    done = subprocess.run([path, "-caf"], env=env, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def read_info(text):
    """The defaults by full name, and all names, shared and retired ones included."""
    defaults, names = {}, set()
    for line in text.splitlines():
        inherits = re.match(r"# inherits: +(.*)", line)
        if inherits:
            names.update(re.split(r", *", inherits[1]))
        value = re.match(r"(UCX_\w+)(?:=(.*)| \(deprecated\))$", line)
        if value:
            names.add(value[1])
            if value[2] is not None:
                defaults[value[1]] = value[2]
    return defaults, names


def main(programs):
    ours, our_names = read_page(PAGE.read_text())
    wrong = 0
    for number, program in enumerate(programs):
        theirs, their_names = read_info(run(program))
        excused = OF_THE_INSTALLATION | tuned(program)
        missing = sorted(their_names - our_names)
        differing = sorted(
            name
            for name, default in theirs.items()
            if number == 0 and name not in excused and ours.get(name) != default
        )
        for name in missing:
            print(f"{program}: {name} is not known")
        for name in differing:
            print(f"{program}: {name} is {theirs[name]!r}, ours {ours.get(name)!r}")
        print(f"{program}: {len(theirs)} options, {len(their_names)} names, {len(missing)} missing, "
              f"{len(differing)} defaults differ")
        # A program that prints nothing proves nothing.
        wrong += len(missing) + len(differing) + (len(theirs) < 200)
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
