"""The command `rucp`, also `python -m rucp`."""

import argparse
import os
import shlex
import sys
from pathlib import Path

from . import heap_library, launch, library

# The tools in bin, without `rucp_`.
TOOLS = {
    "info": "print transports and options",
    "top": "show the workers of this host",
    "trace": "merge the files that UCX_TRACE_FILE names",
    "doctor": "say which way two processes take, why not another one, and what to change",
}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="rucp", description="Runs programs on rucp, the library libucp.so.0.")
    commands = top.add_subparsers(dest="command", required=True)
    run = commands.add_parser(
        "run",
        help="run a program, or a launcher of Open MPI or MPICH, on rucp",
        description="Runs a program with LD_PRELOAD. Of a launcher of Open MPI or MPICH the ranks get it, and the "
        "options that make the MPI use UCX.",
    )
    run.add_argument(
        "--print", action="store_true", help="print the command line, with the variables that it sets, and run nothing"
    )
    run.add_argument(
        "--shared-heap",
        action="store_true",
        help="large allocations of the processes lie in memory that they share (UCX_HEAP=shared)",
    )
    run.add_argument("program", help="mpirun, mpiexec, or any other program")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    commands.add_parser("path", help="print the path of libucp.so.0")
    for tool, does in TOOLS.items():
        command = commands.add_parser(tool, help=f"{does} (rucp_{tool})", add_help=False)
        command.add_argument("arguments", nargs=argparse.REMAINDER)
    return top


def main() -> int:
    words = sys.argv[1:]
    if words and words[0] in TOOLS:
        # All further words, options too, are the tool's.
        tool = Path(__file__).resolve().parent / "bin" / f"rucp_{words[0]}"
        if not tool.exists():
            print(f"rucp: this package has no {tool.name}", file=sys.stderr)
            return 2
        os.execv(tool, [tool.name, *words[1:]])
    arguments = parser().parse_args(words)
    if arguments.command == "path":
        print(library())
        return 0
    try:
        way = launch.shared_heap(library(), heap_library()) if arguments.shared_heap else launch.Way([library()], {})
        command, environment = launch.prepare([arguments.program, *arguments.arguments], way)
    except launch.LaunchError as error:
        print(f"rucp: {error}", file=sys.stderr)
        return 2
    if arguments.print:
        changed = [f"{name}={value}" for name, value in environment.items() if os.environ.get(name) != value]
        print(shlex.join(["env", *changed, *command] if changed else command))
        return 0
    sys.stdout.flush()
    os.execve(command[0], command, environment)


if __name__ == "__main__":
    sys.exit(main())
