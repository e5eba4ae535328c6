"""The libraries that are compared, and how a program is run on each of them."""

import os
import subprocess
from dataclasses import dataclass

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@dataclass(frozen=True)
class Library:
    name: str  # on the command line, in CSV and JSON
    title: str  # on the page
    directory: str | None  # for LD_LIBRARY_PATH; None: the loader's own choice
    mpirun_on: str  # its name for scripts/mpirun-on

    @property
    def is_subject(self):
        """Whether the others are compared with this one."""
        return self.name.startswith("rucp")

    def environment(self):
        environment = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
        environment["UCX_WARN_UNUSED_ENV_VARS"] = "n"
        if self.directory:
            environment["LD_LIBRARY_PATH"] = self.directory
        return environment

    def file(self):
        """The real path of the libucp that a run must have loaded."""
        if self.directory:
            return os.path.realpath(f"{self.directory}/libucp.so.0")
        listing = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, timeout=60).stdout
        paths = [line.split()[-1] for line in listing.splitlines() if line.split()[:1] == ["libucp.so.0"]]
        return os.path.realpath(paths[0]) if paths else None


KNOWN = {
    "1.13": Library("1.13", "UCX 1.13.1", None, "system"),
    "1.22": Library("1.22", "UCX 1.22", f"{TOP}/build/ucx-1.22/lib", "1.22"),
    "rucp": Library("rucp", "rucp", f"{TOP}/build/lib", "rucp"),
}


def choose(names):
    """Libraries by name, `NAME=DIRECTORY` for any other one; reports missing ones."""
    chosen = []
    for name in names.split(","):
        if "=" in name:
            name, directory = name.split("=", 1)
            directory = os.path.abspath(directory)
            library = Library(name, name, directory, f"{directory}/libucp.so.0")
        elif name in KNOWN:
            library = KNOWN[name]
        else:
            raise SystemExit(f"no library '{name}': one of {', '.join(KNOWN)}, or NAME=DIRECTORY")
        if library.file() is None or not os.path.exists(library.file()):
            raise SystemExit(f"no libucp.so.0 for {library.title}: run scripts/setup and scripts/build first")
        chosen.append(library)
    return chosen
