"""Other load on the cores while a library is measured: processes that compute, nothing else."""

import subprocess

from .libraries import TOP

BUSY = f"{TOP}/build/bench/busy"


class Load:
    """So many processes that compute, in turn on the cores that may be used, while the block runs: `with Load(2): ...`.

    They are ended by their ids, and waited for, so that their time is this process's children's."""

    def __init__(self, number):
        self.number, self.processes = number, []

    def __enter__(self):
        try:
            for index in range(self.number):
                words = [BUSY, str(index)]
                self.processes.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE))
            for process in self.processes:
                if process.stdout.readline() != b"busy\n":
                    raise RuntimeError(f"{BUSY} does not run")
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
            process.stdout.close()
        self.processes = []
