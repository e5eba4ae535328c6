"""The constants of the model of the wireup: runs of real processes of this host, by each transport."""

import json
import os
import subprocess

from . import parse
from .conditions import DRIVER
from .libraries import TOP
from .wireup import Transport

FILE = f"{TOP}/scripts/measure/wireup_constants.json"
CORES = 2
HCA, TOFU = (f"{TOP}/c_tests/hca/wired",), (f"{TOP}/c_tests/tofu/wired",)
# Shared memory: rucp's figures of docs/PERFORMANCE.md, "Many processes of one host", on the same cores without other
# load, ms of all and MiB: start, connect all with all, first all-to-all, later ones, memory. With other load processes
# that wait for a peer without a core take most of the time.
DOCUMENTED = {
    64: (14.5, 10.5, 3.3, 1.4, 0.4),
    128: (71.4, 40.4, 8.7, 5.6, 0.6),
    256: (165, 217, 34.2, 22.9, 1.0),
    512: (200, 1411, 157, 79.3, 1.8),
}
DOCUMENTED_BY = "UCX_TLS=sm,self scripts/bench --only processes --repeat 11 --tries 1"
# By name: UCX_TLS, what the command is behind, what its environment has more, and the numbers of processes: constants
# are those of the first, the others test the model.
RUNS = {
    "tcp": ("tcp,self", (), {"UCX_NET_DEVICES": "lo"}, (32, 64, 128, 256)),
    "rc": ("rc_verbs,ud_verbs,self", HCA, {}, (16, 32, 64)),
    "ud": ("ud_verbs,self", HCA, {}, (16, 32, 64)),
    "tofu": ("tofu,self", TOFU, {}, (16, 32, 64)),
    "ofi": ("ofi,self", (), {"FI_PROVIDER": "tcp"}, (16, 32)),
}
# Peers that are not used: ucpbench scale. Shared memory has none that do not exist.
SCALE_TLS = {"tcp": "sm,tcp,self", "rc": "rc_verbs,ud_verbs,self", "ud": "ud_verbs,self", "tofu": "tofu,self"}
SCALE_TLS |= {"ofi": "ofi,self"}
SCALE_NUMBER = 10000
# What is not measured: messages of a connection one after the other (docs/ARCHITECTURE.md, 6), latency of the network,
# microseconds, whether two peers share a connection, queue pairs of one at each end.
ASSUMED = {
    "shm": (1, 0.2, False, 0),
    "tcp": (4, 15.0, True, 0),
    "rc": (3, 1.5, True, 1),
    "ud": (3, 1.5, True, 0),
    "tofu": (4, 1.0, False, 0),
    "ofi": (2, 15.0, True, 0),
}


def command(name, words):
    """Arguments and environment of ucpbench over a transport."""
    tls, behind, more, _ = RUNS[name]
    if words[-2] == "scale":
        # To other hosts: not by the loopback device.
        tls, more = SCALE_TLS[name], {key: value for key, value in more.items() if key != "UCX_NET_DEVICES"}
    environment = {key: value for key, value in os.environ.items() if not key.startswith("UCX_")}
    environment |= {"LD_LIBRARY_PATH": f"{TOP}/build/lib", "UCX_TLS": tls, "UCX_LOG_LEVEL": "error"} | more
    return ["timeout", "120", *behind, DRIVER, *words], environment


def shown(name, words):
    """The command for a terminal."""
    arguments, environment = command(name, words)
    more = " ".join(f"{key}={environment[key]}" for key in ("UCX_TLS", *RUNS[name][2]) if key in environment)
    return f"{more} {' '.join(arguments[2:])}".replace(f"{TOP}/", "")


def run(name, *words):
    """The figures of a run, by name."""
    arguments, environment = command(name, words)
    done = subprocess.run(arguments, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"simulate: {shown(name, words)}: status {done.returncode}\n{done.stdout}")
    return {figure.name: figure.value for figure in parse.driver(done.stdout)}


def processes(name, number):
    """What a process takes in each phase: processor time, ms; memory, KiB."""
    figures = run(name, "processes", "--usage", str(number))
    phases = {
        phase: figures[f"processes_{phase}_user"] + figures[f"processes_{phase}_system"]
        for phase in ("start", "connect", "first", "steady")
    }
    return phases | {"memory": figures["processes_memory"], "wall_first": figures["processes_first"]}


def documented():
    """The documented figures, in the form of `processes`."""
    names = ("start", "connect", "first", "steady")
    return {
        str(number): dict(zip(names, (phase * CORES / number for phase in phases)))
        | {"memory": memory * 1024, "wall_first": phases[2]}
        for number, (*phases, memory) in DOCUMENTED.items()
    }


def measure():
    """Measures all constants, and returns them for the file."""
    measured = {"shm": {"command": DOCUMENTED_BY, "processes": documented()}}
    for name, (_, _, _, numbers) in RUNS.items():
        one = {
            "command": shown(name, ("processes", "--usage", "NUMBER")),
            "processes": {str(number): processes(name, number) for number in numbers},
        }
        if name in SCALE_TLS:
            one["scale_command"] = shown(name, ("--quick", "scale", str(SCALE_NUMBER)))
            scale = run(name, "--quick", "scale", str(SCALE_NUMBER))
            one["scale"] = {key: scale[f"scale_{key}"] for key in ("address", "create", "heap")}
        measured[name] = one
        print(f"{name}: {one}", flush=True)
    return measured


def save(measured, about):
    with open(FILE, "w") as file:
        json.dump({"about": about, "cores": CORES, "transports": measured}, file, indent=1)
        file.write("\n")


def load():
    with open(FILE) as file:
        return json.load(file)


def transport(name, one):
    """A transport with its constants."""
    legs, latency, pairs, queue_pairs = ASSUMED[name]
    runs = {int(number): phases for number, phases in one["processes"].items()}
    base, further = sorted(runs)[:2]
    here, peers = runs[base], base - 1
    message = here["steady"] * 1000 / peers / 2
    first = (here["first"] - here["steady"]) * 1000 / peers
    scale = one.get("scale", {})
    per_peer = (runs[further]["memory"] - here["memory"]) * 1024 / (further - base)
    unused = scale.get("heap", 0.0)
    return Transport(
        name=name,
        address=int(scale.get("address", 99)),
        create=scale.get("create", here["connect"] * 1000 / peers),
        unused=unused,
        # Two connections of each pair: a rank opens one and accepts one.
        connect=max(0.0, first) / (1 if pairs else 2),
        used=max(0.0, per_peer - unused),
        message=message,
        legs=legs,
        latency=latency,
        pairs=pairs,
        queue_pairs=queue_pairs,
    )
